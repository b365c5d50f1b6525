// Ladder: how a thread waits: spin, then yield, then sleep. Collectives.md's measurements: a cache
// line arrives in 0.1 us, a yield costs 0.7 us, a wake-up 25 us; so each rung is worth trying for
// about the cost of the next.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace corro::runtime {

struct LadderOptions {
  uint32_t spins = 2000;   ///< Polls with a pause between; 0 when ranks outnumber cores.
  uint32_t yields = 1000;  ///< Polls with sched_yield between.
};

/// How a caller waits beside `local_size` ranks that share `cores` cores' worth of time. A rank
/// that spins there without a core of its own keeps the one that it waits for from running. `spin`:
/// the user's choice.
[[nodiscard]] inline LadderOptions caller_ladder(std::optional<Duration> spin, int32_t local_size,
                                                 double cores) {
  constexpr int64_t kSpinNs = 50;  ///< A spin with its poll takes about so long.
  LadderOptions ladder;
  if (local_size > cores) ladder.spins = 0;
  if (spin)
    ladder.spins = static_cast<uint32_t>(std::min<int64_t>(spin->count() / kSpinNs, 1 << 30));
  return ladder;
}

/// A poll that asks the kernel for each peer's stream takes as long as so many of memory alone.
inline constexpr uint32_t kStreamPoll = 32;

/// Loop-confined.
class Ladder {
 public:
  explicit Ladder(LadderOptions options) : options_(options) {}

  void reset() { step_ = 0; }
  /// Waits a little; false when the next rung is to sleep. `poll` is what the poll before it cost,
  /// in polls of memory.
  bool climb(uint32_t poll = 1) {
    if (step_ >= options_.spins + options_.yields) return false;
    if (step_ < options_.spins) {
      step_ = std::min(step_ + poll, options_.spins);
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else {
      ++step_;
      sched_yield();
    }
    return true;
  }

 private:
  LadderOptions options_;
  uint32_t step_ = 0;
};

}  // namespace corro::runtime
