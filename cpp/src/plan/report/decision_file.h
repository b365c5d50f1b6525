// The planner's file, version 1 (docs/plan-decision.md): a decision with its predictions and
// certificates around the plan that an executor runs, and as much of the model and the cluster as
// the reports need. Read with one clear error line, written so that reading gives the same.
//
//   const DecisionFile file = make_decision_file(decision, model, cluster);
//   CORRO_ASSIGN(const std::string text, decision_to_json(file));
//   CORRO_ASSIGN(const DecisionFile again, read_decision(text, "plan.json"));
//
// All reports take a DecisionFile, so that they say the same of a decision that was just made and
// of one that was read. (plan_file.h has the file of a graph alone.)
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/cluster/cluster.h"
#include "plan/json.h"
#include "plan/model/model.h"
#include "plan/search/decision.h"

namespace corro::plan {

inline constexpr uint64_t kDecisionVersion = 1;
inline constexpr size_t kMostSentenceBytes = 4096;

/// One run of layers, as a model's LayerRun and its type have it.
struct LayerSummary {
  std::string name = {};    ///< Of the module, or of the type if the run has none.
  LayerRange layers = {};   ///< Of the chain; the file has their count.
  double hidden = 0;        ///< Elements of a layer's output per token; without tokens, per sample.
  uint64_t parameters = 0;  ///< Of one layer, elements.
  uint32_t experts = 0;
  bool attention = false;
  [[nodiscard]] uint32_t count() const { return layers.end - layers.begin; }
  bool operator==(const LayerSummary&) const = default;
};

struct ModelSummary {
  std::string name = {};
  uint32_t sequence = 0;     ///< Tokens per sample; 0: samples are no sequences.
  uint64_t parameters = 0;   ///< Elements; tied ones count once.
  double forward_flops = 0;  ///< Of one sample.
  std::vector<LayerSummary> layers = {};
  bool operator==(const ModelSummary&) const = default;
};

struct DecisionFile {
  Decision decision = {};
  ModelSummary model = {};
  Cluster cluster = {};  ///< Its names, types and hosts alone: no links, switches or matrix.
};

[[nodiscard]] ModelSummary summary_of(const Model& model);
[[nodiscard]] Cluster summary_of(const Cluster& cluster);
[[nodiscard]] DecisionFile make_decision_file(Decision decision, const Model& model,
                                              const Cluster& cluster);

/// Writes the file. Fields that hold their default are left out. INVALID_ARGUMENT for what
/// read_decision() would refuse, FAILED_PRECONDITION for a graph that would stand still.
[[nodiscard]] Result<std::string> decision_to_json(const DecisionFile& file);

/// Reads a file. INVALID_ARGUMENT "name:line: place: what is wrong" for anything but a well formed
/// decision. Checks again that the graph is live: FAILED_PRECONDITION if not.
[[nodiscard]] Result<DecisionFile> read_decision(std::string_view text, std::string_view name);

/// Layers of all runs together.
[[nodiscard]] uint32_t layer_count(const ModelSummary& model);
/// Layers of a run within a range of the chain.
[[nodiscard]] uint32_t layers_within(const LayerSummary& run, const LayerRange& range);
/// The runs that have layers in a range: numbers [first, second).
[[nodiscard]] std::pair<size_t, size_t> runs_within(const ModelSummary& model,
                                                    const LayerRange& range);
/// Layers of a stage that recompute so; 0 where the decision says nothing.
[[nodiscard]] uint32_t recomputed(const PlannedStage& stage, Recompute how);

}  // namespace corro::plan
