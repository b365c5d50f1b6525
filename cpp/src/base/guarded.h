// Guarded<T>: a value that can be reached only while its lock is held.
//
//   Guarded<std::map<int, std::string>> names;
//   names.lock()->emplace(1, "one");
//   { auto held = names.lock(); held->erase(1); held.wait_for(10ms); }
#pragma once

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>

#include "base/thread_annotations.h"

namespace corro {

/// Thread-safe: any thread may call lock(). The returned handle is the only way to the value;
/// it must not outlive the Guarded, and must not be held while calling out or doing I/O.
template <typename T>
class CORRO_CAPABILITY("lock") Guarded {
 public:
  class CORRO_SCOPED_CAPABILITY Held {
   public:
    ~Held() CORRO_RELEASE() {}  // NOLINT(modernize-use-equals-default): Clang needs a body here.
    Held(const Held&) = delete;
    Held& operator=(const Held&) = delete;
    T* operator->() { return value_; }
    T& operator*() { return *value_; }
    /// Releases the lock until notify_all() or the time is over; returns false on time-out. After
    /// a day it may return true for nothing: the standard library's own sum of times overflows.
    bool wait_for(std::chrono::nanoseconds duration) {
      constexpr std::chrono::nanoseconds kMost = std::chrono::hours(24);
      const bool woken =
          changed_->wait_for(lock_, std::min(duration, kMost)) == std::cv_status::no_timeout;
      return woken || duration > kMost;
    }

   private:
    friend class Guarded;
    explicit Held(Guarded& guarded) CORRO_ACQUIRE(guarded) CORRO_NO_THREAD_ANALYSIS
        : lock_(guarded.mutex_),
          value_(&guarded.value_),
          changed_(&guarded.changed_) {}
    std::unique_lock<std::mutex> lock_;
    T* value_;
    std::condition_variable* changed_;
  };

  Guarded() = default;
  explicit Guarded(T value) : value_(std::move(value)) {}

  /// Blocks until no other thread holds the value. A thread that holds it already waits for ever.
  [[nodiscard]] Held lock() CORRO_ACQUIRE() { return Held(*this); }
  /// Wakes every thread inside Held::wait_for.
  void notify_all() { changed_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

}  // namespace corro
