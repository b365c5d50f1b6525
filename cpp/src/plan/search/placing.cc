#include "plan/search/placing.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
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

/// One stage's ranks on their hosts.
class StageHosts {
 public:
  StageHosts(const Cluster& cluster, std::span<const uint32_t> devices, double widest)
      : cluster_(cluster), widest_(widest) {
    for (const uint32_t device : devices) hosts_.push_back(cluster.host_of(device));
  }

  /// Of groups of `ranks` ranks, `stride` apart. Nothing: torn.
  [[nodiscard]] std::optional<double> network_of(uint32_t ranks, uint32_t stride,
                                                 uint32_t host_devices) const {
    const GroupSpan span = span_of(ranks, stride, host_devices);
    std::map<uint32_t, uint32_t> leaving;  // Groups that leave a host.
    each_group(ranks, stride, [&](const std::vector<uint32_t>& hosts) {
      const std::set<uint32_t> different(hosts.begin(), hosts.end());
      if (different.size() == 1) return;
      for (const uint32_t host : different) ++leaving[host];
    });
    if (leaving.empty()) return widest_;
    if (span.inside_host()) return std::nullopt;
    double rate = widest_ / span.sharers;
    each_group(ranks, stride, [&](const std::vector<uint32_t>& hosts) {
      for (size_t i = 0; i < hosts.size(); ++i) {
        const uint32_t a = hosts[i];
        const uint32_t b = hosts[(i + 1) % hosts.size()];
        if (a == b) continue;
        rate = std::min(
            rate, cluster_.link_between_hosts(a, b).bandwidth / std::max(leaving[a], leaving[b]));
      }
    });
    return rate * span.sharers;
  }

  /// Between the ranks of two stages, all of a host's at a time.
  [[nodiscard]] double network_to(const StageHosts& next, uint32_t host_devices) const {
    std::map<uint32_t, uint32_t> leaving;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (hosts_[i] != next.hosts_[i]) ++leaving[hosts_[i]], ++leaving[next.hosts_[i]];
    }
    double rate = widest_ / host_devices;
    for (size_t i = 0; i < hosts_.size(); ++i) {
      const uint32_t a = hosts_[i];
      const uint32_t b = next.hosts_[i];
      if (a == b) continue;
      rate = std::min(
          rate, cluster_.link_between_hosts(a, b).bandwidth / std::max(leaving[a], leaving[b]));
    }
    return rate * host_devices;
  }

 private:
  template <typename Visit>
  void each_group(uint32_t ranks, uint32_t stride, Visit visit) const {
    std::vector<uint32_t> hosts(ranks);
    for (uint32_t first = 0; first < hosts_.size(); ++first) {
      if (first / stride % ranks != 0) continue;
      for (uint32_t i = 0; i < ranks; ++i) hosts[i] = hosts_[first + i * stride];
      visit(hosts);
    }
  }

  const Cluster& cluster_;
  double widest_;
  std::vector<uint32_t> hosts_;
};

}  // namespace

std::optional<std::vector<AxisNetworks>> networks_used(const JobShape& shape,
                                                       const Cluster& cluster,
                                                       const std::vector<uint32_t>& devices,
                                                       uint32_t host_devices, double widest) {
  const uint32_t unit = shape.tensor * shape.context * shape.data;
  std::vector<StageHosts> stages;
  for (uint32_t s = 0; s < shape.pipeline; ++s) {
    stages.emplace_back(cluster, std::span(devices).subspan(size_t{s} * unit, unit), widest);
  }
  struct Group {
    GroupAxis axis;
    uint32_t ranks;
    uint32_t stride;
  };
  const Group groups[] = {
      {GroupAxis::kTensor, shape.tensor, 1},
      {GroupAxis::kContext, shape.context, shape.tensor},
      {GroupAxis::kExpert, shape.expert, shape.tensor * shape.context},
      {GroupAxis::kData, shape.data * shape.context, shape.tensor},
  };
  std::vector<AxisNetworks> used(shape.pipeline);
  for (uint32_t s = 0; s < shape.pipeline; ++s) {
    for (const Group& group : groups) {
      const auto network = stages[s].network_of(group.ranks, group.stride, host_devices);
      if (!network) return std::nullopt;
      used[s][static_cast<size_t>(group.axis)] = *network;
    }
    double& hops = used[s][static_cast<size_t>(GroupAxis::kPipeline)];
    hops = widest;
    if (s > 0) hops = std::min(hops, stages[s - 1].network_to(stages[s], host_devices));
    if (s + 1 < shape.pipeline) {
      hops = std::min(hops, stages[s].network_to(stages[s + 1], host_devices));
    }
  }
  return used;
}

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
