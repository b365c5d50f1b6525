#include "plan/search/plan_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "graph/cut.h"
#include "graph/executor.h"
#include "graph/virtual_lanes.h"

namespace corro::plan {
namespace {

using graph::ChannelId;
using graph::LaneId;
using graph::Plan;
using graph::ServiceSpec;

Duration nanoseconds(double seconds) {
  return Duration(static_cast<int64_t>(std::llround(std::max(0.0, seconds) * 1e9)));
}

/// Draws one pipeline after the other, chunk by chunk.
class GraphBuilder {
 public:
  GraphBuilder(const Candidate& candidate, uint32_t replicas, const std::vector<uint32_t>& credits)
      : candidate_(candidate), shape_(candidate.shape), credits_(credits) {
    group_ = replicas == 0 ? shape_.tensor * shape_.context : 1;
    replicas_ = replicas == 0 ? shape_.data : replicas;
    plan_.ranks = group_ * replicas_ * shape_.pipeline;
  }

  Plan build() {
    for (uint32_t rank = 0; rank < plan_.ranks; ++rank) {
      plan_.add_lane({.name = fmt::format("device{}", rank), .ranks = {rank}});
    }
    for (uint32_t member = 0; member < group_ * replicas_; ++member) add_pipeline(member);
    return std::move(plan_);
  }

 private:
  [[nodiscard]] uint32_t pieces() const { return shape_.pipeline * shape_.chunks; }

  /// Piece k of the chain is chunk k / p of stage k % p.
  void add_pipeline(uint32_t member) {
    std::vector<ServiceSpec> forward(pieces());
    std::vector<ServiceSpec> backward(pieces());
    std::vector<ServiceSpec> weights;
    for (uint32_t k = 0; k < pieces(); ++k) {
      describe(member, k, forward[k], backward[k]);
      if (shape_.schedule == Schedule::kZeroBubble) weights.push_back(split(k, backward[k]));
    }
    for (uint32_t k = 0; k + 1 < pieces(); ++k) {
      join(forward[k], forward[k + 1], "activation");
      join(backward[k + 1], backward[k], "gradient");
    }
    for (uint32_t k = 0; k < pieces(); ++k) {
      plan_.add_service(std::move(forward[k]));
      plan_.add_service(std::move(backward[k]));
    }
    for (ServiceSpec& service : weights) plan_.add_service(std::move(service));
  }

  void describe(uint32_t member, uint32_t k, ServiceSpec& forward, ServiceSpec& backward) {
    const uint32_t stage = k % shape_.pipeline;
    const StageEstimate& costs = candidate_.stages[stage].estimate;
    const uint32_t rank = stage * group_ * replicas_ + member;
    const std::string name = shape_.chunks > 1 ? fmt::format("{}.{}", rank, k / shape_.pipeline)
                                               : fmt::format("{}", rank);
    const uint32_t slots = credits_.empty() ? credits_of(shape_, stage) : credits_[stage];
    const double held = candidate_.stages[stage].estimate.memory.activations;
    const bool splits = shape_.schedule == Schedule::kZeroBubble;
    const uint32_t most = credits_of(shape_, stage) + (splits ? micro_batches_behind(stage) : 0);
    const uint32_t holds = std::min(most, shape_.micro_batches);
    const ChannelId stash =
        plan_.add_channel({.name = "stash" + name,
                           .slots = slots,
                           .slot_bytes = static_cast<uint64_t>(held / holds / shape_.chunks)});
    // What comes in late has to leave first: backward before forward, later chunks first.
    forward = {.name = "F" + name,
               .lane = rank,
               .priority = static_cast<int32_t>(2 * shape_.chunks - k / shape_.pipeline),
               .duration = nanoseconds(
                   (costs.forward + costs.weights / 3 + costs.offload / 2 + costs.hops / 2) /
                   shape_.chunks),
               .outputs = {stash}};
    backward = {.name = "B" + name,
                .lane = rank,
                .priority = static_cast<int32_t>(shape_.chunks - 1 - k / shape_.pipeline),
                .duration = nanoseconds((costs.backward + costs.recompute + costs.weights * 2 / 3 +
                                         costs.offload / 2 + costs.hops / 2) /
                                        shape_.chunks),
                .inputs = {stash}};
  }

  /// Takes the gradients of weights out of a backward: a service of their own, when nothing else is
  /// to do. Stage s may be s + 1 micro-batches behind with them; then all stages hold as much.
  ServiceSpec split(uint32_t stage, ServiceSpec& backward) {
    const Duration part = nanoseconds(candidate_.stages[stage].estimate.weight_part);
    const std::string name = backward.name.substr(1);
    const ChannelId behind =
        plan_.add_channel({.name = "behind" + name,
                           .slots = micro_batches_behind(stage),
                           .slot_bytes = plan_.channels[backward.inputs.front()].slot_bytes});
    backward.duration -= part;
    backward.outputs.push_back(behind);
    return {.name = "W" + name,
            .lane = backward.lane,
            .priority = static_cast<int32_t>(2 * shape_.chunks + 1),
            .duration = part,
            .inputs = {behind}};
  }
  [[nodiscard]] uint32_t micro_batches_behind(uint32_t stage) const {
    return std::min(stage + 1, shape_.micro_batches);
  }

  void join(ServiceSpec& from, ServiceSpec& to, std::string_view what) {
    const ChannelId channel =
        plan_.add_channel({.name = fmt::format("{}.{}", what, from.name),
                           .slots = shape_.chunks > 1 ? shape_.pipeline + 1 : 1,
                           .slot_bytes = 0});
    from.outputs.push_back(channel);
    to.inputs.push_back(channel);
  }

  const Candidate& candidate_;
  const JobShape& shape_;
  const std::vector<uint32_t>& credits_;
  uint32_t group_ = 1;
  uint32_t replicas_ = 1;
  Plan plan_;
};

/// GraphBuilder names services "F3", "B3" and "W3" on the rank of stage 3; others move something.
std::optional<Firing> firing_of(const graph::VirtualFiring& seen) {
  constexpr std::string_view kKinds = "FBW";
  const size_t kind = kKinds.find(seen.name.front());
  Firing firing{.micro_batch = seen.generation.micro};
  const char* end = seen.name.data() + seen.name.size();
  const auto [stop, error] = std::from_chars(seen.name.data() + 1, end, firing.stage);
  if (kind == std::string_view::npos || error != std::errc() || stop != end) return {};
  firing.kind = static_cast<Firing::Kind>(kind);
  firing.start = std::chrono::duration<double>(seen.start.since_start).count();
  firing.end = std::chrono::duration<double>(seen.end.since_start).count();
  return firing;
}

}  // namespace

uint32_t credits_of(const JobShape& shape, uint32_t stage) {
  const uint32_t m = shape.micro_batches;
  if (shape.schedule == Schedule::kGPipe) return m;
  const uint32_t from_end = shape.pipeline - stage;
  if (shape.chunks == 1) return std::min(from_end, m);
  return std::min(m, shape.pipeline + from_end);
}

Plan graph_of(const Candidate& candidate, uint32_t replicas, const std::vector<uint32_t>& credits) {
  return GraphBuilder(candidate, replicas, credits).build();
}

Result<std::vector<Firing>> firings_of(const Candidate& candidate, uint32_t micro_batches) {
  std::vector<Firing> firings;
  const Plan plan = graph::expand(graph_of(candidate, 1));
  graph::VirtualLanes lanes(plan, {.observer = [&](const graph::VirtualFiring& seen) {
                              if (const auto firing = firing_of(seen)) firings.push_back(*firing);
                            }});
  CORRO_ASSIGN(const auto executor, graph::Executor::create(plan, lanes.lanes()));
  executor->run_until(micro_batches);
  (void)lanes.run(*executor);
  return firings;
}

Result<double> simulate(const Candidate& candidate, const std::vector<uint32_t>& credits) {
  const Plan plan = graph::expand(graph_of(candidate, 1, credits));
  graph::VirtualLanes lanes(plan);
  CORRO_ASSIGN(const auto executor, graph::Executor::create(plan, lanes.lanes()));
  executor->run_until(candidate.shape.micro_batches);
  const Time end = lanes.run(*executor);
  double last = 0;
  for (const PlannedStage& stage : candidate.stages) {
    last = std::max(last, stage.estimate.sync + stage.estimate.update);
  }
  return std::chrono::duration<double>(end.since_start).count() + last;
}

}  // namespace corro::plan
