// A cluster file's content from what was measured. Pure.
#pragma once

#include <string>
#include <vector>

#include "app/planning/host_speed.h"
#include "launch/health.h"
#include "plan/cluster/cluster.h"

namespace corro::app {

struct ProbedHost {
  std::string name;
  HostSpeed speed = {};
  double memory = 0;  ///< Bytes.
};

/// A host whose devices are its cores: a core has its share of the memory, of the bandwidth and of
/// what all cores compute together.
[[nodiscard]] plan::Cluster cluster_of(const ProbedHost& host);

/// Clusters of one host each, in the order of health.hosts, as one: with the measured links between
/// them. Devices that differ by less than a tenth are one type, which has the least of each. Where
/// links differ by a tenth or more there is a matrix; links that were not measured are as the
/// narrower one of their hosts' usual links. INVALID_ARGUMENT for a host that does not answer, or
/// that no other host reaches.
[[nodiscard]] Result<plan::Cluster> join_hosts(const std::vector<plan::Cluster>& hosts,
                                               const launch::Health& health);

}  // namespace corro::app
