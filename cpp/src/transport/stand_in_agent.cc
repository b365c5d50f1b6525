#include "transport/stand_in_agent.h"

#include <algorithm>
#include <array>

#include "base/own_thread.h"
#include "io/socket.h"

namespace corro::transport {
namespace {

constexpr uint64_t kService = Admission::kFirstForeign;
constexpr uint64_t kWake = Admission::kFirstForeign + 1;
/// So long ranks that are late may still ask when this one is done.
constexpr Duration kFarewell = std::chrono::seconds(3);

/// On all addresses, IPv6 and IPv4 where there are both, at the first free port.
Result<io::Fd> listen_at(const std::vector<uint16_t>& ports) {
  Status last;
  for (const uint16_t port : ports) {
    for (const char* any : {"::", "0.0.0.0"}) {
      CORRO_ASSIGN(const auto address, io::SocketAddress::parse_host(any, port));
      auto listener = io::listen_tcp(address);
      if (listener.ok()) return listener;
      last = listener.status();
    }
  }
  return last;
}

}  // namespace

Result<std::unique_ptr<StandInAgent>> StandInAgent::start(const Options& options) {
  auto service = wire::AgentService::create({.job = options.job,
                                             .secret = options.secret,
                                             .size = options.size,
                                             .name = options.name,
                                             .on_hello = {}});
  if (!service.ok())
    return service.status().with_context("connect: is another job of this name running?");
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::EventFd wake, io::EventFd::create());
  io::Fd listener;
  if (!options.ports.empty()) {
    CORRO_ASSIGN(listener, listen_at(options.ports));
  }
  auto host = std::unique_ptr<StandInAgent>(new StandInAgent(
      options, std::move(*service), std::move(epoll), std::move(wake), std::move(listener)));
  CORRO_TRY(host->epoll_.add(host->service_->poll_fd(), EPOLLIN, kService));
  CORRO_TRY(host->epoll_.add(host->wake_.fd(), EPOLLIN, kWake));
  CORRO_TRY(host->admission_.start());
  host->thread_ = start_own_thread("corro-bootstrap", [raw = host.get()] { raw->run(); });
  return host;
}

StandInAgent::StandInAgent(const Options& options, std::unique_ptr<wire::AgentService> service,
                           io::Epoll epoll, io::EventFd wake, io::Fd listener)
    : options_{.rank = kStandInRank,
               .size = options.size,
               .job = options.job,
               .bootstrap = nullptr,
               .secret = options.secret},
      doors_{.unix_listener = {}, .tcp_listener = std::move(listener), .record = {}},
      service_(std::move(service)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      admission_(options_, doors_, epoll_, [](int32_t /*rank*/, wire::Purpose purpose) {
        return purpose == wire::Purpose::kBootstrap;
      }) {}

StandInAgent::~StandInAgent() {
  stopping_.store(true);
  wake_.ring();
  if (thread_.joinable()) thread_.join();
}

void StandInAgent::abandon_in_child() {
  doors_.tcp_listener.reset();
  service_.reset();
}

void StandInAgent::run() {
  std::array<epoll_event, 64> events{};
  Time end = Time::never();
  while (true) {
    const Time now = monotonic_now();
    if (stopping_.load() && end == Time::never()) end = now + kFarewell;
    if (end != Time::never() && (now >= end || service_->connected() == 0)) return;
    if (all_have_left()) break;
    const auto ready = epoll_.wait(events, std::min(admission_.next_expiry(), end) - now);
    if (!ready.ok()) return;
    for (size_t i = 0; i < *ready; ++i) handle(events[i].data.u64);
    welcome();
    admission_.expire(monotonic_now());
  }
  admission_.pause();
  doors_.tcp_listener.reset();
  service_.reset();
}

bool StandInAgent::all_have_left() const {
  if (service_->connected() > 0) return false;
  for (int32_t rank = 0; rank < options_.size; ++rank) {
    if (!service_->greeted(rank)) return false;
  }
  return true;
}

void StandInAgent::handle(uint64_t event) {
  // A failure of this side's own costs whoever asked its connection; it tries again.
  if (event == kService) {
    (void)service_->poll();
  } else if (event == kWake) {
    (void)wake_.drain();
  } else {
    (void)admission_.on_event(event, monotonic_now());
  }
}

void StandInAgent::welcome() {
  for (JoinedPeer& joined : admission_.take_joined()) {
    const auto here = io::local_address(joined.socket.get());
    const auto there = io::remote_address(joined.socket.get());
    const bool elsewhere = here.ok() && there.ok() && here->host() != there->host();
    if (elsewhere && !std::exchange(reached_, true)) {
      const std::string address = here->host();
      const auto bytes = std::as_bytes(std::span(address));
      service_->supply(std::string(kReachedKey), Bytes(bytes.begin(), bytes.end()));
    }
    (void)service_->adopt(std::move(joined.socket), joined.rank);
  }
}

}  // namespace corro::transport
