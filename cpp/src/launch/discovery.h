// HostDiscovery: asks a program of the user's, again and again, which hosts there are.
//
//   waiting   until a second after the last answer
//   asking    it runs, and what it prints is kept. It has 30 s
//
// Each run ends in an answer: the hosts, or why there are none. What was known before holds then.
#pragma once

#include <signal.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "launch/hosts.h"
#include "launch/options.h"
#include "launch/shell_program.h"

namespace corro::launch {

inline constexpr Duration kDiscoveryPause = std::chrono::seconds(1);
inline constexpr Duration kDiscoveryPatience = std::chrono::seconds(30);

/// Loop-confined. Nobody else reaps the program.
class HostDiscovery {
 public:
  using Answer = Result<std::vector<HostSlots>>;

  /// `command`: for /bin/sh. It prints a line for each host, as in a hostfile. `own`: the name of
  /// this machine, which may be printed under several. `mask`: the command's signal mask.
  HostDiscovery(std::string command, std::string own, const sigset_t& mask)
      : command_(std::move(command)), own_(std::move(own)), mask_(mask) {}
  HostDiscovery(const HostDiscovery&) = delete;
  HostDiscovery& operator=(const HostDiscovery&) = delete;
  ~HostDiscovery() = default;

  /// Starts the program when it is time, and returns what it has said once it has ended. The
  /// failure is one line: it ended with a status, printed what are no hosts, or takes too long.
  [[nodiscard]] std::optional<Answer> poll(Time now);
  /// When poll() has something to do.
  [[nodiscard]] Time due() const;
  /// For messages.
  [[nodiscard]] std::string source() const { return "--host-discovery " + command_; }

 private:
  Answer finish(Time now, const Status& failure);

  std::string command_;
  std::string own_;
  sigset_t mask_;
  std::unique_ptr<ShellProgram> program_;  ///< Null: it does not run.
  Time next_{};                            ///< A look at it, or its start.
  Time until_ = Time::never();
};

/// Asks until there are `slots` in all: blocks for at most `patience`. `wait` hears of each answer
/// that has too few, or of why there is none, once for several alike. DEADLINE_EXCEEDED says what
/// the last answer was, or that none has come.
[[nodiscard]] HostDiscovery::Answer wait_for_hosts(
    HostDiscovery& discovery, int slots, Duration patience,
    const std::function<void(const std::string&)>& wait);

}  // namespace corro::launch
