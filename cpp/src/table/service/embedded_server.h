// EmbeddedServer: a rank that is a table server, too, as `corro run --servers ranks` makes it. It
// is the server of `corro server`, on a thread of the rank's process.
//
//   CORRO_ASSIGN(auto server, EmbeddedServer::start(environment, patience));
//   ... served_tables(...) ...
//   CORRO_TRY(server->leave());   // other ranks may still need the rows that are here
//
//   serving   from start() on: it listens, and has told the other ranks where
//   unused    this rank uses no table any more, and keeps its rows for those that do; whoever waits
//             for a push of it is told that none comes
//   over      no rank uses one: it does not listen any more
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/env.h"
#include "base/status.h"
#include "io/event.h"
#include "table/service/server.h"
#include "wire/server_bootstrap.h"

namespace corro::table {

/// Externally synchronized.
class EmbeddedServer {
 public:
  /// Starts the thread. `environment`: of a rank, with CORRO_SERVERS=ranks. Blocks until its agent
  /// has heard where it listens, at most for `patience`. FAILED_PRECONDITION if another process of
  /// the rank is its server. `interrupted`: asked several times a second while a call waits; may be
  /// empty.
  [[nodiscard]] static Result<std::unique_ptr<EmbeddedServer>> start(
      const Environment& environment, Duration patience,
      const std::function<bool()>& interrupted = {});
  /// Ends the thread, whoever needs the rows.
  ~EmbeddedServer();
  EmbeddedServer(const EmbeddedServer&) = delete;
  EmbeddedServer& operator=(const EmbeddedServer&) = delete;

  /// This rank uses no table any more. Blocks until that is so of every rank, or it has ended,
  /// however long that takes. CANCELLED if it is interrupted, UNAVAILABLE if the agent is gone.
  [[nodiscard]] Status leave();

 private:
  EmbeddedServer(std::unique_ptr<obs::TableRecorder> recorder, wire::ServerBootstrap agent,
                 std::unique_ptr<TableServer> server, io::EventFd unused, io::EventFd stop);
  void run();
  [[nodiscard]] Status serve();
  [[nodiscard]] Status wait_for(int32_t rank);
  [[nodiscard]] bool listens(int32_t rank);

  std::unique_ptr<obs::TableRecorder> recorder_;  ///< The thread's.
  wire::ServerBootstrap agent_;
  std::unique_ptr<TableServer> server_;  ///< The thread's.
  io::EventFd unused_;
  io::EventFd stop_;
  std::thread thread_;
};

}  // namespace corro::table
