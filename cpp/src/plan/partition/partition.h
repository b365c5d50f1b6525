// Published partitioning instances and their exact optimum.
//
//   CORRO_ASSIGN(const auto instance, read_instance(text, "bert.json"));
//   CORRO_ASSIGN(const auto result, solve(instance, {.devices = 64}));
//   std::string line = to_json(result, seconds);
//
// Which of the two problems a file holds is told by its fields (instance.h says what they are).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/partition/instance.h"

namespace corro::plan {

/// What replaces the file's own numbers.
struct PartitionOptions {
  std::optional<uint32_t> devices = {};
  std::optional<uint64_t> micro_batches = {};  ///< Piper's format alone.
  std::optional<double> memory_bytes = {};
  std::optional<double> bandwidth = {};  ///< Piper's format alone; bytes per second.
};

/// Work of one device, or of a group of devices that share a stage.
struct PartitionStage {
  std::vector<int64_t> nodes;  ///< The file's ids, in the file's order.
  bool on_accelerator = true;  ///< False: a processor runs this stage.
  uint32_t data_parallel = 1;
  uint32_t tensor_parallel = 1;
  double time = 0;          ///< Load of the device, respectively seconds per sample.
  double memory_bytes = 0;  ///< Of one device of the stage.
  /// Piper's format alone: the id of each node's choice, beside `nodes`.
  std::vector<std::string> choices = {};

  [[nodiscard]] uint32_t devices() const { return data_parallel * tensor_parallel; }
};

struct PartitionResult {
  double objective = 0;  ///< The largest time of a stage, and no split has a smaller one.
  std::vector<PartitionStage> stages = {};  ///< In the order in which samples pass them.
  /// Steps of the search, a measure of its work that does not depend on the machine.
  uint64_t steps = 0;
};

/// Reads an instance of either format. INVALID_ARGUMENT "name: place: ..." for everything that the
/// format does not allow: unknown and missing fields, negative and endless numbers, ids that come
/// twice, edges without a node, cycles.
[[nodiscard]] Result<PartitionInstance> read_instance(std::string_view text, std::string_view name);

/// Finds the optimum. INVALID_ARGUMENT for an option that the format does not have, or whose value
/// is not possible; FAILED_PRECONDITION if no split fits into the memory; RESOURCE_EXHAUSTED if the
/// graph has more contiguous splits than this program looks at.
[[nodiscard]] Result<PartitionResult> solve(const PartitionInstance& instance,
                                            const PartitionOptions& options = {});

/// The result as a line of JSON: {"objective": ..., "stages": [...], "seconds": ...}. `seconds` is
/// how long the caller saw the search take.
[[nodiscard]] std::string to_json(const PartitionResult& result, double seconds);

}  // namespace corro::plan
