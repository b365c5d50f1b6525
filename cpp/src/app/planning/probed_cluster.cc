#include "app/planning/probed_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace corro::app {
namespace {

constexpr double kSame = 0.1;

/// Three digits: what was measured is no more certain.
double rounded(double value) {
  if (value <= 0) return 0;
  const double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  return std::floor(value / unit) * unit;
}

bool is_near(double a, double b) { return std::abs(a - b) <= kSame * std::max(a, b); }

bool is_near(const plan::DeviceType& a, const plan::DeviceType& b) {
  constexpr auto kF32 = static_cast<size_t>(DType::kF32);
  return is_near(a.memory, b.memory) && is_near(a.peak[kF32], b.peak[kF32]) &&
         is_near(a.memory_bandwidth, b.memory_bandwidth);
}

void take_least(plan::DeviceType& type, const plan::DeviceType& other) {
  type.memory = std::min(type.memory, other.memory);
  type.memory_bandwidth = std::min(type.memory_bandwidth, other.memory_bandwidth);
  for (size_t i = 0; i < type.peak.size(); ++i) {
    type.peak[i] = std::min(type.peak[i], other.peak[i]);
  }
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// What a host's links usually have, in both directions.
plan::Link usual_link(const launch::Health& health, size_t host) {
  std::vector<double> bandwidths;
  std::vector<double> latencies;
  for (const launch::LinkHealth& link : health.links) {
    if (!link.measured() || (link.link.from != host && link.link.to != host)) continue;
    bandwidths.push_back(link.bytes_per_second);
    latencies.push_back(std::chrono::duration<double>(link.round_trip).count() / 2);
  }
  return {rounded(median_of(bandwidths)), rounded(median_of(latencies))};
}

/// Row by row; empty if all links are alike.
std::vector<double> matrix_of(const launch::Health& health, const plan::Cluster& cluster) {
  const size_t count = health.hosts.size();
  std::vector<double> matrix(count * count);
  for (size_t from = 0; from < count; ++from) {
    for (size_t to = 0; to < count; ++to) {
      if (from == to) continue;
      matrix[from * count + to] =
          std::min(cluster.hosts[from].network.bandwidth, cluster.hosts[to].network.bandwidth);
    }
  }
  double least = 0;
  double most = 0;
  for (const launch::LinkHealth& link : health.links) {
    if (!link.measured()) continue;
    const double bandwidth = rounded(link.bytes_per_second);
    matrix[link.link.from * count + link.link.to] = bandwidth;
    least = least == 0 ? bandwidth : std::min(least, bandwidth);
    most = std::max(most, bandwidth);
  }
  if (is_near(least, most)) matrix.clear();
  return matrix;
}

}  // namespace

plan::Cluster cluster_of(const ProbedHost& host) {
  const HostSpeed& speed = host.speed;
  const double cores = std::max(1U, speed.cores);
  plan::DeviceType core{.name = "core",
                        .memory = rounded(host.memory / cores),
                        .memory_bandwidth = rounded(speed.bandwidth_of_all / cores)};
  core.peak[static_cast<size_t>(DType::kF32)] = rounded(speed.flops_of_all / cores);
  plan::HostGroup group{.name = host.name, .devices = std::max(1U, speed.cores)};
  // One core copies what another has written: half of what it reads and writes.
  if (group.devices > 1) group.link.bandwidth = rounded(speed.bandwidth_of_one / 2);
  return {.name = host.name, .types = {core}, .hosts = {group}};
}

Result<plan::Cluster> join_hosts(const std::vector<plan::Cluster>& hosts,
                                 const launch::Health& health) {
  plan::Cluster cluster{.name = "probed"};
  for (size_t i = 0; i < hosts.size(); ++i) {
    const launch::HostHealth& found = health.hosts[i];
    if (!found.answers()) {
      return Status(Code::kInvalidArgument, fmt::format("{}: {}", found.name, found.failure));
    }
    plan::HostGroup group = hosts[i].hosts.front();
    plan::DeviceType device = hosts[i].types.front();
    const auto same = std::find_if(cluster.types.begin(), cluster.types.end(),
                                   [&](const auto& type) { return is_near(type, device); });
    group.name = found.name;
    group.type = static_cast<uint32_t>(same - cluster.types.begin());
    group.network = usual_link(health, i);
    if (hosts.size() > 1 && group.network.bandwidth == 0) {
      return Status(Code::kInvalidArgument,
                    fmt::format("{}: no link to another host was measured", found.name));
    }
    if (same == cluster.types.end()) {
      if (!cluster.types.empty()) device.name += fmt::format("-{}", cluster.types.size() + 1);
      cluster.types.push_back(device);
    } else {
      take_least(*same, device);
    }
    cluster.hosts.push_back(std::move(group));
  }
  cluster.matrix = matrix_of(health, cluster);
  return cluster;
}

}  // namespace corro::app
