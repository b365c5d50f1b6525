#include "io/loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace corro::io {
namespace {

uint64_t key_of(int fd, uint32_t number) {
  return static_cast<uint64_t>(number) << 32U | static_cast<uint32_t>(fd);
}

}  // namespace

Result<Loop> Loop::create() {
  CORRO_ASSIGN(Epoll epoll, Epoll::create());
  return Loop(std::move(epoll));
}

Status Loop::watch(int fd, uint32_t events, Handler handler, Trigger trigger) {
  const uint32_t number = ++last_number_;
  CORRO_TRY(epoll_.add(fd, events, key_of(fd, number), trigger));
  watched_[fd] = {number, std::make_shared<Handler>(std::move(handler))};
  return {};
}

Status Loop::change(int fd, uint32_t events) {
  const auto found = watched_.find(fd);
  if (found == watched_.end())
    return {Code::kNotFound, fmt::format("descriptor {} is not watched", fd)};
  return epoll_.modify(fd, events, key_of(fd, found->second.number));
}

void Loop::forget(int fd) {
  if (watched_.erase(fd) > 0) epoll_.remove(fd);
}

void Loop::turn(Time until) {
  std::array<epoll_event, 64> events{};
  const Duration wait =
      until == Time::never() ? Duration(-1) : std::max(until - monotonic_now(), Duration::zero());
  const auto ready = epoll_.wait(events, wait);
  const size_t count = ready.ok() ? *ready : 0;
  for (size_t i = 0; i < count; ++i) {
    const uint64_t key = events[i].data.u64;
    const int fd = static_cast<int>(static_cast<uint32_t>(key));
    const auto found = watched_.find(fd);
    if (found == watched_.end() || key_of(fd, found->second.number) != key) continue;
    const std::shared_ptr<Handler> handler = found->second.handler;  // It may forget itself.
    (*handler)();
  }
}

}  // namespace corro::io
