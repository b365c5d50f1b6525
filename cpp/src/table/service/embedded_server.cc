#include "table/service/embedded_server.h"

#include <fmt/format.h>
#include <poll.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <span>
#include <utility>

#include "base/own_thread.h"
#include "io/socket.h"

namespace corro::table {
namespace {

/// Between two looks whether a rank that has not said that it is through is still there.
constexpr Duration kAskAgain = std::chrono::seconds(1);

}  // namespace

Result<std::unique_ptr<EmbeddedServer>> EmbeddedServer::start(
    const Environment& environment, Duration patience, const std::function<bool()>& interrupted) {
  CORRO_ASSIGN(auto recorder, obs::TableRecorder::create());
  const int shown = recorder->fd();
  CORRO_ASSIGN(auto agent, wire::ServerBootstrap::join(environment, monotonic_now() + patience,
                                                       std::span(&shown, 1), interrupted));
  const wire::ServerPlace& place = agent.place();
  CORRO_ASSIGN(io::Fd listener, io::listen_tcp(place.listen));
  CORRO_ASSIGN(const io::SocketAddress address, io::local_address(listener.get()));
  CORRO_ASSIGN(io::EventFd unused, io::EventFd::create());
  CORRO_ASSIGN(io::EventFd stop, io::EventFd::create());
  CORRO_ASSIGN(auto server, TableServer::create({.job = place.digest,
                                                 .secret = place.secret,
                                                 .index = place.index,
                                                 .ranks = place.ranks,
                                                 .servers = place.servers,
                                                 .recorder = recorder.get()},
                                                std::move(listener)));
  const Status published = agent.publish(address);
  if (published.code() == Code::kAlreadyExists)
    return Status(Code::kFailedPrecondition,
                  fmt::format("table server {}: another process of this rank is it", place.index));
  CORRO_TRY(published);
  return std::unique_ptr<EmbeddedServer>(new EmbeddedServer(std::move(recorder), std::move(agent),
                                                            std::move(server), std::move(unused),
                                                            std::move(stop)));
}

EmbeddedServer::EmbeddedServer(std::unique_ptr<obs::TableRecorder> recorder,
                               wire::ServerBootstrap agent, std::unique_ptr<TableServer> server,
                               io::EventFd unused, io::EventFd stop)
    : recorder_(std::move(recorder)),
      agent_(std::move(agent)),
      server_(std::move(server)),
      unused_(std::move(unused)),
      stop_(std::move(stop)),
      thread_(start_own_thread("corro-server", [this] { run(); })) {}

EmbeddedServer::~EmbeddedServer() {
  unused_.ring();
  stop_.ring();
  thread_.join();
}

/// A server that fails is lost, as one whose process has ended: nobody reaches it any more.
void EmbeddedServer::run() {
  try {
    const Status status = serve();
    if (!status.ok()) fmt::print(stderr, "corro: table server: {}\n", status.message());
  } catch (const std::exception& why) {
    fmt::print(stderr, "corro: table server: {}\n", why.what());
  }
  server_.reset();
  recorder_->clear();
}

Status EmbeddedServer::serve() {
  CORRO_TRY(server_->serve_until(unused_.fd()));
  server_->end_own_pushes();
  return server_->serve_until(stop_.fd());
}

Status EmbeddedServer::leave() {
  unused_.ring();
  CORRO_TRY(agent_.say_unused());
  for (int32_t rank = 0; rank < agent_.place().ranks; ++rank) CORRO_TRY(wait_for(rank));
  return {};
}

Status EmbeddedServer::wait_for(int32_t rank) {
  while (true) {
    Status status = agent_.wait_unused(rank, monotonic_now() + kAskAgain);
    if (status.code() == Code::kNotFound) return {};
    if (status.code() != Code::kDeadlineExceeded) return status;
    if (!listens(rank)) return {};  // Its process has ended, and said nothing.
  }
}

/// Whether there is anybody where a rank's server has listened.
bool EmbeddedServer::listens(int32_t rank) {
  const auto address = agent_.find(rank);
  if (!address.ok()) return true;
  const auto connection = io::connect_tcp(*address);
  if (!connection.ok()) return connection.status().code() != Code::kUnavailable;
  if (!io::wait_ready(connection->get(), POLLOUT, monotonic_now() + kAskAgain)) return true;
  return io::connect_result(connection->get()).code() != Code::kUnavailable;
}

}  // namespace corro::table
