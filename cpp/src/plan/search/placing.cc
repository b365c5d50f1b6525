#include "plan/search/placing.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/solve/placement.h"

namespace corro::plan {
namespace {

bool links_are_alike(const Cluster& cluster) {
  return cluster.matrix.empty() && cluster.switches.empty() && cluster.hosts.size() == 1;
}

/// Bytes/s between two devices.
double bandwidth_between(const Cluster& cluster, uint32_t a, uint32_t b) {
  const uint32_t first = cluster.host_of(a);
  const uint32_t second = cluster.host_of(b);
  if (first != second) return cluster.link_between_hosts(first, second).bandwidth;
  return cluster.group_of(first).link.bandwidth;
}

/// What a step sends along the tensor, context, data and pipeline axis, from any rank.
std::vector<double> bytes_of_axes(const Candidate& candidate, const StageCoster& costs) {
  const JobShape& shape = candidate.shape;
  double boundary = 0;
  for (uint32_t run = 0; run + 1 < costs.runs(); ++run) {
    boundary = std::max(boundary, costs.layer(run).boundary);
  }
  double layers = 0;
  double weights = 0;
  for (const PlannedStage& stage : candidate.stages) {
    layers = std::max<double>(layers, stage.layers.end - stage.layers.begin);
    weights = std::max(weights, costs.fixed_memory(stage.layers).gradients);
  }
  const double passes = shape.micro_batches;
  // Four exchanges a layer and micro-batch (Megatron), twice a boundary's bytes each.
  return {8 * layers * boundary * passes, 2 * layers * boundary * passes, 2 * weights,
          2 * boundary * passes};
}

std::vector<Axis> axes_of(const JobShape& shape, const std::vector<double>& bytes) {
  return {{.size = shape.tensor, .bytes = bytes[0]},
          {.size = shape.context, .bytes = bytes[1]},
          {.size = shape.data, .bytes = bytes[2]},
          {.size = shape.pipeline, .bytes = bytes[3], .shape = GroupShape::kChain}};
}

std::optional<Links> links_of(const Cluster& cluster) {
  const uint32_t n = cluster.device_count();
  std::vector<double> bandwidths(size_t{n} * n);
  for (uint32_t a = 0; a < n; ++a) {
    for (uint32_t b = a + 1; b < n; ++b) {
      const double between = bandwidth_between(cluster, a, b);
      bandwidths[size_t{a} * n + b] = between;
      bandwidths[size_t{b} * n + a] = between;
    }
  }
  auto links = Links::matrix(n, std::move(bandwidths));
  if (!links.ok()) return std::nullopt;
  return *std::move(links);
}

bool is_placement(const std::vector<uint32_t>& devices, uint32_t ranks, uint32_t count) {
  std::vector<bool> used(count);
  for (const uint32_t device : devices) {
    if (device >= count || used[device]) return false;
    used[device] = true;
  }
  return devices.size() == ranks;
}

}  // namespace

std::vector<uint32_t> place_ranks(const Candidate& candidate, const Request& request,
                                  const StageCoster& costs, const Policies& policies) {
  const Cluster& cluster = request.cluster;
  const uint32_t devices = cluster.device_count();
  const bool nothing_to_do = links_are_alike(cluster) && policies.placements.empty();
  // Stages on devices of several kinds are where the search has put them.
  const bool several = std::ranges::any_of(candidate.stages, [&](const PlannedStage& stage) {
    return stage.type != candidate.stages.front().type;
  });
  if (nothing_to_do || several || devices > kMostPlaced) return {};
  const auto links = links_of(cluster);
  if (!links) return {};
  const std::vector<double> bytes = bytes_of_axes(candidate, costs);
  const std::vector<Axis> axes = axes_of(candidate.shape, bytes);
  std::vector<uint32_t> best(candidate.shape.ranks());
  std::iota(best.begin(), best.end(), candidate.stages.front().first_device);
  double least = placement_cost(*links, axes, best);
  const auto consider = [&](std::vector<uint32_t> answer) {
    if (!is_placement(answer, candidate.shape.ranks(), devices)) return;
    const double cost = placement_cost(*links, axes, answer);
    if (cost >= least) return;
    least = cost;
    best = std::move(answer);
  };
  if (auto own = place(*links, axes); own.ok()) consider(std::move(own->devices));
  const PlacementQuestion question{
      .shape = candidate.shape,
      .devices = devices,
      .bandwidth = [&](uint32_t a, uint32_t b) { return bandwidth_between(cluster, a, b); },
      .bytes = bytes};
  for (const auto& [name, policy] : policies.placements) consider(policy(question));
  return best;
}

}  // namespace corro::plan
