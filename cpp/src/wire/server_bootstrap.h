// How a table server and the ranks of its job find each other: by the agents' store. The server
// writes where it listens, and any rank reads that, on whichever host.
//
//   server                                       rank
//   ServerBootstrap::join(environment, ...)
//   io::listen_tcp(place().listen)
//   publish(io::local_address(listener))         find_servers(environment, patience)
//
// With CORRO_SERVERS=ranks each rank is a server, too. Its process ends once no rank needs its rows
// any more, so each says by say_unused() that it uses no table any more, and asks all others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/env.h"
#include "base/status.h"
#include "io/socket.h"
#include "wire/agent_bootstrap.h"
#include "wire/digest.h"

namespace corro::wire {

/// Which server of which job this process is.
struct ServerPlace {
  int32_t index = 0;
  int32_t servers = 1;  ///< With which the job began; one that came later has that number or more.
  int32_t ranks = 1;
  std::string job = {};  ///< Its name.
  Digest digest{};       ///< digest_of() that, for the handshake.
  Secret secret{};
  io::SocketAddress listen = {};  ///< Port 0: any that is free.
};

/// The server's end of the agent's socket. Externally synchronized.
class ServerBootstrap {
 public:
  /// Reads the place from what `corro run` has set, and says HELLO to the agent. FAILED_PRECONDITION
  /// unless `corro run` has started this process as a server, or as a rank that is one, too.
  /// `descriptors`: passed to the agent with that; borrowed. `interrupted`: asked several times a
  /// second; may be empty.
  static Result<ServerBootstrap> join(const Environment& environment, Time deadline,
                                      std::span<const int> descriptors = {},
                                      const std::function<bool()>& interrupted = {});

  [[nodiscard]] const ServerPlace& place() const { return place_; }
  /// Tells the ranks of all hosts where this server listens; once. Blocks until the agent has it.
  [[nodiscard]] Status publish(const io::SocketAddress& address);
  /// Where another server listens, which has published that. Blocks for milliseconds.
  [[nodiscard]] Result<io::SocketAddress> find(int32_t server);
  /// Tells all that this rank uses no table any more; once.
  [[nodiscard]] Status say_unused();
  /// Blocks until a rank has said that, or it is `deadline`: DEADLINE_EXCEEDED. NOT_FOUND if it has
  /// ended without.
  [[nodiscard]] Status wait_unused(int32_t rank, Time deadline);

 private:
  ServerBootstrap(std::unique_ptr<AgentBootstrap> agent, ServerPlace place)
      : agent_(std::move(agent)), place_(std::move(place)) {}

  std::unique_ptr<AgentBootstrap> agent_;
  ServerPlace place_;
};

/// What a rank has to know to use its job's servers.
struct JobServers {
  Digest job{};  ///< digest_of() its name, for the handshake.
  Secret secret{};
  std::vector<std::string> addresses;  ///< "ADDRESS:PORT" of each server, by number.
};

/// In a rank: the servers of its job, over a connection of its own to the agent, whether there is an
/// engine or not. Blocks until all have said where they listen; DEADLINE_EXCEEDED after `patience`,
/// CANCELLED once `interrupted` says so. NOT_FOUND if the job has no servers, or one has ended
/// before it said where it is: then the message is what has become of it. Any thread.
[[nodiscard]] Result<JobServers> find_servers(const Environment& environment, Duration patience,
                                              const std::function<bool()>& interrupted = {});

}  // namespace corro::wire
