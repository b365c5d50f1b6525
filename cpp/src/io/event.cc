#include "io/event.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

namespace corro::io {

Result<EventFd> EventFd::create() {
  Fd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!fd.valid()) return status_from_errno("eventfd", errno);
  return EventFd(std::move(fd));
}

void EventFd::ring(int fd) {
  const uint64_t one = 1;
  // EAGAIN means that the counter is full: it is readable, which is all that a ring is for.
  while (::write(fd, &one, sizeof(one)) < 0 && errno == EINTR) {
  }
}

bool EventFd::drain() const {
  uint64_t count = 0;
  while (true) {
    const ssize_t got = ::read(fd_.get(), &count, sizeof(count));
    if (got == sizeof(count)) return true;
    if (got < 0 && errno == EINTR) continue;
    return false;
  }
}

Result<Alarm> Alarm::create() {
  Fd fd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!fd.valid()) return status_from_errno("timerfd", errno);
  return Alarm(std::move(fd));
}

void Alarm::set(Time time) const {
  itimerspec spec{};  // All zero: never.
  if (time != Time::never()) {
    const auto since = std::max(time.since_start, Duration(1));
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since);
    spec.it_value.tv_sec = seconds.count();
    spec.it_value.tv_nsec = std::chrono::nanoseconds(since - seconds).count();
  }
  timerfd_settime(fd_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

Result<Epoll> Epoll::create() {
  Fd fd(epoll_create1(EPOLL_CLOEXEC));
  if (!fd.valid()) return status_from_errno("epoll_create1", errno);
  return Epoll(std::move(fd));
}

namespace {

Status control(int epoll, int operation, int fd, uint32_t events, uint64_t data, Trigger trigger) {
  epoll_event event{};
  event.events = events | (trigger == Trigger::kEdge ? static_cast<uint32_t>(EPOLLET) : 0U);
  event.data.u64 = data;
  if (epoll_ctl(epoll, operation, fd, &event) == 0) return {};
  return status_from_errno(fmt::format("epoll: watch descriptor {}", fd), errno);
}

}  // namespace

Status Epoll::add(int fd, uint32_t events, uint64_t data, Trigger trigger) {
  return control(fd_.get(), EPOLL_CTL_ADD, fd, events, data, trigger);
}

Status Epoll::modify(int fd, uint32_t events, uint64_t data, Trigger trigger) {
  return control(fd_.get(), EPOLL_CTL_MOD, fd, events, data, trigger);
}

void Epoll::remove(int fd) {
  epoll_event unused{};
  epoll_ctl(fd_.get(), EPOLL_CTL_DEL, fd, &unused);
}

Result<size_t> Epoll::wait(std::span<epoll_event> events, Duration timeout) {
  constexpr int64_t kMaxMs = std::numeric_limits<int>::max();
  const int64_t ms =
      std::min<int64_t>(kMaxMs, std::chrono::ceil<std::chrono::milliseconds>(timeout).count());
  const int room =
      static_cast<int>(std::min<size_t>(events.size(), std::numeric_limits<int>::max()));
  const int count = epoll_wait(fd_.get(), events.data(), room,
                               timeout < Duration::zero() ? -1 : static_cast<int>(ms));
  if (count >= 0) return static_cast<size_t>(count);
  if (errno == EINTR) return size_t{0};
  return status_from_errno("epoll_wait", errno);
}

}  // namespace corro::io
