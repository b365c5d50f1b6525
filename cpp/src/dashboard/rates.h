// Rates: how fast counters grow, over about the last ten seconds.
//
//   rates.sample({{"bytes", 4096}}, wall_now());
//   rates.of("bytes");  // a second
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "base/unix_time.h"

namespace corro::dashboard {

/// Pure: time is injected. Externally synchronized.
class Rates {
 public:
  using Counters = std::map<std::string, uint64_t>;
  static constexpr std::chrono::seconds kSpan{10};

  /// All counters as they are now. Times ascend; one that does not begins anew.
  void sample(Counters counters, UnixTime now);
  /// Per second. 0 for a counter that is new, has become less, or is not there any more.
  [[nodiscard]] double of(const std::string& name) const;

 private:
  struct Sample {
    UnixTime at;
    Counters counters;
  };
  std::deque<Sample> samples_;
};

}  // namespace corro::dashboard
