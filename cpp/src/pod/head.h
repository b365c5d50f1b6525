// The head of a job: the one process of it that listens. What it decides is in switchboard.h; here
// are the sockets.
//
//   a connection  proves its key within 10 s, or is closed
//                 its first message says what it is for: ENLIST, REACH or SESSION
//                 a remote shell and a session that are joined hear each other from then on; when
//                 one ends, the other is closed once it has what was said
//
// A CorroJob's ranks are `corro run` in a process below it (ranks.h).
#pragma once

#include <string>

#include "pod/settings.h"

namespace corro::pod {

struct HeadOptions {
  PodSettings settings;
  std::string listen;   ///< "0.0.0.0:7077"; port 0 takes a free one.
  std::string program;  ///< The path of this one.
  std::string version;
  bool has_folder = false;  ///< settings.sync is here (folder.h).
};

/// Serves until a signal asks for the end; returns 128 + signal, or 2 if it cannot begin. Says
/// "corro head: listening at ADDRESS" on stdout once it does. The calling process has no threads.
[[nodiscard]] int run_head(const HeadOptions& options);

}  // namespace corro::pod
