// What a step costs when every stage of a pipeline is cut alike: time and memory, term by term.
//
//   CORRO_ASSIGN(const StageCoster costs, StageCoster::create(model, shape, machine));
//   const StageEstimate last = costs.estimate({90, 98}, 1, choice);
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "plan/cost/layer_cost.h"
#include "plan/model/model.h"
#include "plan/solve/memory_choice.h"
#include "plan/solve/stages.h"

namespace corro::plan {

/// Zero bubble splits backward: gradients of inputs go on at once, those of weights fill the gaps
/// (Qi et al., "Zero bubble pipeline parallelism", ICLR 2024; here by credits and priorities
/// alone).
enum class Schedule : uint8_t { kOneFOneB, kInterleaved, kGPipe, kZeroBubble };
inline constexpr int kScheduleCount = 4;
[[nodiscard]] constexpr std::string_view name_of(Schedule schedule) {
  constexpr std::string_view kNames[] = {"1f1b", "interleaved", "gpipe", "zero_bubble"};
  return kNames[static_cast<size_t>(schedule)];
}

/// What lies in host memory beside activations, each with what is before it. Optimizer state is
/// moved once a step, gradients and weights with every micro-batch (Ren et al., "ZeRO-Offload",
/// 2021, section 4; Rajbhandari et al., "ZeRO-Infinity", SC'21, sections 5 and 6).
enum class Offload : uint8_t { kOff, kOptimizer, kGradients, kWeights };
inline constexpr int kOffloadCount = 4;
[[nodiscard]] constexpr std::string_view name_of(Offload offload) {
  constexpr std::string_view kNames[] = {"off", "optimizer", "gradients", "weights"};
  return kNames[static_cast<size_t>(offload)];
}
/// "optimizer, gradients and weights".
[[nodiscard]] constexpr std::string_view what_moves(Offload offload) {
  constexpr std::string_view kTexts[] = {"nothing", "optimizer", "optimizer and gradients",
                                         "optimizer, gradients and weights"};
  return kTexts[static_cast<size_t>(offload)];
}

/// How a job is cut. Its ranks are numbered tensor first, then context, data, pipeline; experts
/// lie on ranks of the data axis.
struct JobShape {
  uint32_t tensor = 1;
  uint32_t context = 1;
  uint32_t expert = 1;
  uint32_t data = 1;
  uint32_t pipeline = 1;
  uint32_t micro_batch = 1;    ///< Samples of one micro-batch on one data-parallel rank.
  uint32_t micro_batches = 1;  ///< Of one step, on each of them.
  uint32_t chunks = 1;         ///< Pieces of the model that one stage has, interleaved.
  Schedule schedule = Schedule::kOneFOneB;
  uint32_t zero = 0;  ///< Shards over data-parallel ranks 1: optimizer state, 2: gradients, too,
                      ///< 3: weights, too (Rajbhandari et al., "ZeRO", SC'20).
  bool sequence_parallel = false;
  bool overlap = true;  ///< Gradients are reduced while backward goes on.
  Offload offload = Offload::kOff;
  double bucket = 0;  ///< Bytes of gradients reduced at a time; 0: what takes least.
  DType dtype = DType::kBF16;
  DType gradient_dtype = DType::kF32;  ///< In which gradients are summed up, reduced and kept.

  [[nodiscard]] uint32_t ranks() const { return tensor * context * data * pipeline; }
  /// Whether each rank can have this in its host's memory: gradients and weights if nobody else has
  /// the same, as ZeRO-Offload does with ZeRO 2, ZeRO-Infinity with ZeRO 3.
  [[nodiscard]] bool can_offload(Offload what) const {
    const bool alone = data * context == 1;
    return what <= Offload::kOptimizer || alone || zero >= (what == Offload::kGradients ? 2U : 3U);
  }
  bool operator==(const JobShape&) const = default;
};

/// Layers [begin, end) of the chain.
struct LayerRange {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const LayerRange&) const = default;
};

/// How many layers of each of the model's runs recompute what, within one stage.
using RecomputeCounts = std::vector<std::array<uint32_t, kRecomputeCount>>;

/// What runs beside computing slows it: a phase takes its longest lane and this part of the other
/// (planning.md 3c). An assumption; no published run shows it alone.
inline constexpr double kInterference = 0.15;

/// Seconds of `hidden` that show, when it runs beside `work`.
[[nodiscard]] inline double exposed(double hidden, double work) {
  return std::max(0.0, hidden - work) + kInterference * std::min(hidden, work);
}

/// Bytes on one device, the most that are held at a time.
struct MemoryUse {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;
  double activations = 0;  ///< Kept between forward and backward, of all micro-batches in flight.
  double transient = 0;    ///< Of the layer that goes backward, beyond what is kept by then.
  [[nodiscard]] double sum() const {
    return weights + gradients + optimizer + activations + transient;
  }
};

/// Seconds of one stage; of one micro-batch, unless a field says otherwise.
struct StageEstimate {
  double forward = 0;
  double backward = 0;
  double weight_part = 0;  ///< Of backward, the gradients of weights: nobody waits for them.
  double recompute = 0;
  double exchanges = 0;  ///< Of the three, what tensor, context and expert parallelism exchange.
  double weights = 0;    ///< Gathering and scattering of ZeRO 3 that is not hidden.
  double offload = 0;    ///< Moving to host memory and back that shows.
  double hops = 0;       ///< Receiving from the stage before and the one behind.
  double sync = 0;       ///< Per step: reducing gradients that backward does not hide.
  double reduce = 0;     ///< Per step: reducing gradients, hidden or not.
  double starts = 0;     ///< Of `reduce`, until the buckets' collectives are under way.
  double bucket = 0;     ///< Bytes of gradients that are reduced at a time.
  double host = 0;       ///< Bytes in host memory of each device.
  double update = 0;     ///< Per step: the optimizer.
  MemoryUse memory = {};

  /// In the steady state, a micro-batch takes so long.
  [[nodiscard]] double period() const {
    return forward + backward + recompute + weights + offload + hops;
  }
};

/// Costs of the layers of one job, asked by stage. Immutable.
class StageCoster {
 public:
  /// INVALID_ARGUMENT for a shape that cannot be (said why, with the layer's name).
  [[nodiscard]] static Result<StageCoster> create(const Model& model, const JobShape& shape,
                                                  const Machine& machine);

  /// The same layers in another shape, which cuts them alike: tensor, context, expert, micro-batch,
  /// dtype, sequence_parallel and the devices used of a host are equal. Copies no costs.
  [[nodiscard]] StageCoster reshaped(const JobShape& shape) const;

  /// `from_end`: 1 for the last stage. `recompute` has an entry for each run of the model.
  [[nodiscard]] StageEstimate estimate(const LayerRange& layers, uint32_t from_end,
                                       const RecomputeCounts& recompute) const;
  /// The least time that fits into `limit` bytes; nothing if none does. `bound` says below which
  /// period no choice gets.
  struct Choice {
    RecomputeCounts recompute;
    double bound = 0;
    double added = 0;  ///< Seconds of recomputing and moving.
  };
  /// `offloads`: activations may go to host memory, if can_offload().
  [[nodiscard]] std::optional<Choice> choose(const LayerRange& layers, uint32_t from_end,
                                             double limit, bool offloads = false) const;
  /// The hosts have a link to their memory, and memory for activations.
  [[nodiscard]] bool can_offload() const {
    return machine().host.to_host_memory.bandwidth > 0 && machine().host.host_memory > 0;
  }
  /// Bytes of host memory that one device may use; infinite if the cluster file does not say.
  [[nodiscard]] double host_limit() const {
    const double all = machine().host.host_memory;
    return all > 0 ? all / host_devices_ : std::numeric_limits<double>::infinity();
  }
  /// Seconds of moving a layer's activations to host memory and back.
  [[nodiscard]] double offload_seconds(uint32_t run) const {
    return 2 * layer(run).kept[0] / machine().host.to_host_memory.bandwidth;
  }
  /// Bytes in host memory of each device beside activations.
  [[nodiscard]] double host_states(const LayerRange& layers) const;
  /// Seconds of moving gradients to hosts and weights from there, of one micro-batch.
  [[nodiscard]] double states_seconds(const LayerRange& layers) const;
  /// Of each run, the ways to keep the activations of one micro-batch on the device.
  [[nodiscard]] const MemoryOptions& ways() const { return layers_->ways; }
  /// All layers of runs of several recompute everything, others nothing: Megatron's full recompute.
  [[nodiscard]] RecomputeCounts recompute_blocks(const LayerRange& layers) const;

  /// How often the slowest stage's period and every stage's fill() count in a step, but for its
  /// end.
  [[nodiscard]] ScheduleWeights weights() const;
  /// What a stage adds while the pipeline fills and drains, before it is weighed.
  [[nodiscard]] double fill(const StageEstimate& stage, bool last) const;
  /// Seconds of a step of these stages, the first one first.
  [[nodiscard]] double step_of(std::span<const StageEstimate> stages) const;
  /// Micro-batches whose activations a stage holds at a time.
  [[nodiscard]] double in_flight(uint32_t from_end) const;

  [[nodiscard]] const JobShape& shape() const { return shape_; }
  [[nodiscard]] const Machine& machine() const { return layers_->machine; }
  [[nodiscard]] uint32_t host_devices() const { return host_devices_; }
  [[nodiscard]] const LayerCost& layer(uint32_t run) const { return layers()[run]; }
  /// Layers of run `run` in the range.
  [[nodiscard]] uint32_t count(const LayerRange& layers, uint32_t run) const;
  [[nodiscard]] size_t runs() const { return layers().size(); }
  [[nodiscard]] uint32_t layers_of_run(uint32_t run) const {
    return layers_->first[run + 1] - layers_->first[run];
  }
  [[nodiscard]] uint32_t layer_total() const { return layers_->first.back(); }
  /// Bytes that do not depend on micro-batches: weights, gradients, optimizer.
  [[nodiscard]] MemoryUse fixed_memory(const LayerRange& layers) const;
  /// Of it, what each layer of the run adds; and what a stage needs once that has one of them.
  [[nodiscard]] double memory_of_each(uint32_t run) const;
  [[nodiscard]] double memory_in_passing(uint32_t run) const;
  /// Of what later layers of a stage kept of a micro-batch, bytes that are free when earlier ones
  /// go backward: all, but for a schedule in which gradients of weights wait (zero bubble).
  [[nodiscard]] double freed(double kept) const {
    return shape_.schedule == Schedule::kZeroBubble ? 0 : kept;
  }
  /// Seconds of receiving and sending between stages, of one micro-batch in one direction.
  [[nodiscard]] double hop(double bytes) const;

 private:
  /// What shapes that cut layers alike have in common.
  struct Layers {
    Machine machine;
    std::vector<uint32_t> first;   ///< Layer at which each run begins, and the end.
    std::vector<LayerCost> costs;  ///< By run.
    MemoryOptions ways;            ///< Of each run, how to keep a micro-batch on the device.
    double tied = 0;               ///< Elements that first and last layer share, on a device.
  };
  StageCoster(const JobShape& shape, std::shared_ptr<const Layers> layers);
  [[nodiscard]] const std::vector<LayerCost>& layers() const { return layers_->costs; }
  /// A group of data-parallel ranks.
  [[nodiscard]] GroupSpan along_data(uint32_t ranks, uint32_t stride) const {
    return placed_along(GroupAxis::kData, span_of(ranks, stride, host_devices_), machine());
  }
  void add_weights(StageEstimate& stage, double parameters) const;
  void add_sync(StageEstimate& stage, double sync, double starts, double bytes) const;
  void add_step_end(StageEstimate& stage, double parameters, double expert_parameters) const;
  struct Parameters {
    double all = 0;      ///< Elements on a device, experts' too.
    double experts = 0;  ///< Of them.
  };
  [[nodiscard]] Parameters parameters(const LayerRange& layers) const;
  /// Bytes that a device holds of some parameters, and what their layer adds while it runs.
  [[nodiscard]] MemoryUse states_of(const Parameters& all) const;
  [[nodiscard]] MemoryUse passing(uint32_t run) const;
  /// Elements of each device when ZeRO `level` shards them.
  [[nodiscard]] double held(const Parameters& all, uint32_t level) const;

  JobShape shape_;
  Traffic traffic_;
  uint32_t host_devices_;
  std::shared_ptr<const Layers> layers_;  ///< Shared with costers of other shapes, never changed.
};

}  // namespace corro::plan
