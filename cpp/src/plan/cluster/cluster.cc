#include "plan/cluster/cluster.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace corro::plan {
namespace {

/// Where a host is: the index of its group, its number in the group, and its port in the order of
/// the switches, in which missing hosts have one too.
struct Position {
  size_t group = 0;
  uint32_t index = 0;
  uint64_t port = 0;
};

Position position_of(const Cluster& cluster, uint32_t host) {
  uint64_t port = 0;
  for (size_t i = 0; i < cluster.hosts.size(); ++i) {
    const HostGroup& group = cluster.hosts[i];
    port += group.skip;
    if (host < group.count) return {.group = i, .index = host, .port = port + host};
    host -= group.count;
    port += group.count;
  }
  CORRO_CHECK(false, "the cluster has no such host", host);
  return {};
}

void narrow(Link& link, const Link& other) {
  link.bandwidth = std::min(link.bandwidth, other.bandwidth);
  link.latency = std::max(link.latency, other.latency);
}

std::string name_of_host(const HostGroup& group, uint32_t index) {
  return group.count == 1 ? group.name : fmt::format("{}{}", group.name, group.first + index);
}

/// The hosts [begin, end) of a group, as a group whose hosts have the same names.
HostGroup part_of(const HostGroup& group, uint32_t begin, uint32_t end) {
  HostGroup part = group;
  part.count = end - begin;
  part.first = group.first + begin;
  if (part.count == 1) {
    part.name = name_of_host(group, begin);
    part.first = 0;
  }
  return part;
}

}  // namespace

uint32_t Cluster::host_count() const {
  uint32_t count = 0;
  for (const HostGroup& group : hosts) count += group.count;
  return count;
}

uint32_t Cluster::device_count() const {
  uint32_t count = 0;
  for (const HostGroup& group : hosts) count += group.count * group.devices;
  return count;
}

const HostGroup& Cluster::group_of(uint32_t host) const {
  return hosts[position_of(*this, host).group];
}

std::string Cluster::host_name(uint32_t host) const {
  const Position position = position_of(*this, host);
  return name_of_host(hosts[position.group], position.index);
}

uint32_t Cluster::host_of(uint32_t device) const {
  uint32_t host = 0;
  for (const HostGroup& group : hosts) {
    const uint32_t devices = group.count * group.devices;
    if (device < devices) return host + device / group.devices;
    device -= devices;
    host += group.count;
  }
  CORRO_CHECK(false, "the cluster has no such device", device);
  return 0;
}

Link Cluster::link_between_hosts(uint32_t a, uint32_t b) const {
  const Position at_a = position_of(*this, a);
  const Position at_b = position_of(*this, b);
  if (a == b) return hosts[at_a.group].link;
  Link link = hosts[at_a.group].network;
  narrow(link, hosts[at_b.group].network);
  for (const SwitchLevel& level : switches) {
    if (at_a.port / level.hosts != at_b.port / level.hosts) narrow(link, level.between);
  }
  if (!matrix.empty()) link.bandwidth = matrix[size_t{a} * host_count() + b];
  return link;
}

Cluster Cluster::without_host(uint32_t host) const {
  const Position position = position_of(*this, host);
  Cluster rest = *this;
  const HostGroup& group = hosts[position.group];
  const auto at = rest.hosts.begin() + static_cast<ptrdiff_t>(position.group);
  std::vector<HostGroup> parts;
  uint32_t missing = 1;  // Before the next host.
  if (position.index > 0) {
    parts.push_back(part_of(group, 0, position.index));
  } else {
    missing += group.skip;
  }
  if (position.index + 1 < group.count) {
    parts.push_back(part_of(group, position.index + 1, group.count));
    parts.back().skip = missing;
  } else if (position.group + 1 < hosts.size()) {
    (at + 1)->skip += missing;
  }
  rest.hosts.insert(rest.hosts.erase(at), parts.begin(), parts.end());

  const size_t count = host_count();
  rest.matrix.clear();
  for (size_t i = 0; i < matrix.size(); ++i) {
    if (i / count != host && i % count != host) rest.matrix.push_back(matrix[i]);
  }
  return rest;
}

}  // namespace corro::plan
