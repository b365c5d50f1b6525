// The processes below this one: finding and ending them.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "base/clock.h"

namespace corro::agent {

/// Every process that /proc shows.
[[nodiscard]] std::vector<pid_t> all_processes();

/// Every living process that descends from `root`, `root` left out, and those of `without` with
/// what descends from them. A snapshot of /proc.
[[nodiscard]] std::vector<pid_t> descendants_of(pid_t root, const std::set<pid_t>& without = {});

/// Every living child of this process, which has one thread. Asks the kernel for these alone where
/// it can: it costs nothing that grows with the processes of others.
[[nodiscard]] std::vector<pid_t> own_children();

/// The state of a process as in /proc/<pid>/stat: R, S, D, T, Z; '?' if it is gone.
[[nodiscard]] char process_state(pid_t pid);

/// A field of /proc/<pid>/status, such as "NSpid"; "" if there is none.
[[nodiscard]] std::string status_field(pid_t pid, const std::string& name);

/// Makes this process the parent of whatever its descendants leave behind, so that none of them
/// gets out of sight.
void adopt_orphans();

/// The agent waits so long for processes that it has killed.
inline constexpr Duration kKillPatience = std::chrono::seconds(2);

/// Sends SIGKILL to every descendant and reaps, again and again until none is left or `patience`
/// is over. Needs adopt_orphans() before the first child. Returns false if some are left.
bool kill_descendants(Duration patience);

}  // namespace corro::agent
