// ClockOffset: how far another rank's clock is from this one's, from messages both ways.
//
//   offset.heard(own_now - their_stamp);     // one of theirs has come
//   offset.answered(their_now - own_stamp);  // one of ours has come there
//   time_here = time_there + offset.nanoseconds();  // wrong by offset.error_ns() at most
//
// A message that came took some time: the least difference of each direction is the least wrong.
// (D. Mills, RFC 5905, takes the sample with the least round trip; here the directions are apart,
// since messages are not answered at once.) Clocks drift: the newest 64 samples count.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace corro::runtime {

/// Externally synchronized.
class ClockOffset {
 public:
  void heard(int64_t difference_ns) { heard_.add(difference_ns); }
  void answered(int64_t difference_ns) { answered_.add(difference_ns); }

  /// Both directions have been seen.
  [[nodiscard]] bool known() const { return heard_.count > 0 && answered_.count > 0; }
  /// 0 while it is not known.
  [[nodiscard]] int64_t nanoseconds() const {
    return known() ? (heard_.least() - answered_.least()) / 2 : 0;
  }
  [[nodiscard]] int64_t error_ns() const {
    return known() ? (heard_.least() + answered_.least()) / 2 : 0;
  }

 private:
  struct Window {
    void add(int64_t sample) { samples[count++ % samples.size()] = sample; }
    [[nodiscard]] int64_t least() const {
      return *std::min_element(
          samples.begin(),
          samples.begin() + static_cast<std::ptrdiff_t>(std::min(count, samples.size())));
    }
    std::array<int64_t, 64> samples{};
    size_t count = 0;
  };
  Window heard_, answered_;
};

}  // namespace corro::runtime
