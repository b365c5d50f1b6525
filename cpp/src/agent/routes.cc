#include "agent/routes.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <memory>

#include "io/random.h"
#include "io/socket.h"

namespace corro::agent {
namespace {

constexpr uint64_t kListener = UINT64_MAX;

Result<io::Fd> listen_everywhere() {
  for (const char* any : {"[::]:0", "0.0.0.0:0"}) {
    CORRO_ASSIGN(const auto address, io::SocketAddress::parse(any));
    auto listener = io::listen_tcp(address);
    if (listener.ok()) return listener;
  }
  return Status(Code::kUnavailable, "no TCP port to listen on");
}

io::Fd open_spare() { return io::Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

}  // namespace

Result<std::unique_ptr<Routes>> Routes::create() {
  CORRO_ASSIGN(io::Epoll epoll, io::Epoll::create());
  CORRO_ASSIGN(io::Fd listener, listen_everywhere());
  CORRO_ASSIGN(const auto here, io::local_address(listener.get()));
  CORRO_TRY(epoll.add(listener.get(), EPOLLIN, kListener));
  return std::unique_ptr<Routes>(new Routes(std::move(epoll), std::move(listener), here.port()));
}

void Routes::close() {
  (void)take();
  epoll_.remove(listener_.get());
  listener_.reset();
  take_caller_ = {};
  spare_.reset();
}

Routes::Routes(io::Epoll epoll, io::Fd listener, int32_t port)
    : epoll_(std::move(epoll)), listener_(std::move(listener)), port_(port) {
  io::fill_random(token_);
  spare_ = open_spare();
}

void Routes::poll() {
  std::array<epoll_event, 64> events{};
  const auto ready = epoll_.wait(events, Duration::zero());
  const size_t count = ready.ok() ? *ready : 0;
  for (size_t i = 0; i < count; ++i) {
    if (events[i].data.u64 == kListener) {
      accept_all();
      continue;
    }
    const auto fd = static_cast<int>(events[i].data.u64);
    const auto dial = std::ranges::find(dials_, fd, [](const Dial& one) { return one.fd.get(); });
    if (dial != dials_.end()) look_at(static_cast<size_t>(dial - dials_.begin()));
  }
}

/// Nobody is kept: what has connected gets the token, and the end.
void Routes::accept_all() {
  while (true) {
    auto caller = io::accept_connection(listener_.get());
    const bool full = !caller.ok();
    if (full) {
      // Without a descriptor for it the caller would wait, and the listener stay readable.
      spare_.reset();
      caller = io::accept_connection(listener_.get());
    }
    const bool called = caller.ok() && caller->valid();
    if (called) (void)io::send_some(caller->get(), token_);
    if (called && !full && take_caller_) take_caller_(std::move(*caller));
    if (called) caller->reset();
    if (full) spare_ = open_spare();
    if (!called) return;
  }
}

void Routes::dial(const std::vector<RouteTarget>& targets) {
  for (size_t t = 0; t < targets.size(); ++t) {
    const RouteTarget& target = targets[t];
    for (size_t a = 0; a < target.addresses.size(); ++a) {
      const auto address =
          io::SocketAddress::parse_host(target.addresses[a], static_cast<uint16_t>(target.port));
      if (!address.ok()) continue;
      auto fd = io::connect_tcp(*address);
      if (!fd.ok()) continue;
      const auto key = static_cast<uint64_t>(fd->get());
      if (!epoll_.add(fd->get(), EPOLLIN, key).ok()) continue;
      dials_.push_back({.target = t,
                        .address = a,
                        .expected = target.token,
                        .route = {.host = target.host, .address = target.addresses[a]},
                        .fd = std::move(*fd)});
    }
  }
}

/// The other side has said its token, or hung up.
void Routes::look_at(size_t place) {
  Dial& dial = dials_[place];
  RouteToken said{};
  const io::Received received = io::receive_message(dial.fd.get(), said);
  if (received.would_block) return;
  const bool leads_there = received.bytes == said.size() && said == dial.expected;
  epoll_.remove(dial.fd.get());
  dial.fd.reset();
  if (leads_there) found_.push_back(std::move(dial));
  dials_.erase(dials_.begin() + static_cast<std::ptrdiff_t>(place));
}

std::vector<Route> Routes::take() {
  std::ranges::sort(found_, {},
                    [](const Dial& dial) { return std::pair(dial.target, dial.address); });
  std::vector<Route> routes;
  for (Dial& dial : found_) routes.push_back(std::move(dial.route));
  found_.clear();
  for (const Dial& dial : dials_) epoll_.remove(dial.fd.get());
  dials_.clear();
  return routes;
}

}  // namespace corro::agent
