// Runs that somebody measured, as rows of a CSV file, and what the cost model says of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "plan/cost/step_cost.h"

namespace corro::plan {

/// A row: a GPT trained by Megatron or what is like it.
struct MeasuredRun {
  uint32_t gpus = 0;
  uint32_t global_batch = 0;
  uint32_t micro_batch = 0;
  uint32_t hidden = 0;
  uint32_t heads = 0;
  uint32_t layers = 0;
  uint32_t sequence = 0;
  uint32_t tensor = 1;
  uint32_t data = 1;
  uint32_t pipeline = 1;
  uint32_t chunks = 1;                 ///< Column `interleave`; may be missing.
  uint32_t vocabulary = 51200;         ///< May be missing.
  bool recompute = true;               ///< Column `recompute`, 0 or 1; may be missing.
  std::optional<double> seconds = {};  ///< From step_ms; missing where a step is to be predicted.
};

struct RunTable {
  std::string header;              ///< The first line as it was.
  std::vector<std::string> lines;  ///< The others.
  std::vector<MeasuredRun> runs;   ///< Of each of them.
};

/// INVALID_ARGUMENT "runs.csv:7: heads: ..." for a line that is no run.
[[nodiscard]] Result<RunTable> read_runs(std::string_view text, std::string_view name);

struct RunPrediction {
  double seconds = 0;
  double bytes = 0;  ///< Of the device that holds most.
};

/// The machine of the runs in ../validation: A100-80GB, 8 a host with NVLink, 4 x 200 Gbit/s.
[[nodiscard]] Machine default_machine();

/// INVALID_ARGUMENT for a run that cannot be: pipeline stages that do not divide the layers.
[[nodiscard]] Result<RunPrediction> predict(const MeasuredRun& run, const Machine& machine);

}  // namespace corro::plan
