// `corro agent --coordinator`: the agent of a host that dials its coordinator (agent/commander.h).
#pragma once

#include <string>
#include <vector>

#include "agent/commander.h"
#include "base/clock.h"
#include "base/variables.h"
#include "io/socket.h"
#include "secure/tls_stream.h"

namespace corro::coordinator {

struct DiallingAgentOptions {
  std::vector<std::string> addresses;  ///< "10.0.0.1:7078", each; one after another is dialled.
  std::string host;                    ///< What it is called; "": as the system calls it.
  int slots = 0;                       ///< For ranks; 0: as many as the machine is good for.
  Duration patience = std::chrono::minutes(10);  ///< Without a coordinator, until all is ended.
  std::string version;
};

/// Runs it until the job is over (0), nobody leads for too long (75), or a signal ends it, with
/// its ranks; 2 if it cannot begin. The calling process has no threads.
[[nodiscard]] int run_dialling_agent(const DiallingAgentOptions& options,
                                     const Variables& environment);

/// The same for who knows how to dial.
[[nodiscard]] int follow_coordinators(agent::Commander::Dialling how, const std::string& version);
/// A connection that may not be made yet.
[[nodiscard]] Result<agent::MessagePipe> dial_coordinator(const io::SocketAddress& address,
                                                          const secure::Tls& tls);

}  // namespace corro::coordinator
