// A job that is over, shown to browsers: `corro dash`.
#pragma once

#include <functional>
#include <string>

#include "base/status.h"

namespace corro::launch {

struct PastJobOptions {
  std::string path;     ///< history.jsonl of a job, or its folder.
  std::string address;  ///< As --dashboard of `corro run` has it.
};

/// Shows the job until SIGINT or SIGTERM. `say` is told the address for people, with a token, once it
/// is served. Fails if there is no history that can be read, or the port cannot be had; the failure is
/// one line. Blocks both signals; the calling process has no other threads.
[[nodiscard]] Status show_past_job(const PastJobOptions& options,
                                   const std::function<void(const std::string&)>& say);

}  // namespace corro::launch
