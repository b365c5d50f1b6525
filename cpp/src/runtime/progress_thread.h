// ProgressThread: the thread that moves the engine while no caller does.
//
//   parked     it sleeps until it is unparked, or a rank may be lost
//   moving     it holds the baton as long as anything is in flight, and sleeps in between while
//              only a peer can go on
//
// No work is left behind: the thread says that it is parked before it releases the baton, and
// whoever leaves something undone, or posts it, unparks it. So nobody can take the baton and leave
// work behind unseen.
#pragma once

#include <atomic>
#include <thread>

#include "runtime/baton.h"
#include "runtime/ladder.h"
#include "runtime/mover.h"
#include "runtime/watch.h"

namespace corro::runtime {

/// Thread-safe, but for its beginning and its end.
class ProgressThread {
 public:
  /// What it uses is borrowed.
  ProgressThread(Mover& mover, Watch& watch, Baton& baton, LadderOptions ladder)
      : mover_(mover), watch_(watch), baton_(baton), ladder_(ladder) {}

  void start();
  [[nodiscard]] bool started() const { return thread_.joinable(); }
  /// Returns when the thread has ended. Nothing may be in flight any more.
  void stop();
  /// There is something to do.
  void unpark() {
    if (parked_.exchange(0, std::memory_order_seq_cst) == 1) watch_.wake();
  }
  /// Releases the baton for whoever holds it; what the holder leaves undone is this thread's.
  void release_baton() {
    const bool work_left = mover_.busy();
    baton_.release();
    if (work_left) unpark();
  }

 private:
  void run();
  void move_until_idle();
  void sleep_once();

  Mover& mover_;
  Watch& watch_;
  Baton& baton_;
  const LadderOptions ladder_;
  std::atomic<uint32_t> parked_{1};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace corro::runtime
