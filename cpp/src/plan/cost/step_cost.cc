// A step = the slowest stage (m - 1) times + every stage once + what comes at its end.
//
// One forward and one backward of every stage are the pipeline's filling and draining (1F1B, GPipe:
// Narayanan et al., SC'21, §2.2); with v chunks a stage hands on after a v-th of its work, so all
// but the last add a v-th of it, and v times as many hops. Hops are not hidden: a stage waits for
// what it receives. Gradients are reduced in a ring over all data-parallel ranks, bucket by bucket
// beside the backward pass if `overlap` says so; the last bucket can never be.
#include "plan/cost/step_cost.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace corro::plan {
namespace {

/// Bytes of an element while training with Adam in mixed precision, or wholly in four bytes.
struct ElementBytes {
  double weight;
  double gradient;
  double state;
};

ElementBytes bytes_of(const JobShape& shape) {
  const bool mixed = size_of(shape.dtype) < 4;
  return {.weight = mixed ? 2.0 : 4.0,
          .gradient = static_cast<double>(size_of(shape.gradient_dtype)),
          .state = mixed ? 12.0 : 8.0};
}

/// Elements that the optimizer reads and writes for each parameter: weight, gradient, master,
/// two moments, in and out: 40 bytes.
constexpr double kUpdateBytes = 40;

MemoryOptions ways_to_keep(const std::vector<LayerCost>& costs) {
  std::vector<std::vector<LayerOption>> ways;
  for (const LayerCost& cost : costs) {
    ways.emplace_back();
    for (size_t how = 0; how < static_cast<size_t>(Recompute::kOffload); ++how) {
      ways.back().push_back({cost.recompute[how], cost.kept[how]});
    }
  }
  return MemoryOptions(std::move(ways));
}

/// Of a host, those that the job uses.
uint32_t host_devices_of(const JobShape& shape, const Machine& machine) {
  return std::max(1U, std::min(machine.host.devices, shape.ranks()));
}

}  // namespace

StageCoster::StageCoster(const JobShape& shape, std::shared_ptr<const Layers> layers)
    : shape_(shape),
      traffic_(layers->machine.host, layers->machine.between_hosts, layers->machine.calibration),
      host_devices_(host_devices_of(shape, layers->machine)),
      layers_(std::move(layers)) {}

Result<StageCoster> StageCoster::create(const Model& model, const JobShape& shape,
                                        const Machine& machine) {
  const LayerCut cut{.tensor = shape.tensor,
                     .context = shape.context,
                     .expert = shape.expert,
                     .sequence_parallel = shape.sequence_parallel && shape.tensor > 1,
                     .micro_batch = static_cast<double>(shape.micro_batch),
                     .dtype = shape.dtype,
                     .host_devices = host_devices_of(shape, machine)};
  double input = 0;
  std::vector<uint32_t> first{0};
  std::vector<LayerCost> costs;
  for (const LayerRun& run : model.layers) {
    const LayerType& type = model.types[run.type];
    auto cost = cost_of_layer(type, input, cut, machine);
    if (!cost) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("layer \"{}\" cannot be cut {} ways by tensors, {} by experts, for {}",
                      type.name, shape.tensor, shape.expert, name_of(shape.dtype)));
    }
    costs.push_back(*std::move(cost));
    first.push_back(first.back() + run.count);
    input = type.operators.empty() ? input : type.operators.back().output;
  }
  MemoryOptions ways = ways_to_keep(costs);
  return StageCoster(shape, std::make_shared<const Layers>(Layers{
                                .machine = machine,
                                .first = std::move(first),
                                .costs = std::move(costs),
                                .ways = std::move(ways),
                                .tied = static_cast<double>(model.tied_parameters) / shape.tensor,
                            }));
}

StageCoster StageCoster::reshaped(const JobShape& shape) const {
  StageCoster other = *this;
  other.shape_ = shape;
  return other;
}

uint32_t StageCoster::count(const LayerRange& layers, uint32_t run) const {
  const uint32_t begin = std::max(layers.begin, layers_->first[run]);
  const uint32_t end = std::min(layers.end, layers_->first[run + 1]);
  return end > begin ? end - begin : 0;
}

StageCoster::Parameters StageCoster::parameters(const LayerRange& layers) const {
  Parameters sum;
  for (uint32_t run = 0; run < runs(); ++run) {
    const double n = count(layers, run);
    sum.all += n * (layer(run).parameters + layer(run).expert_parameters);
    sum.experts += n * layer(run).expert_parameters;
  }
  const bool both_ends = layers.begin == 0 && layers.end == layer_total();
  if (both_ends) sum.all -= layers_->tied;
  return sum;
}

double StageCoster::in_flight(uint32_t from_end) const {
  const double most = shape_.micro_batches;
  if (shape_.schedule == Schedule::kGPipe) return most;
  if (shape_.schedule == Schedule::kZeroBubble) {
    // As 1F1B's, and what waits for its gradients of weights (plan_graph.cc has these credits).
    // No more than there are: else a stage could hold more than the one before it.
    return std::min(shape_.pipeline + 1.0, most);
  }
  if (shape_.chunks <= 1) return std::min<double>(from_end, most);
  // In units of a stage's activations (Korthikanti et al., 2022, §4.2.3), for the first stage; a
  // stage nearer to the end holds one less for each stage between.
  const double p = shape_.pipeline;
  const double first = p * (1 + (p - 1) / (p * shape_.chunks));
  return std::min(most, first - (p - from_end));
}

/// Each element is divided among the ranks that have the same.
double StageCoster::held(const Parameters& all, uint32_t level) const {
  if (shape_.zero < level) return all.all;
  const double ranks = static_cast<double>(shape_.data) * shape_.context;
  const double expert_ranks = std::max(1.0, ranks / shape_.expert);
  return (all.all - all.experts) / ranks + all.experts / expert_ranks;
}

MemoryUse StageCoster::states_of(const Parameters& all) const {
  const ElementBytes bytes = bytes_of(shape_);
  const auto here = [&](Offload level) { return shape_.offload < level ? 1.0 : 0.0; };
  return {.weights = here(Offload::kWeights) * bytes.weight * held(all, 3),
          .gradients = here(Offload::kGradients) * bytes.gradient * held(all, 2),
          .optimizer = here(Offload::kOptimizer) * bytes.state * held(all, 1)};
}

/// One layer's weights while it runs, and the next one's, which are on their way, where a device
/// has not all of them; and gradients likewise, where they go to host memory.
MemoryUse StageCoster::passing(uint32_t run) const {
  const ElementBytes bytes = bytes_of(shape_);
  const double two = 2 * (layer(run).parameters + layer(run).expert_parameters);
  const bool gathers = shape_.zero == 3 || shape_.offload >= Offload::kWeights;
  return {.weights = gathers ? two * bytes.weight : 0,
          .gradients = shape_.offload >= Offload::kGradients ? two * bytes.gradient : 0};
}

MemoryUse StageCoster::fixed_memory(const LayerRange& layers) const {
  MemoryUse use = states_of(parameters(layers));
  MemoryUse most;
  for (uint32_t run = 0; run < runs(); ++run) {
    if (count(layers, run) == 0) continue;
    const MemoryUse here = passing(run);
    most.weights = std::max(most.weights, here.weights);
    most.gradients = std::max(most.gradients, here.gradients);
  }
  use.weights += most.weights;
  use.gradients += most.gradients;
  return use;
}

double StageCoster::memory_of_each(uint32_t run) const {
  const LayerCost& cost = layer(run);
  return states_of(
             {.all = cost.parameters + cost.expert_parameters, .experts = cost.expert_parameters})
      .sum();
}

double StageCoster::memory_in_passing(uint32_t run) const { return passing(run).sum(); }

double StageCoster::host_states(const LayerRange& layers) const {
  const Parameters all = parameters(layers);
  const ElementBytes bytes = bytes_of(shape_);
  double sum = 0;
  if (shape_.offload >= Offload::kOptimizer) sum += bytes.state * held(all, 1);
  if (shape_.offload >= Offload::kGradients) sum += bytes.gradient * held(all, 2);
  if (shape_.offload >= Offload::kWeights) sum += bytes.weight * held(all, 3);
  return sum;
}

/// A rank's own part goes over its own link, whatever is gathered and scattered among devices
/// (ZeRO-Infinity, section 6.1): weights come for forward and for backward, gradients leave.
double StageCoster::states_seconds(const LayerRange& layers) const {
  if (shape_.offload < Offload::kGradients) return 0;
  const Parameters all = parameters(layers);
  const ElementBytes bytes = bytes_of(shape_);
  const double weights = shape_.offload >= Offload::kWeights ? 2 * bytes.weight * held(all, 3) : 0;
  return (bytes.gradient * held(all, 2) + weights) / machine().host.to_host_memory.bandwidth;
}

StageEstimate StageCoster::estimate(const LayerRange& layers, uint32_t from_end,
                                    const RecomputeCounts& recompute) const {
  StageEstimate stage;
  stage.memory = fixed_memory(layers);
  double boundary = 0;
  double received = 0;
  double moved = states_seconds(layers);
  for (uint32_t run = 0; run < runs(); ++run) {
    const LayerCost& cost = layer(run);
    const double n = count(layers, run);
    if (n == 0) continue;
    stage.forward += n * cost.forward;
    stage.backward += n * cost.backward;
    stage.weight_part += n * cost.weight_part();
    stage.exchanges += n * (cost.forward_traffic + cost.backward_traffic);
    // One layer goes backward at a time, and later runs' have been through. What moves has one
    // layer's activations more on their way.
    double needed = cost.gradient;
    double kept = 0;
    for (size_t how = 0; how < kRecomputeCount; ++how) {
      const double some = recompute[run][how];
      stage.recompute += some * cost.recompute[how];
      kept += some * cost.kept[how];
      if (some == 0) continue;
      const bool moves = how == static_cast<size_t>(Recompute::kOffload);
      needed = std::max(needed, cost.gradient + cost.kept[0] * (moves ? 2 : 1) - cost.kept[how]);
      if (moves) {
        stage.host += some * cost.kept[0] * in_flight(from_end);
        moved += some * offload_seconds(run);
      }
      if (how == static_cast<size_t>(Recompute::kFull)) {
        stage.exchanges += some * cost.forward_traffic;
      }
    }
    stage.memory.activations += kept * in_flight(from_end);
    stage.memory.transient = std::max(needed, stage.memory.transient - freed(kept));
    if (layers.begin >= layers_->first[run] && layers.begin < layers_->first[run + 1]) {
      received =
          layers.begin > layers_->first[run] || run == 0 ? cost.boundary : layer(run - 1).boundary;
    }
    boundary = cost.boundary;
  }
  if (shape_.pipeline > 1) {
    const bool last = layers.end == layer_total();
    const double back = layers.begin > 0 ? received : boundary;
    stage.hops = shape_.chunks * (hop(back) + hop(last ? received : boundary));
  }
  stage.offload = exposed(moved, stage.forward + stage.backward);
  const Parameters all = parameters(layers);
  stage.host += host_states(layers);
  add_weights(stage, all.all - all.experts);
  add_step_end(stage, all.all - all.experts, all.experts);
  return stage;
}

/// The first of n buckets is full after an n-th of backward, and the last one has none left to run
/// beside: shown are wire / n + start + exposed((1 - 1/n) wire + (n - 1) start, (1 - 1/n)
/// backward). That is the greater of two sums of a part that falls with n and one that grows, so
/// its minimum is at one of their own or where they meet. (PyTorch DDP's 25 MB are such a
/// compromise, too: Li et al., "PyTorch distributed", VLDB 2020, section 3.2.3.)
void StageCoster::add_sync(StageEstimate& stage, double sync, double starts, double bytes) const {
  stage.reduce = sync;
  stage.starts = starts;
  stage.sync = sync;
  if (!shape_.overlap || sync <= 0 || bytes <= 0) return;
  const double wire = sync - starts;
  const double visible = 1 - kInterference;
  const auto shown = [&](double n) {
    const double part = 1 - 1 / n;
    return wire / n + starts + exposed(part * wire + (n - 1) * starts, part * stage.backward);
  };
  double buckets = shape_.bucket > 0 ? std::ceil(bytes / shape_.bucket) : 0;
  if (buckets == 0) {
    buckets = 1;
    for (const double turn :
         {std::sqrt(visible * wire / (kInterference * starts)),
          std::sqrt(visible * stage.backward / starts), (stage.backward - wire) / starts}) {
      for (const double n : {std::floor(turn), std::ceil(turn)}) {
        if (n >= 1 && shown(n) < shown(buckets)) buckets = n;
      }
    }
  }
  stage.bucket = bytes / buckets;
  stage.starts = buckets * starts;
  stage.reduce = wire + stage.starts;
  stage.sync = shown(buckets);
}

double StageCoster::hop(double bytes) const {
  // Tensor-parallel ranks send a part each and gather it (scatter/gather, SC'21 §4.1).
  const double part = shape_.sequence_parallel ? 1 : shape_.tensor;
  const bool across = shape_.tensor * shape_.context * shape_.data >= host_devices_;
  return traffic_.send(bytes / part, across, host_devices_,
                       machine().placed[static_cast<size_t>(GroupAxis::kPipeline)]);
}

/// ZeRO 2 scatters gradients after every micro-batch, since it has no room for all of their sum;
/// ZeRO 3 gathers weights before forward and backward, too. Both go beside what is computed.
void StageCoster::add_weights(StageEstimate& stage, double parameters) const {
  if (shape_.zero < 2) return;
  const GroupSpan span = along_data(shape_.data * shape_.context, shape_.tensor);
  const ElementBytes bytes = bytes_of(shape_);
  const double gather = traffic_.allgather(parameters * bytes.weight, span);
  const double scatter = traffic_.allgather(parameters * bytes.gradient, span);
  const double work = stage.forward + stage.backward + stage.recompute - stage.exchanges;
  const double all = (shape_.zero == 3 ? 2 * gather : 0) + scatter;
  stage.weights = shape_.overlap ? exposed(all, work) : all;
}

void StageCoster::add_step_end(StageEstimate& stage, double parameters,
                               double expert_parameters) const {
  const uint32_t ranks = shape_.data * shape_.context;
  const uint32_t expert_ranks = std::max(1U, ranks / shape_.expert);
  const ElementBytes bytes = bytes_of(shape_);
  const auto reduce = [&](double elements, const GroupSpan& span) {
    if (shape_.zero == 0) return traffic_.allreduce(elements * bytes.gradient, span);
    return traffic_.allgather(elements * bytes.gradient, span) +
           traffic_.allgather(elements * bytes.weight, span);
  };
  double dense = 0;
  const GroupSpan span = along_data(ranks, shape_.tensor);
  if (shape_.zero < 2) dense = reduce(parameters, span);
  if (shape_.zero == 2) dense = traffic_.allgather(parameters * bytes.weight, span);
  const double experts =
      reduce(expert_parameters, along_data(expert_ranks, shape_.tensor * shape_.expert));
  const double starts = machine().calibration.collective_seconds * ((dense > 0) + (experts > 0));
  const double reduced = (dense > 0 ? parameters : 0) + (experts > 0 ? expert_parameters : 0);
  add_sync(stage, dense + experts, starts, reduced * bytes.gradient);
  const double updated = shape_.zero >= 1 ? parameters / ranks + expert_parameters / expert_ranks
                                          : parameters + expert_parameters;
  const double bandwidth =
      machine().device.memory_bandwidth * machine().calibration.memory_efficiency;
  const Profile* profile = machine().profile.get();
  const bool measured = profile != nullptr && profile->dtype == shape_.dtype;
  stage.update = updated * (measured ? profile->update : kUpdateBytes / bandwidth);
  if (shape_.offload == Offload::kOff) return;
  // Gradients go to host memory, new weights come back, unless micro-batches have moved them; the
  // processor's share is its memory's.
  const double lane = machine().host.to_host_memory.bandwidth;
  const double moved = (shape_.offload < Offload::kGradients ? bytes.gradient : 0) +
                       (shape_.offload < Offload::kWeights ? bytes.weight : 0);
  stage.update = updated * moved / lane + updated * kUpdateBytes / (4 * lane);
}

RecomputeCounts StageCoster::recompute_blocks(const LayerRange& layers) const {
  RecomputeCounts counts(runs());
  for (uint32_t run = 0; run < runs(); ++run) {
    const bool block = layers_->first[run + 1] - layers_->first[run] > 1;
    counts[run][static_cast<size_t>(block ? Recompute::kFull : Recompute::kNone)] =
        count(layers, run);
  }
  return counts;
}

/// A stage hands on after a v-th of its work, and v times. Zero bubble: the slowest stage runs
/// through, and the last one adds nothing of its own. The paper's fill is shorter by another
/// weight_part; lanes that go by priority do not reach it, since one that has just begun gradients
/// of weights is late for what arrives meanwhile (search_test simulates it).
ScheduleWeights StageCoster::weights() const {
  const double m = shape_.micro_batches;
  if (shape_.schedule == Schedule::kZeroBubble) return {.slowest = m, .others = 1, .last = 0};
  return {.slowest = m - 1, .others = 1.0 / shape_.chunks, .last = 1};
}

double StageCoster::fill(const StageEstimate& stage, bool last) const {
  const bool splits = shape_.schedule == Schedule::kZeroBubble;
  const double work = stage.period() - stage.hops - (splits ? stage.weight_part : 0);
  return last ? work : work + shape_.chunks * stage.hops;
}

double StageCoster::step_of(std::span<const StageEstimate> stages) const {
  const ScheduleWeights weight = weights();
  double slowest = 0;
  double filling = 0;
  double end = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    const bool last = s + 1 == stages.size();
    slowest = std::max(slowest, stages[s].period());
    filling += (last ? weight.last : weight.others) * fill(stages[s], last);
    end = std::max(end, stages[s].sync + stages[s].update);
  }
  return weight.slowest * slowest + filling + end;
}

}  // namespace corro::plan
