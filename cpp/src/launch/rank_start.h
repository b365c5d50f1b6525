// What the agents are told to start the ranks, and of who they are.
#pragma once

#include <span>
#include <vector>

#include "agent/messages.h"
#include "launch/plan.h"

namespace corro::launch {

/// Asks for a terminal where the launcher's own streams are one and show this rank as it is.
[[nodiscard]] agent::Start start_of(const LaunchPlan& plan, const Seat& seat,
                                    const wire::Secret& secret);
/// The same for one that joins later, and has no input. Its variables say what they would if all
/// slots had a rank.
[[nodiscard]] agent::Start joiner_start_of(const LaunchPlan& plan, const Seat& seat,
                                           const wire::Secret& secret);

/// The same for a table server, which has neither input nor terminal.
[[nodiscard]] agent::Start server_start_of(const LaunchPlan& plan, int server, size_t host,
                                           const wire::Secret& secret);

/// The places of a job that begins, each with a new member in its first incarnation; of epoch 0.
[[nodiscard]] std::vector<agent::Subject> new_members(const wire::Digest& job, int places);
/// Who they are, for all agents. `members`: by rank, of one epoch; `hosts`: the number of each one's
/// host. Pure.
[[nodiscard]] agent::Message announce_members(const JobFacts& job,
                                              std::span<const agent::Subject> members,
                                              std::span<const size_t> hosts, bool last = false);

/// The size of the terminal behind `fd`; nothing if it is none.
[[nodiscard]] std::optional<winsize> terminal_size(int fd);

}  // namespace corro::launch
