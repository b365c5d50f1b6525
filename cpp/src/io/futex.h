// Futex: sleeping on a 32-bit word of this process.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <ctime>

#include "base/clock.h"

namespace corro::io {

/// Sleeps while `word` equals `expected`, at most `timeout` (negative: until woken). Spurious
/// returns are possible.
inline void futex_wait(const std::atomic<uint32_t>& word, uint32_t expected, Duration timeout) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (timeout - seconds).count()};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected,
          timeout < Duration::zero() ? nullptr : &limit, nullptr, 0);
}

/// Wakes every thread that sleeps on the word.
inline void futex_wake_all(const std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace corro::io
