// Pipeline stages: a chain of layers cut into contiguous stages, each on devices of one type, so
// that a step takes the least time (planning.md 3b).
//
//   StageProblem problem;
//   problem.runs = {1, 94, 1};                  // layers, run-length coded
//   problem.devices = {128};                    // nodes, by type
//   problem.meshes = {{0, 1}, {0, 2}, {0, 4}};  // what a stage may have: {type, nodes}
//   problem.weights = {.slowest = 63};          // 64 micro-batches
//   problem.cost = [&](const StageRange& range, const Mesh& mesh, uint32_t from_end) { ... };
//   CORRO_ASSIGN(const StagePlan plan, place_stages(problem));
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "base/status.h"

namespace corro::plan {

/// A step is constant + slowest * (longest stage) + others * (sum over the stages but the last)
/// + last * (last stage), where the sums are over `fill` and the longest is over `time`. Of m
/// micro-batches under 1F1B, `slowest` is m - 1.
struct ScheduleWeights {
  double slowest = 0;
  double others = 1;
  double last = 1;
  double constant = 0;
};

/// Layers [begin, end).
struct StageRange {
  uint32_t begin;
  uint32_t end;
};

/// `units` devices (or nodes, whatever is counted) of one type.
struct Mesh {
  uint32_t type;
  uint32_t units;
};

/// Time of one micro-batch; infinite if the stage does not fit in memory.
struct StageCost {
  StageCost(double both) : time(both), fill(both) {}  // NOLINT(google-explicit-constructor)
  StageCost(double time_of_one, double fill_of_one) : time(time_of_one), fill(fill_of_one) {}

  double time;  ///< Of a micro-batch in the steady state.
  double fill;  ///< What the stage adds while the pipeline fills and drains; under 1F1B its time.
};

struct StageProblem {
  std::vector<uint32_t> runs;     ///< Layers by run: within one, layers are equal.
  std::vector<uint32_t> devices;  ///< Units by type, 1 to 3 types.
  std::vector<Mesh> meshes;       ///< What one stage may have.
  ScheduleWeights weights;
  uint32_t stages = 0;  ///< Exactly so many; 0 = any number.
  /// From this stage on, counted from the end, costs no longer change: micro-batches in flight
  /// under 1F1B are min(from_end, micro-batches).
  uint32_t last_class = std::numeric_limits<uint32_t>::max();
  /// Cost of these layers on this mesh as stage `from_end`, the last one being 1. Never negative,
  /// and no less for a greater from_end, which has more micro-batches in flight: what a quick
  /// choice finds less by counts as no less. Asked once for ranges that hold equally many layers of
  /// each run.
  std::function<StageCost(const StageRange& range, const Mesh& mesh, uint32_t from_end)> cost;
};

struct StagePlan {
  struct Stage {
    StageRange range;
    Mesh mesh;
    double time;
    double fill;
  };
  std::vector<Stage> stages;  ///< In the order of the layers.
  double step = 0;            ///< What ScheduleWeights says of them.
  double bound = 0;           ///< No plan of the problem takes less.
  bool exact = false;         ///< This one takes the least.
  size_t bounds_tried = 0;    ///< Limits of the longest stage that were solved.
  size_t costs_asked = 0;     ///< Calls of `cost`.
};

/// Ranges of layers grow with their square, each with costs of its own where no layers are equal.
inline constexpr size_t kMostStageLayers = 1024;
inline constexpr size_t kMostStageTypes = 3;  ///< Of devices.
/// Most layers x combinations of units: 16 bytes each, and as much again for each number of stages
/// that is in question, is the memory of a limit.
inline constexpr size_t kMostStageCells = size_t{1} << 23U;

struct StageOptions {
  /// Most limits of the longest stage to solve; beyond, `bound` says what may be left.
  size_t most_bounds = 256;
  /// Plans that take as long or longer are of no use: they are not looked for.
  double cut = std::numeric_limits<double>::infinity();
};

/// The best plan within the model: contiguous stages on any meshes that together take no more
/// than `devices`. INVALID_ARGUMENT for a problem without layers, devices, meshes or cost, with a
/// mesh of an unknown type or without units, and with more than kMostStageLayers or
/// kMostStageCells; RESOURCE_EXHAUSTED if no plan fits. With a cut the plan may
/// have no stages: then none takes less than `bound`, nor, if it is exact, than the cut. `cost` is
/// called on this thread.
[[nodiscard]] Result<StagePlan> place_stages(const StageProblem& problem,
                                             const StageOptions& options = {});

}  // namespace corro::plan
