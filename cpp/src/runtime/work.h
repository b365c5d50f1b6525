// Work: what a caller holds while its operations are on their way.
//
// One word says all that threads have to know of each other:
//   done      set by the engine, after the status: who reads it (acquire) may read the status
//   notify    set by notify(), after the queue: whoever comes second of that and done pushes the
//             cookie, so it is pushed once
//   waiting   a thread sleeps, or is about to: done wakes it
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "collective/operation/request.h"

namespace corro::runtime {

/// Cookies of finished works, for the thread that completes a framework's futures. Thread-safe.
class CompletionQueue {
 public:
  void push(uint64_t cookie);
  /// Blocks for the next cookie; DEADLINE_EXCEEDED after `timeout`, CANCELLED once closed and
  /// empty.
  Result<uint64_t> pop(Duration timeout);
  void close();

 private:
  struct State {
    std::deque<uint64_t> cookies;
    bool closed = false;
  };
  Guarded<State> state_;
};

/// One or several operations submitted as one unit. Shared by the caller's handle and, until done,
/// the engine. The const methods, wait and notify are thread-safe; the rest belongs to the engine.
class WorkState {
 public:
  explicit WorkState(std::vector<collective::OpRequest> ops)
      : requests(std::move(ops)), left(requests.size()) {}

  [[nodiscard]] bool done() const { return (state_.load(std::memory_order_acquire) & kDone) != 0; }
  /// The first failure among the operations; valid once done().
  [[nodiscard]] const Status& status() const { return status_; }
  /// Sleeps until done or the time is over (negative: for ever); true if done.
  bool wait(Duration timeout) const;
  /// Pushes `cookie` once done, at once if it is already. Call once.
  void notify(std::shared_ptr<CompletionQueue> queue, uint64_t cookie);

  /// One operation has ended; the last one makes the work done.
  void finish_one(const Status& status);

  std::vector<collective::OpRequest> requests;  ///< Borrowed by the operations in flight.
  size_t left;
  bool named = false;  ///< Each request takes its place by its name, not by the order of calls.
  bool hurry = false;  ///< With named: the caller blocks until it is done.
  bool joins = false;  ///< With named: done once every member has joined (make_join_work()).
  /// Called by the engine once done, unless empty. It must not block.
  std::function<void(const Status&)> then = {};

 private:
  static constexpr uint32_t kDone = 1, kNotify = 2, kWaiting = 4;
  mutable std::atomic<uint32_t> state_{0};
  Status status_;
  std::shared_ptr<CompletionQueue> queue_;
  uint64_t cookie_ = 0;
};

}  // namespace corro::runtime
