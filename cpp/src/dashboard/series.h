// Series: a value over a whole job, in a bounded number of points.
//
// A point is kept if it comes late enough after the last one. Once there are kMost, every second one
// goes, and points are kept half as often. So the course of a job of any length has 150 to 300 points
// at about equal distances, and the newest value is always the last one.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "base/unix_time.h"

namespace corro::dashboard {

/// Pure. Externally synchronized.
class Series {
 public:
  static constexpr size_t kMost = 300;

  struct Point {
    UnixTime at{};
    uint64_t step = 0;
    double value = 0;
  };

  /// The same value of the same step is left out.
  void add(Point point);
  [[nodiscard]] const std::vector<Point>& points() const { return points_; }

 private:
  std::vector<Point> points_;
  UnixTime::duration pause_ = std::chrono::milliseconds(900);  ///< Between points that are kept.
};

}  // namespace corro::dashboard
