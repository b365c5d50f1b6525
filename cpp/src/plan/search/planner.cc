// Best first: shapes wait in a queue by the best step that they could have. The first is taken; if
// only its quick bound is known, the fractional one replaces it and it waits again; else its stages
// are solved. When what leads the queue cannot beat the best solved, the best is the optimum of the
// search space, and the bound proves it. Solving stops after `most_exact` shapes at the latest; the
// queue's first then says how far the optimum can be.
//
// Where links between hosts differ, all that takes every link of a pool as its narrowest, since a
// shape's ranks have no places yet. A second search takes every link as the widest: its bound holds
// however ranks are placed, and is the proof. The best shapes of both searches are placed, priced
// with the links that their groups then use, and the best of these is the answer.
#include "plan/search/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "plan/search/misfit.h"
#include "plan/search/placing.h"
#include "plan/search/plan_graph.h"
#include "plan/search/shapes.h"
#include "plan/search/stage_search.h"
#include "plan/search/words.h"

namespace corro::plan {
namespace {

/// A runner-up within the shapes that are not the best one's twins.
bool differs(const JobShape& a, const JobShape& b) {
  return a.tensor != b.tensor || a.context != b.context || a.expert != b.expert ||
         a.data != b.data || a.pipeline != b.pipeline || (a.zero >= 3) != (b.zero >= 3);
}

bool same_stages(const Candidate& a, const Candidate& b) {
  return std::ranges::equal(a.stages, b.stages,
                            [](const PlannedStage& one, const PlannedStage& two) {
                              return one.layers == two.layers && one.recompute == two.recompute;
                            });
}

class Planner {
 public:
  Planner(const Request& request, const Policies& policies, Extent extent = Extent::kNarrowest)
      : request_(request),
        policies_(policies),
        pools_(pools_of(request, extent)),
        search_(request_, pools_),
        space_(request_, pools_) {}

  Result<Decision> plan() {
    CORRO_TRY(check());
    if (space_.size() == 0) return no_shape();
    fill_queue();
    search();
    if (!best_) {
      const std::vector<JobShape> smallest = smallest_shapes(request_, pools_, search_);
      try_each(smallest);
      if (!best_) return does_not_fit(request_, pools_, search_, smallest);
    }
    ask_cut_policies();
    place_candidates();
    return decide();
  }

 private:
  /// What a bound is of, each tighter than the one before and dearer to have: the first two of a
  /// family of shapes, the others of one shape.
  enum class Level : uint8_t { kProducts, kFamily, kWork, kFractions };
  struct Waiting {
    double bound;    ///< Of the objective.
    uint32_t shape;  ///< Of opened_, or a family.
    Level level;
    bool operator<(const Waiting& other) const {  // The queue gives the greatest.
      return std::tie(bound, shape) > std::tie(other.bound, other.shape);
    }
  };

  Status check() const;
  Status check_profile(const Profile& profile) const;
  Status no_shape() const;
  void try_each(const std::vector<JobShape>& shapes);
  void fill_queue();
  [[nodiscard]] double least_products(const JobShape& shape) const;
  void open(const Waiting& family, bool done);
  void search();
  void take(Candidate candidate);
  void ask_cut_policies();
  void place_candidates();
  Candidate placed(const Candidate& candidate, double widest);
  Result<Decision> decide();
  Status choose_credits(Candidate& candidate, std::vector<uint32_t>& credits) const;

  /// What is made least: seconds, or money, of a step of all samples.
  [[nodiscard]] double objective(const JobShape& shape, double seconds) const {
    if (request_.objective == Objective::kTime) return seconds;
    double price = kInfeasible;
    for (const Pool& pool : pools_) {
      price = std::min(price, request_.cluster.types[pool.type].price);
    }
    return seconds * shape.ranks() * price / 3600;
  }
  /// No candidate's objective is less.
  [[nodiscard]] double proven() const {
    const double open = queue_.empty() ? kInfeasible : queue_.top().bound;
    return std::min({open, left_, best_ ? objective(*best_) : kInfeasible});
  }
  /// Seconds of a step from which on the shape is neither the best nor the runner-up.
  [[nodiscard]] double cut_of(const JobShape& shape) const {
    const auto& other = best_ && differs(shape, best_->shape) ? runner_up_ : best_;
    return other ? objective(*other) / objective(shape, 1) : kInfeasible;
  }
  [[nodiscard]] double objective(const Candidate& candidate) const {
    return request_.objective == Objective::kTime ? candidate.step : candidate.price;
  }

  const Request& request_;
  const Policies& policies_;
  std::vector<Pool> pools_;
  StageSearch search_;
  double flops_ = forward_flops(request_.model);  ///< Of a sample.
  ShapeSpace space_;
  std::vector<JobShape> opened_;  ///< Members of families that were taken from the queue.
  std::priority_queue<Waiting> queue_;
  std::optional<Candidate> best_;
  std::optional<Candidate> runner_up_;
  double left_ = kInfeasible;              ///< Least bound of what was solved in parts.
  std::optional<double> proven_anywhere_;  ///< Wherever ranks are placed.
  uint32_t exact_ = 0;
};

Status Planner::check() const {
  const auto refuse = [](std::string_view what) {
    return Status(Code::kInvalidArgument, std::string(what));
  };
  if (layer_count(request_.model) == 0) return refuse("model: has no layers");
  if (request_.cluster.device_count() == 0) return refuse("cluster: has no devices");
  if (pools_.size() > kMostStageTypes) {
    return refuse(
        fmt::format("cluster: has {} kinds of hosts that follow each other, of which {} "
                    "at most can be planned for together",
                    pools_.size(), kMostStageTypes));
  }
  if (layer_count(request_.model) > kMostStageLayers) {
    return refuse(fmt::format("model: has {} layers, of which at most {} can be cut into stages",
                              layer_count(request_.model), kMostStageLayers));
  }
  if (request_.profile != nullptr) CORRO_TRY(check_profile(*request_.profile));
  const DType dtype = dtype_of(request_, pools_);
  const DType gradients = request_.pins.gradient_dtype.value_or(DType::kF32);
  if (gradients != DType::kF32 && gradients != dtype) {
    return refuse(fmt::format("pins: gradient_dtype must be f32 or {}, which activations have",
                              name_of(dtype)));
  }
  const bool moves = request_.pins.recompute == Recompute::kOffload;
  for (const HostGroup& group : request_.cluster.hosts) {
    if (!moves || (group.to_host_memory.bandwidth > 0 && group.host_memory > 0)) continue;
    return refuse(
        fmt::format("pins: recompute offload needs to_host_memory and host_memory, and "
                    "hosts \"{}\" have not both",
                    group.name));
  }
  if (request_.objective == Objective::kTime) return {};
  for (const DeviceType& type : request_.cluster.types) {
    if (type.price > 0) continue;
    return refuse(fmt::format("objective: {} needs prices, and device \"{}\" has none",
                              name_of(request_.objective), type.name));
  }
  return {};
}

/// Half a profile would compare what was measured with what was not.
Status Planner::check_profile(const Profile& profile) const {
  const auto refuse = [](std::string what) {
    return Status(Code::kInvalidArgument, "profile: " + std::move(what));
  };
  const bool known = std::ranges::any_of(
      request_.cluster.types, [&](const DeviceType& type) { return type.name == profile.device; });
  if (!known) {
    return refuse(fmt::format(R"(device "{}" is not in the cluster "{}")", profile.device,
                              request_.cluster.name));
  }
  for (const LayerType& type : request_.model.types) {
    if (profile.layers.contains(type.name)) continue;
    return refuse(fmt::format("layer \"{}\" of the model was not measured", type.name));
  }
  return {};
}

Status Planner::no_shape() const {
  const uint32_t batch = batch_of(request_);
  const Pins& pins = request_.pins;
  const uint64_t needed = uint64_t{pins.tensor.value_or(1)} * pins.context.value_or(1) *
                          pins.data.value_or(1) * pins.pipeline.value_or(1);
  if (needed > request_.cluster.device_count()) {
    return {Code::kInvalidArgument,
            fmt::format("pins: {} need {} devices, and there are {}", describe(pins), needed,
                        request_.cluster.device_count())};
  }
  return {Code::kInvalidArgument,
          fmt::format("pins: {} leave no way to cut {} layers and a batch of {} on {} devices{}",
                      describe(request_.pins), layer_count(request_.model), batch,
                      request_.cluster.device_count(),
                      request_.trainer == Trainer::kMegatron ? " for Megatron-LM" : "")};
}

/// Where memory is so short that the fastest shapes fit in no way, those that need least may.
void Planner::try_each(const std::vector<JobShape>& shapes) {
  for (const JobShape& shape : shapes) {
    auto solved = search_.solve(shape);
    if (solved.best) take(*std::move(solved.best));
  }
}

void Planner::fill_queue() {
  std::vector<Waiting> waiting;
  const std::vector<JobShape>& families = space_.families();
  for (uint32_t i = 0; i < families.size(); ++i) {
    waiting.push_back({objective(families[i], least_products(families[i])), i, Level::kProducts});
  }
  queue_ = std::priority_queue<Waiting>({}, std::move(waiting));
}

/// Every shape of a family waits on its own.
void Planner::open(const Waiting& family, bool done) {
  for (const JobShape& shape : space_.members(space_.families()[family.shape])) {
    if (done && !differs(shape, best_->shape)) continue;
    const double bound = objective(shape, search_.quick_bound(shape));
    if (!(bound < kInfeasible)) continue;
    queue_.push(
        {std::max(bound, family.bound), static_cast<uint32_t>(opened_.size()), Level::kWork});
    opened_.push_back(shape);
  }
}

/// Matrix products alone, on the fastest devices, divided evenly: what needs no costs of layers.
double Planner::least_products(const JobShape& shape) const {
  if (request_.profile != nullptr) return 0;  // It may say less than the formulas.
  double rate = 0;
  for (const Pool& pool : pools_) {
    rate = std::max(rate, pool.machine.device.peak[static_cast<size_t>(shape.dtype)] *
                              pool.machine.calibration.matmul_efficiency);
  }
  if (!(rate > 0)) return 0;
  const double work =
      3 * flops_ * shape.micro_batch / (rate * shape.tensor * shape.context);  // All stages.
  return (shape.micro_batches - 1.0) * work / shape.pipeline +
         work / std::max(shape.chunks, shape.pipeline);
}

void Planner::search() {
  // Of stages on devices of several kinds, and of chunks, the bounds say less, so more has to be
  // solved.
  const bool loose = pools_.size() > 1 || request_.trainer == Trainer::kMegatron;
  const uint32_t most_exact = (loose ? 8 : 1) * request_.most_exact;
  while (!queue_.empty()) {
    const Waiting first = queue_.top();
    const bool done = best_ && first.bound >= objective(*best_);
    const uint32_t most = most_exact * (runner_up_ ? 1 : 2);
    if ((done && runner_up_) || exact_ >= most) return;
    queue_.pop();
    if (first.level == Level::kProducts) {
      const JobShape& family = space_.families()[first.shape];
      const double bound = objective(family, search_.family_bound(family));
      if (bound < kInfeasible) {
        queue_.push({std::max(bound, first.bound), first.shape, Level::kFamily});
      }
      continue;
    }
    if (first.level == Level::kFamily) {
      open(first, done);
      continue;
    }
    const JobShape& shape = opened_[first.shape];
    // Past the optimum only a runner-up is looked for: another cut, not a twin.
    if (done && !differs(shape, best_->shape)) continue;
    if (first.level == Level::kWork) {
      const double bound = objective(shape, search_.fractional_bound(shape));
      if (bound < kInfeasible) {
        queue_.push({std::max(bound, first.bound), first.shape, Level::kFractions});
      }
      continue;
    }
    ++exact_;
    auto solved = search_.solve(shape, cut_of(shape));
    left_ = std::min(left_, objective(shape, solved.bound));
    if (solved.best) take(*std::move(solved.best));
  }
}

void Planner::take(Candidate candidate) {
  if (!best_ || objective(candidate) < objective(*best_)) {
    if (best_ && differs(best_->shape, candidate.shape)) runner_up_ = std::move(best_);
    best_ = std::move(candidate);
  } else if (differs(best_->shape, candidate.shape) &&
             (!runner_up_ || objective(candidate) < objective(*runner_up_))) {
    runner_up_ = std::move(candidate);
  }
  if (runner_up_ && !differs(best_->shape, runner_up_->shape)) runner_up_.reset();
}

void Planner::ask_cut_policies() {
  const JobShape shape = best_->shape;
  const StageCoster* costs = search_.coster(shape, 0);
  if (policies_.cuts.empty() || costs == nullptr || pools_.size() > 1) return;
  CutQuestion question{.shape = shape, .memory_limit = search_.limit_of(pools_[0])};
  for (uint32_t run = 0; run < costs->runs(); ++run) {
    const LayerCost& cost = costs->layer(run);
    question.seconds.insert(question.seconds.end(), costs->layers_of_run(run),
                            cost.forward + cost.backward);
    question.memory.insert(question.memory.end(), costs->layers_of_run(run), cost.kept[0]);
  }
  for (const auto& [name, policy] : policies_.cuts) {
    const std::vector<uint32_t> firsts = policy(question);
    if (firsts.empty()) continue;
    if (auto candidate = search_.cost_of(shape, firsts)) {
      left_ = std::min(left_, objective(*candidate));
      take(*std::move(candidate));
    }
  }
}

/// Puts a candidate's ranks on devices, and prices what they exchange with the links between them.
Candidate Planner::placed(const Candidate& candidate, double widest) {
  const StageCoster* costs = search_.coster(candidate.shape, 0);
  std::vector<uint32_t> devices;
  if (costs != nullptr) devices = place_ranks(candidate, request_, *costs, policies_);
  if (devices.empty()) return candidate;
  const auto price = [&](const std::vector<uint32_t>& on) -> std::optional<Candidate> {
    const auto networks =
        networks_used(candidate.shape, request_.cluster, on, costs->host_devices(), widest);
    return networks ? search_.placed(candidate, *networks) : std::nullopt;
  };
  std::vector<uint32_t> numbered(devices.size());
  std::iota(numbered.begin(), numbered.end(), candidate.stages.front().first_device);
  const auto own = price(numbered);
  auto other = price(devices);
  if (!own && !other) return candidate;
  const bool moves = other && (!own || objective(*other) < objective(*own));
  Candidate best = moves ? *std::move(other) : *own;
  if (!moves) return best;
  best.placement = std::move(devices);
  best.unplaced = own ? own->step : candidate.step;
  return best;
}

void Planner::place_candidates() {
  if (pools_.size() > 1 || request_.cluster.device_count() > kMostPlaced) return;
  const auto widest = pools_of(request_, Extent::kWidest);
  const double bandwidth = widest.front().machine.between_hosts.bandwidth;
  const bool alike = bandwidth == pools_.front().machine.between_hosts.bandwidth;
  if (alike && policies_.placements.empty()) return;
  std::vector<Candidate> candidates{*best_};
  if (runner_up_) candidates.push_back(*runner_up_);
  if (!alike) {
    Planner wide(request_, policies_, Extent::kWidest);
    wide.fill_queue();
    wide.search();
    proven_anywhere_ = wide.proven();
    for (const auto& other : {wide.best_, wide.runner_up_}) {
      const bool known = !other || std::ranges::any_of(candidates, [&](const Candidate& one) {
        return one.shape == other->shape && same_stages(one, *other);
      });
      if (known) continue;
      // Priced like the others, until it is placed.
      AxisNetworks narrow;
      narrow.fill(pools_.front().machine.between_hosts.bandwidth);
      auto priced = search_.placed(*other, std::vector(other->stages.size(), narrow));
      if (priced) candidates.push_back(*std::move(priced));
    }
  }
  for (Candidate& candidate : candidates) candidate = placed(candidate, bandwidth);
  best_.reset();
  runner_up_.reset();
  for (Candidate& candidate : candidates) take(std::move(candidate));
}

/// Asks the policies how far forward may run ahead; the shortest simulated step wins.
Status Planner::choose_credits(Candidate& candidate, std::vector<uint32_t>& credits) const {
  CORRO_ASSIGN(candidate.simulated, simulate(candidate));
  ScheduleQuestion question{.shape = candidate.shape};
  for (uint32_t s = 0; s < candidate.stages.size(); ++s) {
    const StageEstimate& stage = candidate.stages[s].estimate;
    question.forward.push_back(stage.forward);
    question.backward.push_back(stage.backward + stage.recompute);
    const uint32_t used = credits_of(candidate.shape, s);
    const double each = stage.memory.activations / used;
    const double room = candidate.stages[s].memory_limit - stage.memory.sum();
    const double more = each > 0 ? room / each : 0;
    question.most.push_back(std::min(candidate.shape.micro_batches,
                                     used + static_cast<uint32_t>(std::clamp(more, 0.0, 1e6))));
  }
  for (const auto& [name, policy] : policies_.schedules) {
    const std::vector<uint32_t> answer = policy(question);
    bool fits = answer.size() == candidate.stages.size();
    for (size_t s = 0; fits && s < answer.size(); ++s) {
      fits = answer[s] >= 1 && answer[s] <= question.most[s];
    }
    if (!fits) continue;
    const auto seconds = simulate(candidate, answer);
    if (!seconds.ok() || *seconds >= candidate.simulated) continue;
    candidate.simulated = *seconds;
    credits = answer;
  }
  return {};
}

/// What a plan's graph can say of a service (docs/plan.md).
Status check_durations(const Candidate& candidate) {
  constexpr double kMostSeconds = 7200;
  for (size_t s = 0; s < candidate.stages.size(); ++s) {
    const StageEstimate& stage = candidate.stages[s].estimate;
    const double longest = std::max(stage.forward, stage.backward + stage.recompute) +
                           stage.weights + stage.hops + stage.offload;
    if (longest <= kMostSeconds) continue;
    return {
        Code::kInvalidArgument,
        fmt::format("cluster: stage {} of the best plan takes {:.1f} hours for one micro-batch; "
                    "a plan has at most 2: are the links as slow as that?",
                    s, longest / 3600)};
  }
  return {};
}

Result<Decision> Planner::decide() {
  Decision decision;
  std::vector<uint32_t> credits;
  CORRO_TRY(check_durations(*best_));
  CORRO_TRY(choose_credits(*best_, credits));
  decision.best = *best_;
  decision.runner_up = runner_up_;
  decision.shapes = static_cast<uint32_t>(space_.size());
  decision.bounded = static_cast<uint32_t>(opened_.size());
  decision.exact = exact_;
  decision.costed = search_.costed();
  const double bound = proven_anywhere_ ? std::min(*proven_anywhere_, objective(*best_)) : proven();
  decision.objective = request_.objective;
  decision.bound = bound / objective(*best_) * best_->step;
  decision.gap = 1 - decision.bound / best_->step;
  decision.global_batch = batch_of(request_);
  decision.memory_limit = search_.limit_of(pools_[0]);
  double peak = 0;
  for (const PlannedStage& stage : best_->stages) {
    decision.memory_proof = std::max(decision.memory_proof,
                                     static_cast<uint64_t>(std::ceil(stage.estimate.memory.sum())));
    peak += stage.devices *
            request_.cluster.types[stage.type].peak[static_cast<size_t>(best_->shape.dtype)];
  }
  const double samples = decision.global_batch;
  decision.eta = 3 * forward_flops(request_.model) * samples / best_->step / peak;
  decision.lambda = request_.bytes_per_sample * samples / best_->step;
  decision.hours = request_.samples / samples * best_->step / 3600;
  decision.cost = request_.samples / samples * best_->price;
  decision.limit = what_limits(*best_);
  decision.why = why_better(*best_, decision.runner_up);
  decision.graph = graph_of(*best_, 0, credits);
  CORRO_TRY(graph::check_form(decision.graph));
  return decision;
}

}  // namespace

Result<Decision> make_plan(const Request& request, const Policies& policies) {
  return Planner(request, policies).plan();
}

}  // namespace corro::plan
