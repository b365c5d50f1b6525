#include "agent/out_of_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "io/cgroup.h"
#include "io/files.h"

namespace corro::agent {
namespace {

/// The number behind `key` in a file of "key number" lines; 0 if it is not there.
uint64_t read_key(const std::string& path, const std::string& key) {
  std::istringstream words(io::read_small_file(path));
  for (std::string word; words >> word;) {
    if (word == key || word == key + ":") {
      uint64_t value = 0;
      words >> value;
      return value;
    }
  }
  return 0;
}

struct CgroupFiles {
  std::string directory;
  std::string events;
  std::string limit;
};

/// The memory cgroups of a process with all their ancestors, innermost first, of v1 and v2.
std::vector<CgroupFiles> cgroups_of(const MemoryPaths& paths, const std::string& pid) {
  std::vector<CgroupFiles> found;
  const io::CgroupPaths of_process{.root = paths.cgroup_root,
                                   .process = paths.proc + "/" + pid + "/cgroup"};
  for (const auto& [directory, v2] : io::cgroups_of("memory", of_process)) {
    found.push_back({directory, directory + (v2 ? "/memory.events" : "/memory.oom_control"),
                     directory + (v2 ? "/memory.max" : "/memory.limit_in_bytes")});
  }
  return found;
}

}  // namespace

std::string format_bytes(uint64_t bytes) {
  constexpr double kKib = 1U << 10U;
  constexpr double kMib = 1U << 20U;
  constexpr double kGib = 1U << 30U;
  const auto value = static_cast<double>(bytes);
  if (value >= kGib) return fmt::format("{:.1f} GiB", value / kGib);
  if (value >= kMib) return fmt::format("{:.0f} MiB", value / kMib);
  return value >= kKib ? fmt::format("{:.0f} KiB", value / kKib) : fmt::format("{} B", bytes);
}

OutOfMemoryWatch::OutOfMemoryWatch(MemoryPaths paths) : paths_(std::move(paths)) {
  for (const CgroupFiles& files : cgroups_of(paths_, "self")) {
    counter_of(files.events, files.limit).kills = read_key(files.events, "oom_kill");
  }
  machine_kills_ = read_key(paths_.proc + "/vmstat", "oom_kill");
}

std::optional<std::string> OutOfMemoryWatch::explain(pid_t pid) {
  auto reason = explain_cgroup(pid);
  const uint64_t machine_kills = read_key(paths_.proc + "/vmstat", "oom_kill");
  if (!reason && machine_kills > machine_kills_) {
    const uint64_t total = read_key(paths_.proc + "/meminfo", "MemTotal") * 1024;
    reason = fmt::format("killed by SIGKILL, most likely out of memory: this machine has {}",
                         format_bytes(total));
  }
  machine_kills_ = machine_kills;
  return reason;
}

std::optional<std::string> OutOfMemoryWatch::explain_cgroup(pid_t pid) {
  std::optional<std::string> reason;
  auto groups = cgroups_of(paths_, std::to_string(pid));
  // A process that has ended shows "/" in version 1: then it most likely was where this one is.
  const auto own = cgroups_of(paths_, "self");
  groups.insert(groups.end(), own.begin(), own.end());
  for (const CgroupFiles& files : groups) {
    KillCounter& counter = counter_of(files.events, files.limit);
    const uint64_t kills = read_key(files.events, "oom_kill");
    const bool more = kills > counter.kills;
    counter.kills = kills;
    if (!more || reason) continue;
    // The counter of an ancestor counts too, but the limit that was hit may stand further down: the
    // innermost group with a limit of its own is named.
    const std::string limit = io::read_small_file(files.limit);
    const uint64_t bytes = std::strtoull(limit.c_str(), nullptr, 10);
    constexpr uint64_t kUnlimited = 1ULL << 60U;
    if (bytes == 0 || bytes >= kUnlimited) continue;
    reason =
        fmt::format("out of memory: cgroup limit {} ({})", format_bytes(bytes), files.directory);
  }
  return reason;
}

KillCounter& OutOfMemoryWatch::counter_of(const std::string& events, const std::string& limit) {
  const auto found =
      std::ranges::find_if(cgroups_, [&](const KillCounter& c) { return c.path == events; });
  if (found != cgroups_.end()) return *found;
  return cgroups_.emplace_back(KillCounter{.path = events, .limit = limit, .kills = 0});
}

}  // namespace corro::agent
