// TableServer: keeps a part of each table of a job, and serves the job's ranks.
//
//   CORRO_ASSIGN(auto server, TableServer::create({.job = ..., .secret = ..., ...}, listener));
//   while (!over) server->turn(until);
//
// One thread does it all, so rows need no lock. What is done with what ranks say is the service's
// matter (service.h).
//
// Between messages it hands pages of snapshots to their writers' threads, one each time (snapshot_store.h).
//
// A connection that breaks takes nothing along: its rank comes again, opens its tables, and says
// once more what was not answered. What a stranger sends ends its connection, and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/clock.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"
#include "io/loop.h"
#include "table/service/server_connection.h"
#include "table/service/service.h"

namespace corro::table {

/// Loop-confined.
class TableServer {
 public:
  struct Options {
    wire::Digest job{};
    wire::Secret secret{};
    int32_t index = 0;                       ///< Of this server.
    int32_t ranks = 1;                       ///< Of the job.
    int32_t servers = 1;                     ///< With which the job begins.
    obs::TableRecorder* recorder = nullptr;  ///< Borrowed, for as long as the server is there.
    /// Takes a rank's connection that is for sums. Null: such ones are turned away.
    std::function<void(int32_t rank, io::Fd connection)> on_sums = {};
  };

  /// `listener`: of listen_tcp().
  [[nodiscard]] static Result<std::unique_ptr<TableServer>> create(const Options& options,
                                                                   io::Fd listener);
  TableServer(const TableServer&) = delete;
  TableServer& operator=(const TableServer&) = delete;

  /// Blocks until something happens, or it is `until`, and does what follows.
  void turn(Time until);
  /// Blocks until the descriptor `stop` is readable.
  [[nodiscard]] Status serve_until(int stop);
  /// The rank of its number, in whose process it is, pushes no more: who waits for that is told.
  void end_own_pushes() { service_.end_own_pushes(); }
  /// Has its rows copied to others. Blocks until that is done, or no rank is there.
  void leave();

  /// What a table holds here; zeros if there is none of this name.
  [[nodiscard]] uint64_t steps_of(const std::string& table) const;

 private:
  struct Client {
    uint64_t number = 0;  ///< Tells it from a connection of before with the same descriptor.
    std::unique_ptr<ServerConnection> connection;
  };

  TableServer(const Options& options, io::Fd listener, io::Loop loop, io::EventFd bell);
  void accept_all();
  void on_ready(int fd);
  Status advance(Client& client);
  void close(int fd);
  void give_away(int fd);
  void close_strangers(Time now);
  void watch(Client& client);

  void send(uint64_t client, Bytes message);

  const Options options_;
  io::Fd listener_;
  io::Loop loop_;
  uint64_t last_number_ = 0;
  std::unordered_map<int, Client> clients_;  ///< By descriptor.
  std::map<uint64_t, int> admitted_;         ///< Descriptors of those that the service knows.
  uint64_t heard_ = 0;                       ///< The client whose message is being answered.
  io::EventFd bell_;                         ///< Rung by threads that write snapshots.
  std::unique_ptr<SnapshotStore> snapshots_;
  TableService service_;
};

}  // namespace corro::table
