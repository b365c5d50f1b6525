#include "table/service/server.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "io/socket.h"
#include "wire/server_number.h"

namespace corro::table {
namespace {

using std::chrono::seconds;

/// A stranger has so long to say who it is.
constexpr Duration kStrangersTime = seconds(2);
constexpr size_t kMostStrangers = 128;
/// Of one client's messages in a row, before others have their turn.
constexpr int kMessagesInARow = 16;

}  // namespace

TableServer::TableServer(const Options& options, io::Fd listener, io::Loop loop, io::EventFd bell)
    : options_(options),
      listener_(std::move(listener)),
      loop_(std::move(loop)),
      bell_(std::move(bell)),
      snapshots_(disk_snapshots([fd = bell_.fd()] { io::EventFd::ring(fd); })),
      service_({.index = static_cast<uint32_t>(options.index),
                .ranks = static_cast<uint32_t>(options.ranks),
                .servers = static_cast<uint32_t>(options.servers),
                .recorder = options.recorder},
               *snapshots_,
               [this](uint64_t client, Bytes message) { send(client, std::move(message)); }) {}

Result<std::unique_ptr<TableServer>> TableServer::create(const Options& options, io::Fd listener) {
  CORRO_ASSIGN(io::Loop loop, io::Loop::create());
  CORRO_ASSIGN(io::EventFd bell, io::EventFd::create());
  std::unique_ptr<TableServer> server(
      new TableServer(options, std::move(listener), std::move(loop), std::move(bell)));
  TableServer* const self = server.get();
  CORRO_TRY(self->loop_.watch(self->bell_.fd(), EPOLLIN, [self]() { self->bell_.drain(); }));
  CORRO_TRY(self->loop_.watch(self->listener_.get(), EPOLLIN, [self]() { self->accept_all(); }));
  return server;
}

uint64_t TableServer::steps_of(const std::string& table) const {
  const ServedTable* const found = service_.find(table);
  return found == nullptr ? 0 : found->steps();
}

// -- connections ----------------------------------------------------------------------------------

void TableServer::turn(Time until) {
  Time wake = std::min(until, service_.wake());
  for (const auto& client : clients_ | std::views::values)
    if (!client.connection->is_known())
      wake = std::min(wake, client.connection->accepted() + kStrangersTime);
  loop_.turn(service_.has_work() ? monotonic_now() : wake);
  const Time now = monotonic_now();
  close_strangers(now);
  service_.expire(now);
  service_.work();
  service_.publish(now);
}

Status TableServer::serve_until(int stop) {
  bool is_asked = false;
  CORRO_TRY(loop_.watch(stop, EPOLLIN, [&is_asked]() { is_asked = true; }));
  while (!is_asked) turn(Time::never());
  loop_.forget(stop);
  return {};
}

void TableServer::leave() {
  service_.leave();
  while (!admitted_.empty() && !service_.is_released()) turn(Time::never());
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
  const uint64_t number = clients_.at(fd).number;
  service_.dismiss(number);
  admitted_.erase(number);
  clients_.erase(fd);
}

/// It is another one's from now on.
void TableServer::give_away(int fd) {
  loop_.forget(fd);
  ServerConnection& connection = *clients_.at(fd).connection;
  if (options_.on_sums) options_.on_sums(connection.rank(), connection.release());
  clients_.erase(fd);
}

void TableServer::on_ready(int fd) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;
  // Its worker comes again if it has not finished; there is nobody to tell otherwise.
  if (!advance(found->second).ok()) return close(fd);
  if (found->second.connection->is_for_sums()) give_away(fd);
}

Status TableServer::advance(Client& client) {
  ServerConnection& connection = *client.connection;
  for (int i = 0; i < kMessagesInARow && connection.reads(); ++i) {
    CORRO_ASSIGN(auto message, connection.receive());
    if (!message) break;
    if (admitted_.emplace(client.number, connection.fd()).second)
      service_.admit(client.number, static_cast<uint32_t>(connection.rank()));
    heard_ = client.number;
    const Status status =
        service_.hear(client.number, message->header, message->body, monotonic_now());
    heard_ = 0;
    CORRO_TRY(status);
  }
  CORRO_TRY(connection.flush());
  if (connection.is_for_sums()) return {};
  watch(client);
  return {};
}

void TableServer::watch(Client& client) {
  const ServerConnection& connection = *client.connection;
  const uint32_t reads = connection.reads() ? EPOLLIN : 0U;
  const uint32_t writes = connection.has_unsent() ? EPOLLOUT : 0U;
  (void)loop_.change(connection.fd(), reads | writes);
}

/// An answer, or news. A connection that is over is closed when the loop comes to it.
void TableServer::send(uint64_t number, Bytes message) {
  Client& client = clients_.at(admitted_.at(number));
  client.connection->send(std::move(message));
  if (number != heard_ && client.connection->flush().ok()) watch(client);
}

}  // namespace corro::table
