#include "runtime/progress_thread.h"

#include <algorithm>

#include "base/own_thread.h"

namespace corro::runtime {
namespace {

/// A thread that never comes to sleep looks at what it watches every so many moves.
constexpr uint32_t kMovesPerLook = 64;
constexpr Duration kLongestSleep = std::chrono::milliseconds(50);

}  // namespace

void ProgressThread::start() {
  thread_ = start_own_thread("corro-progress", [this] { run(); });
}

void ProgressThread::stop() {
  stopping_.store(true, std::memory_order_seq_cst);
  watch_.wake();
  thread_.join();
}

void ProgressThread::run() {
  while (!stopping_.load(std::memory_order_seq_cst)) {
    if (!mover_.has_news()) watch_.sleep_while_idle();
    // Connections are made without the engine: a caller who moves it is not waited for.
    if (parked_.load(std::memory_order_seq_cst) == 1 && !mover_.has_news()) continue;
    parked_.store(0, std::memory_order_seq_cst);
    baton_.take();
    move_until_idle();
    parked_.store(1, std::memory_order_seq_cst);
    release_baton();
  }
}

void ProgressThread::move_until_idle() {
  Ladder ladder(ladder_);
  for (uint32_t moves = 1; true; ++moves) {
    const bool moved = mover_.move();
    if (moves % kMovesPerLook == 0) watch_.look();
    if (mover_.engine().idle() && !mover_.has_posts()) return;
    if (moved) {
      ladder.reset();
    } else if (!ladder.climb()) {
      sleep_once();
      ladder.reset();
    }
  }
}

/// Sleeps until a peer rings, a stream moves, somebody posts, a rank dies, or a deadline may be
/// over.
void ProgressThread::sleep_once() {
  Engine& engine = mover_.engine();
  parked_.store(1, std::memory_order_seq_cst);
  engine.set_sleeping(true);
  // Once more with the flags set: whoever publishes from now on rings.
  const bool moved = mover_.move();
  const Duration left = engine.next_deadline() - monotonic_now();
  if (!moved && !engine.idle() && !mover_.has_posts())
    watch_.sleep_while_busy(std::clamp<Duration>(left, Duration::zero(), kLongestSleep));
  engine.set_sleeping(false);
  parked_.store(0, std::memory_order_seq_cst);
}

}  // namespace corro::runtime
