// Loop: one thread waits for descriptors and for a time, and does what follows.
//
//   CORRO_ASSIGN(Loop loop, Loop::create());
//   CORRO_TRY(loop.watch(listener.fd(), EPOLLIN, [&] { use(listener); }));
//   while (!over) loop.turn(deadline);
//
// What is to be done at a time is the caller's: it looks at the clock after each turn.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "io/event.h"

namespace corro::io {

/// Loop-confined.
class Loop {
 public:
  using Handler = std::function<void()>;

  static Result<Loop> create();

  /// Has turn() call `handler` when `fd` is ready for `events` (EPOLLIN, EPOLLOUT, ...), or broken.
  /// Whoever closes it calls forget() before. A number that was closed all the same can be watched
  /// again: the new handler has its place.
  [[nodiscard]] Status watch(int fd, uint32_t events, Handler handler,
                             Trigger trigger = Trigger::kLevel);
  /// Other events, for the same handler. NOT_FOUND if it is not watched.
  [[nodiscard]] Status change(int fd, uint32_t events);
  /// Its handler is not called any more, not even for what was seen before. Does nothing if it is
  /// not watched. A handler may forget any descriptor, its own too.
  void forget(int fd);

  /// Blocks until something is ready, a signal comes, or it is `until` (rounded up to a
  /// millisecond), and calls the handlers of what is ready.
  void turn(Time until);

 private:
  struct Watched {
    uint32_t number = 0;  ///< Tells it from a descriptor of before with the same number.
    std::shared_ptr<Handler> handler;
  };

  explicit Loop(Epoll epoll) : epoll_(std::move(epoll)) {}

  Epoll epoll_;
  std::unordered_map<int, Watched> watched_;
  uint32_t last_number_ = 0;
};

}  // namespace corro::io
