// Stop: one thread says "end now" to calls that wait in others.
//
//   Stop stop;
//   std::thread watcher([&] { status = client.watch(request, on_event, stop); });
//   stop.request();          // The watch returns CANCELLED at once.
//   watcher.join();
#pragma once

#include <functional>
#include <list>

#include "base/clock.h"
#include "base/guarded.h"

namespace corro::kube {

/// Thread-safe. Once requested it stays so. Outlives every call it was given to.
class Stop {
 public:
  Stop() = default;
  Stop(const Stop&) = delete;
  Stop& operator=(const Stop&) = delete;

  /// Wakes every wait and calls every waker, then returns. Never blocks.
  void request();
  [[nodiscard]] bool requested() const;
  /// Blocks until requested() or until `duration` is over. Returns requested().
  bool wait_for(Duration duration) const;

  /// Calls `wake` from request()'s thread, or at once if it was requested before. `wake` runs under
  /// a lock, so it may only hand a message on: it may not wait, throw or use this Stop. After the
  /// destructor it does not run any more.
  class Waker {
   public:
    Waker(const Stop& stop, std::function<void()> wake);
    ~Waker();
    Waker(const Waker&) = delete;
    Waker& operator=(const Waker&) = delete;

   private:
    const Stop& stop_;
    std::list<std::function<void()>>::iterator at_;
  };

 private:
  struct State {
    bool requested = false;
    std::list<std::function<void()>> wakers = {};
  };
  mutable Guarded<State> state_;
};

}  // namespace corro::kube
