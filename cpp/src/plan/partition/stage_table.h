// The stages that a pipeline may have, and how long each takes.
//
// A stage is a pair of ideals of the reversed graph: the part `below` holds the layers of all later
// stages. For every stage and every pair of a tensor and a data parallel degree, the table knows
// how many micro-batches in flight the stage can hold at which time per sample. Entries are
// computed when they are first asked for: a search looks at few of them.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"
#include "plan/partition/ideals.h"
#include "plan/partition/instance.h"
#include "plan/partition/stage_choices.h"

namespace corro::plan {

/// Externally synchronized.
class StageTable {
 public:
  struct Degrees {
    uint32_t tensor_number = 0;  ///< Of the instance's `degrees`.
    uint32_t tensor = 1;
    uint32_t data = 1;
    [[nodiscard]] uint32_t devices() const { return tensor * data; }
  };
  /// Up to `in_flight` micro-batches take `time`. Rows of an entry ascend in both.
  struct Row {
    uint64_t in_flight;
    double time;
  };

  /// RESOURCE_EXHAUSTED if there are too many stages. Borrows both.
  static Result<StageTable> create(const PiperInstance& instance, const Ideals& ideals,
                                   std::vector<uint32_t> order);

  /// All degrees that the devices and micro-batches allow, by tensor degree, then data degree.
  [[nodiscard]] const std::vector<Degrees>& degrees() const { return degrees_; }

  /// The stages that end (in the reversed graph) with this ideal: their numbers and what is below.
  [[nodiscard]] size_t first_stage(IdealId ideal) const { return begin_[ideal]; }
  [[nodiscard]] size_t end_stage(IdealId ideal) const { return begin_[ideal + size_t{1}]; }
  [[nodiscard]] IdealId below(size_t stage) const { return below_[stage]; }

  /// No way to run the stage is faster; infinite if it fits in no way.
  [[nodiscard]] double least_time(size_t stage, const Degrees& degrees) const;
  [[nodiscard]] std::span<const Row> rows(IdealId ideal, size_t stage, size_t degrees);

  /// The stage's layers, in the order of the file, and fills `choices` with their ways.
  std::vector<uint32_t> fill(IdealId ideal, size_t stage, const Degrees& degrees,
                             StageChoices& choices) const;

  [[nodiscard]] bool gave_up() const { return choices_.gave_up(); }
  [[nodiscard]] uint64_t tries() const { return choices_.tries(); }
  /// Sum of the data parallel degrees that is possible: the micro-batches of a batch, and devices.
  [[nodiscard]] uint32_t most_degree_sum() const { return most_degree_sum_; }

 private:
  StageTable(const PiperInstance& instance, const Ideals& ideals, std::vector<uint32_t> order);
  /// What a stage needs at least with one tensor degree, as if the best of all ways came together.
  struct Least {
    double time = 0;
    double parameter_bytes = 0;
    double edge_bytes = 0;
    bool fits = false;
  };
  struct Entry {
    uint32_t begin = 0;
    uint32_t count = kUnknown;
  };
  static constexpr uint32_t kUnknown = UINT32_MAX;

  void list_degrees();
  Status list_stages();
  [[nodiscard]] Least least_of(IdealId ideal, IdealId below, size_t tensor_number) const;
  [[nodiscard]] double edge_bytes(IdealId ideal, IdealId below, uint32_t node,
                                  const PiperInstance::Choice& choice) const;
  [[nodiscard]] double time_of(double time, double edge_bytes, double parameter_bytes,
                               uint32_t data) const;
  [[nodiscard]] bool within(IdealId ideal, IdealId below, uint32_t node) const {
    return ideals_.holds(ideal, order_[node]) && !ideals_.holds(below, order_[node]);
  }

  const PiperInstance& instance_;
  const Ideals& ideals_;
  std::vector<uint32_t> order_;  ///< The ideals' number of each node.
  uint32_t most_degree_sum_ = 0;
  std::vector<Degrees> degrees_;
  std::vector<size_t> begin_;
  std::vector<IdealId> below_;
  std::vector<Least> least_;  ///< By stage and tensor degree.
  std::vector<Entry> entries_;
  std::vector<Row> rows_;
  StageChoices choices_;
};

}  // namespace corro::plan
