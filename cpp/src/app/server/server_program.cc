#include "app/server/server_program.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <chrono>
#include <csignal>
#include <span>

#include "app/program.h"
#include "app/server/aggregator_thread.h"
#include "diagnosis/exit_status.h"
#include "io/socket.h"
#include "table/service/server.h"

namespace corro::app {
namespace {

constexpr Duration kJoinPatience = std::chrono::seconds(60);  ///< Unless CORRO_TIMEOUT says it.
constexpr int kFailed = 1;

}  // namespace

int ServerProgram::run() {
  const auto status = join_and_serve();
  if (status.ok()) return *status;
  if (status.status().code() == Code::kCancelled && stopped()) return 0;
  complain("corro server: " + status.status().message());
  return status.status().code() == Code::kFailedPrecondition ? diagnosis::kUsageExit : kFailed;
}

Result<int> ServerProgram::join_and_serve() {
  const Time deadline = monotonic_now() + environment_.timeout.value_or(kJoinPatience);
  CORRO_ASSIGN(const auto recorder, obs::TableRecorder::create());
  const int shown = recorder->fd();
  CORRO_ASSIGN(auto agent, wire::ServerBootstrap::join(environment_, deadline, std::span(&shown, 1),
                                                       [this] { return stopped(); }));
  const wire::ServerPlace& place = agent.place();
  CORRO_ASSIGN(io::Fd listener, io::listen_tcp(place.listen));
  CORRO_ASSIGN(const io::SocketAddress address, io::local_address(listener.get()));
  CORRO_TRY(agent.publish(address));
  return serve_(place, std::move(listener), stop_, *recorder);
}

bool ServerProgram::stopped() const { return io::wait_ready(stop_.get(), POLLIN, Time{}); }

Result<int> serve_tables(const wire::ServerPlace& place, io::Fd listener, const io::Fd& stop,
                         obs::TableRecorder& recorder) {
  CORRO_ASSIGN(const auto aggregator, AggregatorThread::start());
  const table::TableServer::Options options{.job = place.digest,
                                            .secret = place.secret,
                                            .index = place.index,
                                            .ranks = place.ranks,
                                            .servers = place.servers,
                                            .recorder = &recorder,
                                            .on_sums = [&](int32_t rank, io::Fd connection) {
                                              aggregator->admit(rank, std::move(connection));
                                            }};
  CORRO_ASSIGN(const auto server, table::TableServer::create(options, std::move(listener)));
  CORRO_TRY(server->serve_until(stop.get()));
  server->leave();
  return 0;
}

io::Fd stop_on_sigterm() {
  sigset_t asked;
  sigemptyset(&asked);
  sigaddset(&asked, SIGTERM);
  sigprocmask(SIG_BLOCK, &asked, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return io::Fd(signalfd(-1, &asked, SFD_CLOEXEC | SFD_NONBLOCK));
}

}  // namespace corro::app
