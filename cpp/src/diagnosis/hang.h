// Who waits for whom too long, from what the ranks of a job say they do, look after look.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnosis/verdict.h"

namespace corro::diagnosis {

/// Longer than this, and longer than ten usual steps, unless the user has said how long.
inline constexpr Duration kLongWait = std::chrono::seconds(2);
inline constexpr int kLongWaitSteps = 10;

/// Ranks that wait for another one.
struct LongWait {
  std::string text;  ///< "": nobody waits too long.
  int awaited = -1;
  Duration since{};  ///< How long the first of them has waited.
};

/// Pure: time is injected. Loop-confined.
class HangWatch {
 public:
  /// `bound`: a wait is long above it; zero: no wait is. None: see kLongWait.
  explicit HangWatch(std::optional<Duration> bound = {}) : bound_(bound) {}
  /// Takes what the ranks do now, by rank. The text says who waits for whom, in which operation,
  /// for how long, and what that rank does instead. If several are waited for: of those that wait
  /// for nobody themselves, the one for whom most wait.
  [[nodiscard]] LongWait look(std::span<const RankEnd> ranks, Time now);

 private:
  /// How fast a rank's steps follow each other, as far as it was seen.
  struct Pace {
    uint64_t first_step = 0, last_step = 0;
    Time first{}, last{};
  };
  void note_steps(std::span<const RankEnd> ranks, Time now);
  /// The slowest rank's; zero while none is known.
  [[nodiscard]] Duration usual_step() const;

  std::optional<Duration> bound_;
  std::vector<Pace> paces_;
};

}  // namespace corro::diagnosis
