// EventFd, Alarm and Epoll: how a thread sleeps until something happens.
//
//   Epoll epoll = Epoll::create().value();
//   EventFd doorbell = EventFd::create().value();
//   CORRO_TRY(epoll.add(doorbell.fd(), EPOLLIN, /*data=*/7, Trigger::kEdge));
//   std::array<epoll_event, 16> events;
//   CORRO_ASSIGN(size_t n, epoll.wait(events, 100ms));
#pragma once

#include <sys/epoll.h>

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "base/status.h"
#include "io/fd.h"

namespace corro::io {

/// A counter in the kernel that makes its descriptor readable: a doorbell. ring() may be called by
/// any thread or process that holds the descriptor; drain() by the one that sleeps on it.
class EventFd {
 public:
  static Result<EventFd> create();
  /// Takes over a descriptor that a peer passed.
  explicit EventFd(Fd fd) : fd_(std::move(fd)) {}

  /// Makes the descriptor readable. Never blocks, never fails while the descriptor is open.
  void ring() const { ring(fd_.get()); }
  static void ring(int fd);
  /// Makes it unreadable again; true if it had been rung.
  bool drain() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

/// A clock's alarm that makes its descriptor readable. Loop-confined.
class Alarm {
 public:
  static Result<Alarm> create();

  /// Goes off at `time`, or never; replaces what was set, and silences what went off.
  void set(Time time) const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit Alarm(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

enum class Trigger : uint8_t { kLevel, kEdge };

/// An epoll set. Loop-confined.
class Epoll {
 public:
  static Result<Epoll> create();

  /// Watches `fd` for `events` (EPOLLIN, EPOLLOUT, ...); reports it with `data`. The caller removes
  /// it before closing.
  [[nodiscard]] Status add(int fd, uint32_t events, uint64_t data,
                           Trigger trigger = Trigger::kLevel);
  [[nodiscard]] Status modify(int fd, uint32_t events, uint64_t data,
                              Trigger trigger = Trigger::kLevel);
  /// Forgets `fd`; does nothing if it is not watched.
  void remove(int fd);
  /// Blocks until something is ready or `timeout` is over (rounded up to a millisecond; negative:
  /// no time-out). Returns how many of `events` were filled; 0 also when a signal interrupted.
  [[nodiscard]] Result<size_t> wait(std::span<epoll_event> events, Duration timeout);
  /// The set's own descriptor, readable while anything in it is ready: sets can be nested.
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  explicit Epoll(Fd fd) : fd_(std::move(fd)) {}
  Fd fd_;
};

}  // namespace corro::io
