#include "table/service/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "io/socket.h"
#include "wire/server_number.h"

namespace corro::table {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A stranger has so long to say who it is.
constexpr Duration kStrangersTime = seconds(2);
constexpr size_t kMostStrangers = 128;
constexpr size_t kMostTables = 4096;
/// Of one client's messages in a row, before others have their turn.
constexpr int kMessagesInARow = 16;

}  // namespace

TableServer::TableServer(const Options& options, io::Fd listener, io::Loop loop)
    : options_(options), listener_(std::move(listener)), loop_(std::move(loop)) {}

Result<std::unique_ptr<TableServer>> TableServer::create(const Options& options, io::Fd listener) {
  CORRO_ASSIGN(io::Loop loop, io::Loop::create());
  std::unique_ptr<TableServer> server(
      new TableServer(options, std::move(listener), std::move(loop)));
  TableServer* const self = server.get();
  CORRO_TRY(self->loop_.watch(self->listener_.get(), EPOLLIN, [self]() { self->accept_all(); }));
  return server;
}

uint64_t TableServer::steps_of(const std::string& table) const {
  const auto found = tables_.find(table);
  return found == tables_.end() ? 0 : found->second.table->steps();
}

// -- connections ----------------------------------------------------------------------------------

void TableServer::turn(Time until) {
  Time wake = until;
  for (const auto& kept : tables_ | std::views::values)
    for (const Waiting& waiting : kept.waiting) wake = std::min(wake, waiting.deadline);
  for (const auto& client : clients_ | std::views::values)
    if (!client.connection->is_known())
      wake = std::min(wake, client.connection->accepted() + kStrangersTime);
  loop_.turn(wake);
  const Time now = monotonic_now();
  close_strangers(now);
  expire_pushes(now);
}

Status TableServer::serve_until(const io::Fd& stop) {
  bool over = false;
  CORRO_TRY(loop_.watch(stop.get(), EPOLLIN, [&over]() { over = true; }));
  while (!over) turn(Time::never());
  loop_.forget(stop.get());
  return {};
}

void TableServer::accept_all() {
  while (true) {
    auto accepted = io::accept_connection(listener_.get());
    if (!accepted.ok() || accepted->get() < 0) return;
    const int fd = accepted->get();
    if (!io::configure_tcp(fd).ok()) continue;
    const wire::HandshakeIdentity identity{.job = options_.job,
                                           .epoch = 0,
                                           .rank = wire::kFirstServer + options_.index,
                                           .size = options_.ranks};
    Client& client = clients_[fd];
    client = {++last_number_,
              std::make_unique<ServerConnection>(std::move(accepted).value(), identity,
                                                 options_.secret, monotonic_now())};
    if (!loop_.watch(fd, EPOLLIN, [this, fd]() { on_ready(fd); }).ok()) close(fd);
  }
}

void TableServer::close_strangers(Time now) {
  std::vector<std::pair<Time, int>> strangers;
  for (const auto& [fd, client] : clients_)
    if (!client.connection->is_known()) strangers.emplace_back(client.connection->accepted(), fd);
  std::ranges::sort(strangers);
  const size_t too_many = strangers.size() > kMostStrangers ? strangers.size() - kMostStrangers : 0;
  for (size_t i = 0; i < strangers.size(); ++i)
    if (i < too_many || strangers[i].first + kStrangersTime <= now) close(strangers[i].second);
}

void TableServer::close(int fd) {
  loop_.forget(fd);
  clients_.erase(fd);
}

void TableServer::on_ready(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  // Its worker comes again if it has not finished; there is nobody to tell otherwise.
  if (!advance(found->second).ok()) close(fd);
}

Status TableServer::advance(Client& client) {
  ServerConnection& connection = *client.connection;
  for (int i = 0; i < kMessagesInARow && connection.reads(); ++i) {
    CORRO_ASSIGN(auto message, connection.receive());
    if (!message) break;
    CORRO_TRY(hear(client, *message));
  }
  CORRO_TRY(connection.flush());
  watch(client);
  return {};
}

void TableServer::watch(Client& client) {
  const ServerConnection& connection = *client.connection;
  const uint32_t reads = connection.reads() ? EPOLLIN : 0U;
  const uint32_t writes = connection.has_unsent() ? EPOLLOUT : 0U;
  (void)loop_.change(connection.fd(), reads | writes);
}

// -- messages -------------------------------------------------------------------------------------

Status TableServer::hear(Client& client, const ServerConnection::Message& message) {
  Status status = answer(client, message);
  if (status.ok()) return {};
  // What no worker sends ends the connection; what a user can do wrong is answered.
  if (status.code() == Code::kInternal) return status;
  const Header& header = message.header;
  client.connection->send(encode_message(
      {.kind = MessageKind::kError, .table = header.table, .request = header.request},
      encode_error(status)));
  return {};
}

Status TableServer::answer(Client& client, const ServerConnection::Message& message) {
  if (message.header.kind == MessageKind::kOpen) return open(client, message);
  if (message.header.kind == MessageKind::kLost) return give_up(client, message);
  const auto found = client.connection->tables.find(message.header.table);
  if (found == client.connection->tables.end())
    return {Code::kInternal, "table: a message about a table that was not opened"};
  if (message.header.kind == MessageKind::kPull) return pull(client, message, *found->second);
  if (message.header.kind == MessageKind::kPush) return push(client, message, *found->second);
  return {Code::kInternal, "table: a message that servers send"};
}

Status TableServer::open(Client& client, const ServerConnection::Message& message) {
  CORRO_ASSIGN(const Open open, decode_open(message.body));
  if (static_cast<int32_t>(open.rank) != client.connection->rank() ||
      static_cast<int32_t>(open.ranks) != options_.ranks)
    return {Code::kFailedPrecondition,
            fmt::format("table {}: rank {} of {} asks as rank {} of {}", open.spec.name,
                        client.connection->rank(), options_.ranks, open.rank, open.ranks)};
  auto found = tables_.find(open.spec.name);
  if (found == tables_.end()) {
    if (tables_.size() >= kMostTables)
      return {Code::kResourceExhausted, fmt::format("table: {} are the most", kMostTables)};
    CORRO_ASSIGN(auto table, ServedTable::create(open));
    found = tables_.emplace(open.spec.name, Kept{std::move(table), {}}).first;
  }
  ServedTable& table = *found->second.table;
  CORRO_TRY(table.open(open));
  client.connection->tables[message.header.table] = &table;
  client.connection->send(encode_message({.kind = MessageKind::kOpened,
                                          .table = message.header.table,
                                          .request = message.header.request},
                                         encode_opened({table.steps()})));
  for (const uint32_t server : lost_) client.connection->send(encode_lost(0, server));
  return {};
}

Status TableServer::give_up(Client& client, const ServerConnection::Message& message) {
  CORRO_ASSIGN(const uint32_t server, decode_lost(message.body));
  if (server >= static_cast<uint32_t>(wire::kMostServers)) return {Code::kInternal, "no server"};
  client.connection->send(encode_lost(message.header.request, server));
  if (!lost_.insert(server).second) return {};
  for (auto& other : clients_ | std::views::values) {
    if (!other.connection->is_known() || other.number == client.number) continue;
    other.connection->send(encode_lost(0, server));
    // A connection that is over is closed when the loop comes to it.
    if (other.connection->flush().ok()) watch(other);
  }
  return {};
}

Status TableServer::pull(Client& client, const ServerConnection::Message& message,
                         ServedTable& table) {
  CORRO_ASSIGN(const auto keys, decode_pull(message.body));
  const size_t row = table.spec().dim * sizeof(float);
  if (keys.size() > kMaxBodyBytes / row)
    return {Code::kInvalidArgument,
            fmt::format("table {}: {} rows at once; {} are the most", table.spec().name,
                        keys.size(), kMaxBodyBytes / row)};
  Bytes rows(kHeaderBytes + keys.size() * row);
  std::ranges::copy(encode_header({.kind = MessageKind::kRows,
                                   .table = message.header.table,
                                   .request = message.header.request,
                                   .body = static_cast<uint32_t>(keys.size() * row)}),
                    rows.begin());
  auto* const values = reinterpret_cast<float*>(rows.data() + kHeaderBytes);
  table.pull(keys, std::span(values, keys.size() * table.spec().dim));
  client.connection->send(std::move(rows));
  return {};
}

Status TableServer::push(Client& client, const ServerConnection::Message& message,
                         ServedTable& table) {
  CORRO_ASSIGN(const Push push, decode_push(message.body, table.spec().dim));
  const auto rank = static_cast<uint32_t>(client.connection->rank());
  CORRO_ASSIGN(const ServedTable::Taken taken, table.take(rank, push));
  Kept& kept = tables_.at(table.spec().name);
  const Waiting waiting{.fd = client.connection->fd(),
                        .connection = client.number,
                        .table = message.header.table,
                        .request = message.header.request,
                        .step = push.head.step,
                        .deadline = monotonic_now() + milliseconds(push.head.patience_ms)};
  if (taken != ServedTable::Taken::kWhole) {
    reply(waiting, MessageKind::kPushed, {});
    return {};
  }
  kept.waiting.push_back(waiting);
  if (table.ready()) finish_step(kept);
  return {};
}

void TableServer::finish_step(Kept& kept) {
  const Status status = kept.table->apply();
  for (const Waiting& waiting : std::exchange(kept.waiting, {})) {
    if (status.ok()) {
      reply(waiting, MessageKind::kPushed, {});
    } else {
      reply(waiting, MessageKind::kError, encode_error(status));
    }
  }
}

void TableServer::expire_pushes(Time now) {
  for (auto& [name, kept] : tables_) {
    const auto is_late = [now](const Waiting& waiting) { return waiting.deadline <= now; };
    std::vector<Waiting> late;
    std::ranges::copy_if(kept.waiting, std::back_inserter(late), is_late);
    std::erase_if(kept.waiting, is_late);
    for (const Waiting& waiting : late)
      reply(
          waiting, MessageKind::kError,
          encode_error({Code::kDeadlineExceeded,
                        fmt::format("table {}: push {}: server {} waits for {}", name, waiting.step,
                                    options_.index, kept.table->describe_missing())}));
  }
}

/// To whoever has asked, if the connection is still there.
void TableServer::reply(const Waiting& to, MessageKind kind, BytesView body) {
  const auto found = clients_.find(to.fd);
  if (found == clients_.end() || found->second.number != to.connection) return;
  Client& client = found->second;
  client.connection->send(
      encode_message({.kind = kind, .table = to.table, .request = to.request}, body));
  // A connection that is over is closed when the loop comes to it.
  if (client.connection->flush().ok()) watch(client);
}

}  // namespace corro::table
