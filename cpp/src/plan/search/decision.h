// Decision: what the planner answers, with what proves it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "graph/plan.h"
#include "plan/cluster/cluster.h"
#include "plan/cost/step_cost.h"
#include "plan/model/model.h"

namespace corro::plan {

enum class Objective : uint8_t { kTime, kCost, kSamplesPerPrice };
inline constexpr int kObjectiveCount = 3;
[[nodiscard]] constexpr std::string_view name_of(Objective objective) {
  constexpr std::string_view kNames[] = {"time", "cost", "samples_per_price"};
  return kNames[static_cast<size_t>(objective)];
}

/// Who is to run the plan: what it can do bounds the search.
enum class Trainer : uint8_t {
  kCorro,     ///< The executor, whose lanes go by priority: no interleaving unless pinned.
  kMegatron,  ///< Has the interleaved order of SC'21.
};
inline constexpr int kTrainerCount = 2;
[[nodiscard]] constexpr std::string_view name_of(Trainer trainer) {
  return trainer == Trainer::kMegatron ? "megatron" : "corro";
}

/// What the user has decided; what is not set is the planner's to decide.
struct Pins {
  std::optional<uint32_t> tensor = {};
  std::optional<uint32_t> context = {};
  std::optional<uint32_t> expert = {};
  std::optional<uint32_t> data = {};
  std::optional<uint32_t> pipeline = {};
  std::optional<uint32_t> micro_batch = {};
  std::optional<uint32_t> chunks = {};
  std::optional<Schedule> schedule = {};
  std::optional<uint32_t> zero = {};
  std::optional<bool> sequence_parallel = {};
  std::optional<Recompute> recompute = {};  ///< Of all layers in runs of several.
  std::optional<bool> overlap = {};         ///< Not pinned: gradients are reduced beside backward.
  std::optional<Offload> offload = {};      ///< kOff: activations neither.
  std::optional<double> bucket = {};        ///< Bytes of gradients reduced at a time.
  std::optional<DType> dtype = {};
  std::optional<DType> gradient_dtype = {};  ///< Not pinned: f32.
};

struct Request {
  Model model = {};
  Cluster cluster = {};
  uint32_t global_batch = 0;  ///< Samples of a step; 0: see batch_of().
  double samples = 0;         ///< Of the whole training; 0: not known.
  double bytes_per_sample = 0;
  Objective objective = Objective::kTime;
  Trainer trainer = Trainer::kCorro;
  double memory_limit = 0;  ///< Bytes of a device that may be used; 0: 94 % of what it has.
  Pins pins = {};
  Calibration calibration = {};
  std::shared_ptr<const Profile> profile = {};  ///< Of one device type, all layers; null: none.
  uint32_t most_exact = 128;  ///< Shapes whose stages are solved exactly; the bound says the rest.
};

/// Ranks [first_device, first_device + devices) run layers [layers.begin, layers.end).
struct PlannedStage {
  LayerRange layers = {};
  uint32_t first_device = 0;  ///< In the cluster's numbering.
  uint32_t devices = 0;
  uint32_t type = 0;        ///< Of the cluster's device types.
  double memory_limit = 0;  ///< Bytes of each device that may be used; 0: the decision's.
  RecomputeCounts recompute = {};
  StageEstimate estimate = {};
};

/// Seconds of a step, by what takes them: they sum up to it.
struct StepTerms {
  double compute = 0;  ///< Of the slowest stage, all micro-batches, without recomputing.
  double recompute = 0;
  double exchanges = 0;  ///< Tensor, context and expert parallelism.
  double weights = 0;    ///< ZeRO 3.
  double offload = 0;    ///< What goes to host memory and back.
  double hops = 0;       ///< Between stages.
  double bubble = 0;     ///< The slowest stage waits while the pipeline fills and drains.
  double sync = 0;       ///< Gradients.
  double update = 0;     ///< The optimizer.
  [[nodiscard]] double sum() const {
    return compute + recompute + exchanges + weights + offload + hops + bubble + sync + update;
  }
};

struct Candidate {
  JobShape shape = {};
  std::vector<PlannedStage> stages = {};
  double step = 0;       ///< Seconds, by the formulas of step_cost.
  double simulated = 0;  ///< Seconds, by the executor in virtual time; 0: not simulated.
  double price = 0;      ///< Of a step; 0: prices are not known.
  double unplaced = 0;   ///< Seconds of a step with rank i on device i, if it is placed otherwise.
  std::vector<uint32_t> placement = {};  ///< A device for each rank; empty: rank i on device i.
  StepTerms terms = {};
};

struct Decision {
  Candidate best = {};
  std::optional<Candidate> runner_up = {};  ///< The best of another shape.
  std::string why = {};                     ///< One sentence: what the best one gains over it.
  std::string limit = {};                   ///< What binds: "computing", "memory of stage 0", ...
  Objective objective = Objective::kTime;   ///< What was made least.
  double bound = 0;  ///< Seconds that no plan of the search space beats. Where a price was made
                     ///< least, its bound as a part of the step: step * (1 - gap).
  double gap = 0;    ///< 1 - bound / step.
  uint64_t memory_proof = 0;  ///< Bytes of the fullest device, all of MemoryUse summed.
  double memory_limit = 0;    ///< Bytes; of the first pool's devices, where pools differ.
  uint32_t global_batch = 0;
  double hours = 0;        ///< To the end of all samples; 0: samples are not known.
  double cost = 0;         ///< The same in the cluster's currency; 0: prices are not known.
  double eta = 0;          ///< Fraction of the devices' peak that computes the model (MFU).
  double lambda = 0;       ///< Bytes/s that storage has to deliver.
  uint32_t shapes = 0;     ///< Looked at.
  uint32_t bounded = 0;    ///< Of them, bounded on their own: the others were by their family.
  uint32_t exact = 0;      ///< Of them, with stages solved exactly.
  uint64_t costed = 0;     ///< Stages that were costed for that.
  graph::Plan graph = {};  ///< One micro-batch a generation: what the executor runs.
};

}  // namespace corro::plan
