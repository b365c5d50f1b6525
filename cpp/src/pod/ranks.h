// The ranks of a CorroJob: `corro run` as it is, in a process below the head, with `corro rsh` as
// its remote shell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/messages.h"

namespace corro::pod {

struct RanksOptions {
  std::string program;  ///< The path of this one.
  std::string job;
  int workers = 1;
  int slots = 1;
  uint16_t port = 0;  ///< Of the head.
};

/// What starts run_ranks(): "PROGRAM ranks PORT HOSTS CORRO DIRECTORY COMMAND...". Pure.
[[nodiscard]] std::vector<std::string> words_for_ranks(const RanksOptions& options,
                                                       const agent::Enlist& enlisted);

/// Runs the ranks; returns as `corro run` does. `arguments`: after "ranks".
[[nodiscard]] int run_ranks(const std::vector<std::string>& arguments, const std::string& program,
                            const std::string& version);

}  // namespace corro::pod
