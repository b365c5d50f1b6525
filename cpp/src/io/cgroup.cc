#include "io/cgroup.h"

#include <sched.h>

#include <algorithm>
#include <fstream>

namespace corro::io {
namespace {

/// Every ancestor limits too. Inside a container the path may name the host's tree, of which only
/// the mount's root is visible: that is the last one.
void add_with_ancestors(std::vector<Cgroup>& found, const std::string& mount, std::string path,
                        bool v2) {
  if (path == "/") path.clear();
  while (true) {
    found.push_back({mount + path, v2});
    if (path.empty()) return;
    const size_t slash = path.rfind('/');
    path.resize(slash == std::string::npos ? 0 : slash);
  }
}

/// v2: "max 100000" or "200000 100000" in one file; v1: two files, -1 for no quota.
std::optional<double> quota_at(const Cgroup& cgroup) {
  double quota = 0;
  double period = 0;
  if (cgroup.v2) {
    std::ifstream file(cgroup.directory + "/cpu.max");
    file >> quota >> period;
  } else {
    std::ifstream(cgroup.directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(cgroup.directory + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? std::optional(quota / period) : std::nullopt;
}

}  // namespace

/// Reads lines "N:cpu,cpuacct:/path" (v1) and "0::/path" (v2).
std::vector<Cgroup> cgroups_of(std::string_view controller, const CgroupPaths& paths) {
  std::vector<Cgroup> found;
  std::ifstream file(paths.process);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':');
    if (first == std::string::npos) continue;
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    const std::string wanted(controller);
    if (controllers == ",,") {
      add_with_ancestors(found, paths.root, path, true);
      add_with_ancestors(found, paths.root + "/unified", path, true);
    } else if (controllers.find("," + wanted + ",") != std::string::npos) {
      add_with_ancestors(found, paths.root + "/" + wanted, path, false);
    }
  }
  return found;
}

std::optional<double> cpu_quota(const CgroupPaths& paths) {
  std::optional<double> tightest;
  for (const Cgroup& cgroup : cgroups_of("cpu", paths)) {
    const auto quota = quota_at(cgroup);
    if (quota && (!tightest || *quota < *tightest)) tightest = quota;
  }
  return tightest;
}

double usable_cores(const CgroupPaths& paths) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int allowed = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  const double cores = std::max(allowed, 1);
  return std::min(cores, cpu_quota(paths).value_or(cores));
}

}  // namespace corro::io
