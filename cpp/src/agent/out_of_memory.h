// Finds out whether the kernel killed a process for lack of memory, without reading its log.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace corro::agent {

/// Counters of kills for lack of memory, of one cgroup or of the whole machine.
struct KillCounter {
  std::string path;   ///< memory.events, memory.oom_control or /proc/vmstat.
  std::string limit;  ///< File that holds the limit; "" for the machine.
  uint64_t kills = 0;
};

/// Where to look; tests point it at files of their own.
struct MemoryPaths {
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string proc = "/proc";
};

/// Loop-confined. Made before the first worker starts.
class OutOfMemoryWatch {
 public:
  explicit OutOfMemoryWatch(MemoryPaths paths = {});

  /// Returns "out of memory: cgroup limit 512 MiB (/sys/fs/cgroup/job)", or that the machine's
  /// memory most likely ran out, if a kill was counted since the last call; nothing otherwise.
  /// `pid` has ended but has not been reaped, so that its own cgroup, if another than ours, is
  /// looked at too.
  [[nodiscard]] std::optional<std::string> explain(pid_t pid);
  /// The same of cgroups alone: what the machine counts may be of others.
  [[nodiscard]] std::optional<std::string> explain_cgroup(pid_t pid);

 private:
  KillCounter& counter_of(const std::string& events, const std::string& limit);

  MemoryPaths paths_;
  std::vector<KillCounter> cgroups_;
  uint64_t machine_kills_ = 0;
};

/// Writes bytes as "512 MiB" or "1.5 GiB".
[[nodiscard]] std::string format_bytes(uint64_t bytes);

}  // namespace corro::agent
