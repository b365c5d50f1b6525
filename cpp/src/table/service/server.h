// TableServer: keeps a part of each table of a job, and serves the job's ranks.
//
//   CORRO_ASSIGN(auto server, TableServer::create({.job = ..., .secret = ..., ...}, listener));
//   while (!over) server->turn(until);
//
// One thread does it all, so rows need no lock. What a rank asks is answered in order, but for
// PUSHED, which waits for the pushes of the other ranks (served_table.h), no longer than the rank
// has patience: then it is told for whom the step waits.
//
// A rank that cannot reach another server says so here, and all ranks hear of it: they leave that
// server together, since it would wait for the pushes of those that have left.
//
// A connection that breaks takes nothing along: its rank comes again, opens its tables, and says
// once more what was not answered. What a stranger sends ends its connection, and nothing else.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"
#include "io/loop.h"
#include "table/service/server_connection.h"

namespace corro::table {

/// Loop-confined.
class TableServer {
 public:
  struct Options {
    wire::Digest job{};
    wire::Secret secret{};
    int32_t index = 0;  ///< Of this server.
    int32_t ranks = 1;  ///< Of the job.
  };

  /// `listener`: of listen_tcp().
  [[nodiscard]] static Result<std::unique_ptr<TableServer>> create(const Options& options,
                                                                   io::Fd listener);
  TableServer(const TableServer&) = delete;
  TableServer& operator=(const TableServer&) = delete;

  /// Blocks until something happens, or it is `until`, and does what follows.
  void turn(Time until);
  /// Blocks until `stop` is readable.
  [[nodiscard]] Status serve_until(const io::Fd& stop);

  /// What a table holds here; zeros if there is none of this name.
  [[nodiscard]] uint64_t steps_of(const std::string& table) const;

 private:
  /// A push that waits for other ranks.
  struct Waiting {
    int fd = -1;
    uint64_t connection = 0;
    uint16_t table = 0;
    uint32_t request = 0;
    uint64_t step = 0;
    Time deadline;
  };
  struct Kept {
    std::unique_ptr<ServedTable> table;
    std::vector<Waiting> waiting;
  };
  struct Client {
    uint64_t number = 0;  ///< Tells it from a connection of before with the same descriptor.
    std::unique_ptr<ServerConnection> connection;
  };

  TableServer(const Options& options, io::Fd listener, io::Loop loop);
  void accept_all();
  void on_ready(int fd);
  Status advance(Client& client);
  void close(int fd);
  void close_strangers(Time now);
  void watch(Client& client);

  /// Takes one message. Fails with what ends the connection.
  Status hear(Client& client, const ServerConnection::Message& message);
  Status answer(Client& client, const ServerConnection::Message& message);
  Status open(Client& client, const ServerConnection::Message& message);
  Status pull(Client& client, const ServerConnection::Message& message, ServedTable& table);
  Status give_up(Client& client, const ServerConnection::Message& message);
  Status push(Client& client, const ServerConnection::Message& message, ServedTable& table);
  void finish_step(Kept& kept);
  void expire_pushes(Time now);
  void reply(const Waiting& to, MessageKind kind, BytesView body);

  const Options options_;
  io::Fd listener_;
  io::Loop loop_;
  uint64_t last_number_ = 0;
  std::unordered_map<int, Client> clients_;  ///< By descriptor.
  std::map<std::string, Kept> tables_;       ///< By name.
  std::set<uint32_t> lost_;                  ///< Other servers that no rank uses any more.
};

}  // namespace corro::table
