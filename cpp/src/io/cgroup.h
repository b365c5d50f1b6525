// Control groups (v1 and v2) of a process: where their files are, and how much processor time they
// allow.
//
//   for (const Cgroup& cgroup : cgroups_of("memory")) read(cgroup.directory + "/memory.max");
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace corro::io {

/// Where control groups are looked up; tests point it at files of their own.
struct CgroupPaths {
  std::string root = "/sys/fs/cgroup";
  std::string process = "/proc/self/cgroup";  ///< Of the process that is asked about.
};

struct Cgroup {
  std::string directory;
  bool v2 = false;
};

/// The directories that may hold files of this controller ("memory", "cpu"): of the process's
/// control groups and of every ancestor, innermost first. Not all of them exist.
[[nodiscard]] std::vector<Cgroup> cgroups_of(std::string_view controller,
                                             const CgroupPaths& paths = {});

/// Cores' worth of time that the tightest quota allows, for example 0.5; nullopt: no quota.
[[nodiscard]] std::optional<double> cpu_quota(const CgroupPaths& paths = {});

/// Cores' worth of time that the calling thread can use: those of its affinity mask, cut to the
/// quota.
[[nodiscard]] double usable_cores(const CgroupPaths& paths = {});

}  // namespace corro::io
