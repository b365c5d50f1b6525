// What stands in the place of a rank where a process of the job is none: at the agent's socket, and
// in messages between agent and commander.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace corro::wire {

/// Of one job.
inline constexpr int32_t kMostServers = 1024;
/// Table server I of a job has this number + I, which is no rank's.
inline constexpr int32_t kFirstServer = 1 << 20;
/// A rank that has joined by another connection, or does not join: it asks for keys alone.
inline constexpr int32_t kReader = INT32_MAX;

[[nodiscard]] constexpr bool is_server(int32_t number) {
  return number >= kFirstServer && number < kFirstServer + kMostServers;
}

/// Where a server writes at which address it listens: "JOB/server/I".
[[nodiscard]] std::string server_key(std::string_view job, int32_t index);

}  // namespace corro::wire
