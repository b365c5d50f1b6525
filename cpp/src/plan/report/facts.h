// What is said of a decision, as labels and values: the table, the page and the comparison show it.
#pragma once

#include <string>
#include <vector>

#include "plan/report/decision_file.h"

namespace corro::plan {

struct Fact {
  std::string label = {};
  std::string value = {};
};

struct Facts {
  std::vector<Fact> decisions = {};
  std::vector<Fact> predictions = {};
  std::vector<Fact> certificates = {};  ///< Bound, limit, runner-up.
};

[[nodiscard]] Facts facts_of(const DecisionFile& file);

/// "8 x 1 x 1 x 8 x 16": tensor, context, expert, data, pipeline.
[[nodiscard]] std::string degrees_text(const JobShape& shape);
/// "192 x 1": micro-batches of a step on each data-parallel rank, and samples of each.
[[nodiscard]] std::string batch_text(const JobShape& shape);
/// "interleaved, 3 chunks a stage".
[[nodiscard]] std::string schedule_text(const JobShape& shape);
/// "attention in 96, full in 2 of 98 layers".
[[nodiscard]] std::string recompute_text(const Candidate& candidate);
/// Bytes of gradients that the stage whose reducing shows most reduces at a time; 0: none are.
[[nodiscard]] double bucket_of(const Candidate& candidate);
/// "128 hosts, 1 024 x A100-80GB".
[[nodiscard]] std::string machines_text(const Cluster& cluster);

/// Bytes that a device of a stage may hold: the stage's limit, or the decision's and no more than
/// the device has.
[[nodiscard]] double limit_of(const DecisionFile& file, const PlannedStage& stage);
/// The stage of the best candidate whose devices have the least room left, as a part of their
/// limit; 0 without stages.
[[nodiscard]] size_t fullest_stage(const DecisionFile& file);
/// Bytes on one of its devices.
[[nodiscard]] double fullest_bytes(const DecisionFile& file);
[[nodiscard]] double samples_per_second(const Decision& decision, const Candidate& candidate);

/// Consecutive stages [first, last] that look alike in every table.
struct StageGroup {
  size_t first = 0;
  size_t last = 0;
};
[[nodiscard]] std::vector<StageGroup> groups_of(const DecisionFile& file,
                                                const std::vector<PlannedStage>& stages);

}  // namespace corro::plan
