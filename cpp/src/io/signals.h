// Signals by name, and which ones the launcher passes on.
#pragma once

#include <signal.h>

#include <string>
#include <string_view>
#include <vector>

namespace corro::io {

/// Returns "SIGTERM", "SIGRTMIN+1", or "signal 99".
[[nodiscard]] std::string signal_name(int signal);
/// A few words for people: "segmentation fault"; "" if the name says it.
[[nodiscard]] std::string_view signal_meaning(int signal);

/// Every signal that can be sent to the launcher and makes sense to its workers: all but those that
/// cannot be caught, those by which a program reports its own faults, SIGCHLD, SIGPIPE, SIGTTIN
/// and SIGTTOU.
[[nodiscard]] sigset_t forwarded_signals();

/// True for the signals by which people and schedulers end a program: INT, TERM, HUP, QUIT.
[[nodiscard]] bool asks_to_stop(int signal);

}  // namespace corro::io
