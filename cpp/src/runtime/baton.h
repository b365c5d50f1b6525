// Baton: one word that says who may call the engine.
//
// A synchronous caller takes it if it is free and moves its own operation: no hand-off. The
// progress thread waits for it. Whoever releases a baton that somebody sleeps for wakes the
// sleepers; they try again.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "io/futex.h"

namespace corro::runtime {

/// Thread-safe. Taken and released by the same thread.
class Baton {
 public:
  [[nodiscard]] bool try_take() {
    uint32_t free = kFree;
    return word_.compare_exchange_strong(free, kTaken, std::memory_order_acquire);
  }
  /// Blocks until it is free.
  void take() {
    if (try_take()) return;
    while (word_.exchange(kAwaited, std::memory_order_acquire) != kFree)
      io::futex_wait(word_, kAwaited, Duration(-1));
  }
  void release() {
    if (word_.exchange(kFree, std::memory_order_release) == kAwaited) io::futex_wake_all(word_);
  }

 private:
  static constexpr uint32_t kFree = 0, kTaken = 1, kAwaited = 2;  ///< Taken, and somebody sleeps.
  std::atomic<uint32_t> word_{kFree};
};

}  // namespace corro::runtime
