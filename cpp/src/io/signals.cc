#include "io/signals.h"

#include <fmt/format.h>

#include <array>
#include <utility>

namespace corro::io {
namespace {

using Name = std::pair<int, const char*>;

// sigabbrev_np() would need glibc 2.32.
constexpr std::array kNames = {
    Name{SIGHUP, "SIGHUP"},       Name{SIGINT, "SIGINT"},       Name{SIGQUIT, "SIGQUIT"},
    Name{SIGILL, "SIGILL"},       Name{SIGTRAP, "SIGTRAP"},     Name{SIGABRT, "SIGABRT"},
    Name{SIGBUS, "SIGBUS"},       Name{SIGFPE, "SIGFPE"},       Name{SIGKILL, "SIGKILL"},
    Name{SIGUSR1, "SIGUSR1"},     Name{SIGSEGV, "SIGSEGV"},     Name{SIGUSR2, "SIGUSR2"},
    Name{SIGPIPE, "SIGPIPE"},     Name{SIGALRM, "SIGALRM"},     Name{SIGTERM, "SIGTERM"},
    Name{SIGSTKFLT, "SIGSTKFLT"}, Name{SIGCHLD, "SIGCHLD"},     Name{SIGCONT, "SIGCONT"},
    Name{SIGSTOP, "SIGSTOP"},     Name{SIGTSTP, "SIGTSTP"},     Name{SIGTTIN, "SIGTTIN"},
    Name{SIGTTOU, "SIGTTOU"},     Name{SIGURG, "SIGURG"},       Name{SIGXCPU, "SIGXCPU"},
    Name{SIGXFSZ, "SIGXFSZ"},     Name{SIGVTALRM, "SIGVTALRM"}, Name{SIGPROF, "SIGPROF"},
    Name{SIGWINCH, "SIGWINCH"},   Name{SIGIO, "SIGIO"},         Name{SIGPWR, "SIGPWR"},
    Name{SIGSYS, "SIGSYS"},
};

}  // namespace

std::string signal_name(int signal) {
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) {
    return signal == SIGRTMIN ? "SIGRTMIN" : fmt::format("SIGRTMIN+{}", signal - SIGRTMIN);
  }
  for (const auto& [known, name] : kNames) {
    if (known == signal) return name;
  }
  return fmt::format("signal {}", signal);
}

std::string_view signal_meaning(int signal) {
  switch (signal) {
    case SIGSEGV:
      return "segmentation fault";
    case SIGBUS:
      return "bus error: memory that is not there";
    case SIGABRT:
      return "it aborted itself";
    case SIGFPE:
      return "arithmetic error";
    case SIGILL:
      return "illegal instruction: built for another CPU?";
    case SIGKILL:
      return "by somebody or something outside";
    default:
      return "";
  }
}

sigset_t forwarded_signals() {
  sigset_t set;
  sigfillset(&set);
  for (const int signal : {SIGKILL, SIGSTOP, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS,
                           SIGABRT, SIGCHLD, SIGPIPE, SIGTTIN, SIGTTOU}) {
    sigdelset(&set, signal);
  }
  return set;
}

bool asks_to_stop(int signal) {
  return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace corro::io
