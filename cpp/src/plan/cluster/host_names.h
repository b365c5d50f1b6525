// Hosts' names: no two hosts of a cluster have the same.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "plan/cluster/cluster.h"

namespace corro::plan {

/// The names of the groups that were added, as ranges of numbers behind a stem: a group of a
/// million hosts takes as much as one host. Requires of groups of several hosts that their names do
/// not end in a digit.
class HostNames {
 public:
  /// Returns a name of the group that a host has already, else "" and keeps the names.
  [[nodiscard]] std::string add(const HostGroup& group);

 private:
  using Ranges = std::map<uint64_t, uint64_t>;  ///< First number -> the one behind the last.

  std::map<std::string, Ranges> numbered_;
  std::set<std::string> others_;
};

}  // namespace corro::plan
