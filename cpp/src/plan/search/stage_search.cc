// Stages of one shape. Every stage takes a unit, tensor x context x data devices of one pool; the
// stage program (plan/solve) finds the best contiguous cut on units of any pools.
//
// The two bounds relax that. The quick one divides all work evenly and forgets memory. The
// fractional one asks for the least period tau for which the stages together can hold all layers of
// the model's largest run, when a stage may hold a fraction of a layer and mix its recomputations:
// n_s(tau) layers fit into stage s by time and by memory (plan/search/fractions.h), and the n_s
// have to sum up to the run's layers. Both leave out what they cannot place, so neither is ever
// above the best stages' step.
#include "plan/search/stage_search.h"

#include <algorithm>
#include <cmath>

#include "plan/search/fractions.h"
#include "plan/solve/stages.h"

namespace corro::plan {
namespace {

constexpr double kUsable = 0.94;  ///< Of a device's memory; the rest is the framework's.

/// Devices of a stage.
uint32_t unit_of(const JobShape& shape) { return shape.tensor * shape.context * shape.data; }

uint32_t largest_run(const StageCoster& costs) {
  uint32_t best = 0;
  double most = -1;
  for (uint32_t run = 0; run < costs.runs(); ++run) {
    const LayerCost& cost = costs.layer(run);
    const double work = costs.layers_of_run(run) * (cost.forward + cost.backward);
    if (work > most) best = run;
    most = std::max(most, work);
  }
  return best;
}

/// With what ZeRO's scatters and gathers, and weights and gradients in host memory, show if one
/// stage had all layers. exposed() is convex and homogeneous, so several stages show no less
/// together, nor with activations that move, too; recomputing hides less than it adds.
double all_work(const StageCoster& costs) {
  double work = 0;
  if (costs.shape().zero >= 2 || costs.shape().offload >= Offload::kGradients) {
    const LayerRange all{0, costs.layer_total()};
    const StageEstimate whole = costs.estimate(all, 1, RecomputeCounts(costs.runs()));
    work = whole.weights + whole.offload;
  }
  for (uint32_t run = 0; run < costs.runs(); ++run) {
    const LayerCost& cost = costs.layer(run);
    work += costs.layers_of_run(run) * (cost.forward + cost.backward);
  }
  return work;
}

/// What all layers add while the pipeline fills and drains, at least.
double all_fill(const StageCoster& costs) {
  const JobShape& shape = costs.shape();
  double fill = all_work(costs) / shape.chunks;
  if (shape.schedule != Schedule::kZeroBubble) return fill;
  for (uint32_t run = 0; run < costs.runs(); ++run) {
    fill -= costs.layers_of_run(run) * costs.layer(run).weight_part();
  }
  return std::max(0.0, fill);
}

double least_hops(const StageCoster& costs) {
  const JobShape& shape = costs.shape();
  if (shape.pipeline == 1) return 0;
  double least = kInfeasible;
  for (uint32_t run = 0; run < costs.runs(); ++run) {
    const double boundary = costs.layer(run).boundary;
    // A loss is no boundary between stages.
    if (run + 1 < costs.runs()) least = std::min(least, costs.hop(boundary));
  }
  return least == kInfeasible ? 0 : 2 * shape.chunks * least;
}

}  // namespace

StageSearch::StageSearch(const Request& request, const std::vector<Pool>& pools)
    : request_(request), pools_(pools), shaped_(pools.size()) {
  last_.tensor = 0;
}

double StageSearch::limit_of(const Pool& pool) const {
  const double usable = kUsable * pool.machine.device.memory;
  return request_.memory_limit > 0 ? std::min(request_.memory_limit, pool.machine.device.memory)
                                   : usable;
}

const StageCoster* StageSearch::coster(const JobShape& shape, uint32_t pool) {
  if (!(shape == last_)) {
    last_ = shape;
    shaped_.assign(pools_.size(), std::nullopt);
  }
  if (shaped_[pool]) return &*shaped_[pool];
  const uint32_t used = std::min(pools_[pool].machine.host.devices, shape.ranks());
  const Cut cut{pool,
                shape.tensor,
                shape.context,
                shape.expert,
                shape.micro_batch,
                shape.sequence_parallel,
                shape.dtype,
                used};
  const auto [found, is_new] = by_cut_.try_emplace(cut);
  if (is_new) {
    auto made = StageCoster::create(request_.model, shape, pools_[pool].machine);
    if (made.ok()) found->second = *std::move(made);
  }
  if (!found->second) return nullptr;
  shaped_[pool] = found->second->reshaped(shape);
  return &*shaped_[pool];
}

/// Of the stages some device updates and reduces a p-th of it all at least.
double StageSearch::end_bound(const StageCoster& costs) const {
  const LayerRange all{0, costs.layer_total()};
  const StageEstimate whole = costs.estimate(all, 1, RecomputeCounts(costs.runs()));
  return (whole.sync + whole.update) / costs.shape().pipeline;
}

double StageSearch::family_bound(const JobShape& family) {
  JobShape shape = family;
  shape.schedule = family.pipeline > 1 ? Schedule::kZeroBubble : Schedule::kOneFOneB;
  return even_work(shape, 0);
}

double StageSearch::quick_bound(const JobShape& shape) {
  double end = kInfeasible;
  for (uint32_t pool = 0; pool < pools_.size(); ++pool) {
    const StageCoster* costs = coster(shape, pool);
    if (costs == nullptr || pools_[pool].devices < unit_of(shape)) continue;
    if (pools_.size() == 1 && lacks_on_hosts(shape) > 0) return kInfeasible;
    end = std::min(end, end_bound(*costs));
  }
  return end < kInfeasible ? even_work(shape, end) : kInfeasible;
}

/// Seconds of a step that divides all work evenly, and ends so.
double StageSearch::even_work(const JobShape& shape, double end) {
  const uint32_t unit = unit_of(shape);
  double hops = kInfeasible;
  double fill = kInfeasible;
  std::vector<std::pair<double, uint32_t>> stages;  // Work if it were all there, and how many.
  for (uint32_t pool = 0; pool < pools_.size(); ++pool) {
    const StageCoster* costs = coster(shape, pool);
    const uint32_t units = pools_[pool].devices / unit;
    if (costs == nullptr || units == 0) continue;
    stages.emplace_back(all_work(*costs), units);
    hops = std::min(hops, least_hops(*costs));
    fill = std::min(fill, all_fill(*costs));
  }
  std::ranges::sort(stages);
  // The fastest units do as much of the work in a period as they can.
  double rate = 0;
  uint32_t left = shape.pipeline;
  for (const auto& [work, units] : stages) {
    rate += std::min(units, left) / work;
    left -= std::min(units, left);
  }
  if (left > 0) return kInfeasible;
  return (shape.micro_batches - 1.0) * (1 / rate + hops) + fill + (shape.pipeline - 1.0) * hops +
         end;
}

double StageSearch::fractional_bound(const JobShape& shape) {
  const double quick = quick_bound(shape);
  if (quick == kInfeasible) return quick;
  std::vector<PoolOfFractions> pools;
  double rate = 0;  // Of all work, if every stage were on the fastest units.
  double hops = kInfeasible;
  double fill = kInfeasible;
  double end = kInfeasible;
  double high = 0;
  std::optional<uint32_t> run;  // The same on every pool.
  uint32_t layers = 0;
  for (uint32_t pool = 0; pool < pools_.size(); ++pool) {
    const StageCoster* costs = coster(shape, pool);
    const uint32_t units = pools_[pool].devices / unit_of(shape);
    if (costs == nullptr || units == 0) continue;
    if (!run) run = largest_run(*costs);
    layers = costs->layers_of_run(*run);
    pools.push_back(fractions_of(*costs, *run, units, limit_of(pools_[pool])));
    rate = std::max(rate, 1 / all_work(*costs));
    hops = std::min(hops, least_hops(*costs));
    fill = std::min(fill, all_fill(*costs));
    end = std::min(end, end_bound(*costs));
    high = std::max(high, layers * pools.back().ways.front().seconds);
  }
  const auto holds_all = [&](double period) {
    return layers_held(pools, shape.pipeline, period) >= layers;
  };
  if (!holds_all(high)) return kInfeasible;
  if (pools.size() == 1) fill += least_slowing(pools[0], layers, shape.pipeline) / shape.chunks;
  double low = 1 / (rate * shape.pipeline);
  if (holds_all(low)) high = low;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (holds_all(middle) ? high : low) = middle;
  }
  return std::max(quick, (shape.micro_batches - 1.0) * (low + hops) + fill +
                             (shape.pipeline - 1.0) * hops + end);
}

/// The pool's units as holders of fractions of a run's layers.
PoolOfFractions StageSearch::fractions_of(const StageCoster& costs, uint32_t run, uint32_t units,
                                          double limit) const {
  const LayerCost& cost = costs.layer(run);
  const uint32_t layers = costs.layers_of_run(run);
  const double others = all_work(costs) - layers * (cost.forward + cost.backward);
  PoolOfFractions pool{
      .ways = ways_of(costs, run, others, offloads(costs)),
      .flights = {},
      // Elements that the first and the last layer share are in the stage of both once.
      .fixed = layers == costs.layer_total() ? 0 : costs.memory_of_each(run),
      .limit = limit - costs.memory_in_passing(run),
      .units = units};
  for (uint32_t s = 1; s <= costs.shape().pipeline; ++s) pool.flights.push_back(costs.in_flight(s));
  return pool;
}

/// Activations may go to host memory.
bool StageSearch::offloads(const StageCoster& costs) const {
  const bool pinned = request_.pins.recompute == Recompute::kOffload;
  const bool free = !request_.pins.recompute && request_.trainer == Trainer::kCorro &&
                    request_.pins.offload != Offload::kOff;
  return (pinned || free) && costs.can_offload();
}

std::optional<StageSearch::Stage> StageSearch::stage_of(const StageCoster& costs,
                                                        const LayerRange& layers, uint32_t from_end,
                                                        double limit) const {
  if (!request_.pins.recompute) {
    auto choice = costs.choose(layers, from_end, limit, offloads(costs));
    if (!choice) return std::nullopt;
    StageEstimate estimate = costs.estimate(layers, from_end, choice->recompute);
    return Stage{layers, estimate, std::move(choice->recompute)};
  }
  RecomputeCounts recompute(costs.runs());
  for (uint32_t run = 0; run < costs.runs(); ++run) {
    const bool block = costs.layers_of_run(run) > 1;
    recompute[run][block ? static_cast<size_t>(*request_.pins.recompute) : 0] =
        costs.count(layers, run);
  }
  StageEstimate estimate = costs.estimate(layers, from_end, recompute);
  if (estimate.memory.sum() > limit) return std::nullopt;
  if (estimate.host > costs.host_limit()) return std::nullopt;
  return Stage{layers, estimate, std::move(recompute)};
}

PlannedStage StageSearch::planned(const Stage& stage, const JobShape& shape, uint32_t pool,
                                  uint32_t place) const {
  const uint32_t unit = unit_of(shape);
  return {.layers = stage.layers,
          .first_device = pools_[pool].first_device + place * unit,
          .devices = unit,
          .type = pools_[pool].type,
          .memory_limit = limit_of(pools_[pool]),
          .recompute = stage.recompute,
          .estimate = stage.estimate};
}

StageSearch::Solved StageSearch::solve(const JobShape& shape, double cut) {
  StageProblem problem;
  for (const LayerRun& run : request_.model.layers) problem.runs.push_back(run.count);
  std::vector<const StageCoster*> costs;
  const StageCoster* any = nullptr;
  double end = kInfeasible;
  for (uint32_t pool = 0; pool < pools_.size(); ++pool) {
    costs.push_back(coster(shape, pool));
    const uint32_t units = costs.back() == nullptr ? 0 : pools_[pool].devices / unit_of(shape);
    problem.devices.push_back(std::min(units, shape.pipeline));
    if (units > 0) problem.meshes.push_back({pool, 1});
    if (costs.back() == nullptr) continue;
    any = costs.back();
    end = std::min(end, end_bound(*any));
  }
  Solved solved{.best = {}, .bound = kInfeasible};
  if (problem.meshes.empty()) return solved;
  problem.weights = any->weights();
  problem.stages = shape.pipeline;
  problem.last_class = std::min(shape.pipeline, shape.micro_batches);
  if (shape.schedule != Schedule::kOneFOneB) problem.last_class = shape.pipeline;
  const auto stage_at = [&](const StageRange& range, uint32_t pool, uint32_t from_end) {
    return stage_of(*costs[pool], {range.begin, range.end}, from_end, limit_of(pools_[pool]));
  };
  problem.cost = [&](const StageRange& range, const Mesh& mesh, uint32_t from_end) -> StageCost {
    ++costed_;
    const auto stage = stage_at(range, mesh.type, from_end);
    if (!stage) return kInfeasible;
    return {stage->estimate.period(), costs[mesh.type]->fill(stage->estimate, from_end == 1)};
  };
  const auto placed = place_stages(problem, {.most_bounds = 64, .cut = cut - end});
  if (!placed.ok()) return solved;
  solved.bound = placed->bound + end;
  if (placed->stages.empty()) return solved;
  Candidate candidate{.shape = shape};
  std::vector<uint32_t> used(pools_.size());
  for (size_t s = 0; s < placed->stages.size(); ++s) {
    const uint32_t pool = placed->stages[s].mesh.type;
    const auto from_end = static_cast<uint32_t>(placed->stages.size() - s);
    const auto stage = stage_at(placed->stages[s].range, pool, from_end);
    candidate.stages.push_back(planned(*stage, shape, pool, used[pool]++));
  }
  finish(candidate, *any);
  solved.best = std::move(candidate);
  return solved;
}

std::optional<Candidate> StageSearch::cost_of(const JobShape& shape,
                                              const std::vector<uint32_t>& firsts) {
  const StageCoster* costs = coster(shape, 0);
  const bool ascending = std::ranges::is_sorted(firsts, std::less_equal<>());
  const uint32_t layers = layer_count(request_.model);
  if (costs == nullptr || firsts.size() != shape.pipeline || firsts.front() != 0 || !ascending ||
      firsts.back() >= layers) {
    return std::nullopt;
  }
  Candidate candidate{.shape = shape};
  for (uint32_t s = 0; s < firsts.size(); ++s) {
    const LayerRange range{firsts[s], s + 1 < firsts.size() ? firsts[s + 1] : layers};
    const auto stage = stage_of(*costs, range, shape.pipeline - s, limit_of(pools_[0]));
    if (!stage) return std::nullopt;
    candidate.stages.push_back(planned(*stage, shape, 0, s));
  }
  finish(candidate, *costs);
  return candidate;
}

std::optional<Candidate> StageSearch::placed(const Candidate& candidate,
                                             const std::vector<AxisNetworks>& networks) const {
  std::map<AxisNetworks, StageCoster> costers;  // Stages mostly get the same.
  Candidate result = candidate;
  const StageCoster* any = nullptr;
  for (size_t s = 0; s < result.stages.size(); ++s) {
    auto found = costers.find(networks[s]);
    if (found == costers.end()) {
      Machine machine = pools_[0].machine;
      machine.placed = networks[s];
      auto made = StageCoster::create(request_.model, candidate.shape, machine);
      if (!made.ok()) return std::nullopt;
      found = costers.emplace(networks[s], *std::move(made)).first;
    }
    any = &found->second;
    PlannedStage& stage = result.stages[s];
    const auto from_end = static_cast<uint32_t>(result.stages.size() - s);
    stage.estimate = any->estimate(stage.layers, from_end, stage.recompute);
    if (stage.estimate.memory.sum() > stage.memory_limit) return std::nullopt;
  }
  finish(result, *any);
  return result;
}

/// The step and its terms: the slowest stage's work, what it waits, and what ends the step.
void StageSearch::finish(Candidate& candidate, const StageCoster& costs) const {
  std::vector<StageEstimate> estimates;
  for (const PlannedStage& stage : candidate.stages) estimates.push_back(stage.estimate);
  candidate.step = costs.step_of(estimates);
  const auto slowest = std::ranges::max_element(estimates, {}, &StageEstimate::period);
  const auto last = std::ranges::max_element(
      estimates, {}, [](const StageEstimate& stage) { return stage.sync + stage.update; });
  const double m = candidate.shape.micro_batches;
  StepTerms& terms = candidate.terms;
  const double work = slowest->forward + slowest->backward + slowest->recompute;
  const double own = work > 0 ? 1 - slowest->exchanges / work : 1;
  terms.exchanges = m * slowest->exchanges;
  terms.recompute = m * slowest->recompute * own;
  terms.compute = m * (slowest->forward + slowest->backward) * own;
  terms.weights = m * slowest->weights;
  terms.offload = m * slowest->offload;
  terms.hops = m * slowest->hops;
  terms.sync = last->sync;
  terms.update = last->update;
  terms.bubble = std::max(0.0, candidate.step - terms.sum());  // Rounding: not below nothing.
  candidate.price = 0;
  for (const PlannedStage& stage : candidate.stages) {
    candidate.price += stage.devices * request_.cluster.types[stage.type].price / 3600;
  }
  candidate.price *= candidate.step;
}

double StageSearch::lacks_on_hosts(const JobShape& shape) {
  const StageCoster* costs = coster(shape, 0);
  if (costs == nullptr) return 0;
  const double all = costs->host_states({0, costs->layer_total()});
  return std::max(0.0, all / shape.pipeline - costs->host_limit());
}

double StageSearch::least_memory(const JobShape& shape) {
  const StageCoster* costs = coster(shape, 0);
  if (costs == nullptr) return kInfeasible;
  const uint32_t layers = costs->layer_total();
  double most = 0;
  for (uint32_t s = 0; s < shape.pipeline; ++s) {
    const LayerRange range{static_cast<uint32_t>(uint64_t{layers} * s / shape.pipeline),
                           static_cast<uint32_t>(uint64_t{layers} * (s + 1) / shape.pipeline)};
    RecomputeCounts recompute(costs->runs());
    for (uint32_t run = 0; run < costs->runs(); ++run) {
      recompute[run][static_cast<size_t>(Recompute::kFull)] = costs->count(range, run);
    }
    const auto estimate = costs->estimate(range, shape.pipeline - s, recompute);
    most = std::max(most, estimate.memory.sum());
  }
  return most;
}

}  // namespace corro::plan
