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

namespace corro {

/// Thread-safe: any thread may call lock(). The returned handle is the only way to the value;
/// it must not outlive the Guarded, and must not be held while calling out or doing I/O.
template <typename T>
class Guarded {
 public:
  class Held {
   public:
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
    Held(std::unique_lock<std::mutex> lock, T& value, std::condition_variable& changed)
        : lock_(std::move(lock)), value_(&value), changed_(&changed) {}
    std::unique_lock<std::mutex> lock_;
    T* value_;
    std::condition_variable* changed_;
  };

  Guarded() = default;
  explicit Guarded(T value) : value_(std::move(value)) {}

  [[nodiscard]] Held lock() { return Held(std::unique_lock(mutex_), value_, changed_); }
  /// Wakes every thread inside Held::wait_for.
  void notify_all() { changed_.notify_all(); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

}  // namespace corro
