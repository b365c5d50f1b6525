// WorkQueue: which jobs are to be looked at, when, and by one worker each.
//
//   queue.add(uid);                                        // any thread
//   while (std::optional<WorkQueue::Work> work = queue.take()) {   // each worker
//     ...
//     queue.done(work->key);
//   }
//
// The story of a key: it is unknown until somebody adds it, then it is due at some time; it is in
// work from take() to done(), and what is added meanwhile makes it due again afterwards. So a key
// is never in two workers' hands, and no addition is lost. Of several times the earliest counts.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/guarded.h"

namespace corro::kube {

/// Thread-safe.
class WorkQueue {
 public:
  /// `now` is the clock of all times; called from any thread.
  explicit WorkQueue(std::function<corro::Time()> now = monotonic_now) : now_(std::move(now)) {}

  /// Makes the key due now.
  void add(const std::string& key) { add_after(key, Duration::zero()); }
  /// Makes the key due after `delay`, or earlier if it already is.
  void add_after(const std::string& key, Duration delay);

  struct Work {
    std::string key;
    Duration waited;  ///< Since it was due.
  };
  /// Blocks until a key is due, and hands it out, the one that has been due longest first. Nothing
  /// once the queue is closed.
  [[nodiscard]] std::optional<Work> take();
  /// As take(), but nothing if no key is due now.
  [[nodiscard]] std::optional<Work> try_take();
  /// The key's work went well: its failures are forgotten.
  void done(const std::string& key);
  /// The key's work failed: it is due again after 50 ms, and twice as long after each further
  /// failure in a row, up to 30 s.
  void failed(const std::string& key);

  /// Every take() returns nothing from now on.
  void close();

  /// Keys that are due, and how long the first of them has been.
  struct Backlog {
    size_t due = 0;
    Duration oldest = Duration::zero();
  };
  [[nodiscard]] Backlog backlog() const;

 private:
  struct Entry {
    std::optional<corro::Time> due = {};
    uint32_t failures = 0;
    bool in_work = false;
  };
  struct State {
    std::map<std::string, Entry> entries = {};
    std::set<std::pair<corro::Time, std::string>> waiting = {};  ///< Those not in work.
    bool is_closed = false;
  };
  static void make_due(State& state, const std::string& key, corro::Time due);
  [[nodiscard]] std::optional<Work> take_due(State& state) const;
  void end(State& state, const std::string& key);

  const std::function<corro::Time()> now_;
  mutable Guarded<State> state_;
};

}  // namespace corro::kube
