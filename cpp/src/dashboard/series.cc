#include "dashboard/series.h"

#include <bit>

namespace corro::dashboard {

void Series::add(Point point) {
  const auto is_same = [&point](const Point& last) {
    return last.step == point.step &&
           std::bit_cast<uint64_t>(last.value) == std::bit_cast<uint64_t>(point.value);
  };
  if (!points_.empty() && is_same(points_.back())) return;
  // The last point moves on until it is far enough from the one before it.
  const size_t count = points_.size();
  if (count > 1 && point.at - points_[count - 2].at < pause_) {
    points_.back() = point;
    return;
  }
  points_.push_back(point);
  if (points_.size() <= kMost) return;
  size_t kept = 0;
  for (size_t i = 0; i < points_.size(); i += 2) points_[kept++] = points_[i];
  points_.resize(kept);
  pause_ *= 2;
}

}  // namespace corro::dashboard
