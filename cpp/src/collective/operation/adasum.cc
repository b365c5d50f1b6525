#include "collective/operation/adasum.h"

#include <limits>
#include <vector>

#include "base/power_of_two.h"
#include "device/reduce.h"

namespace corro::collective {
namespace {

/// What is left of a vector whose direction the other one shares in part. One too small to have a
/// square stays as it is: it adds nothing, and 0 / 0 is no factor.
double share(double a_b, double squared) {
  return squared < std::numeric_limits<double>::min() ? 1 : 1 - a_b / (2 * squared);
}

void adasum_of_two(DType dtype, std::byte* into, const std::byte* a, const std::byte* b,
                   uint64_t count, double scale) {
  const device::Dots dots = device::dots(dtype, a, b, count);
  device::combine(dtype, into, a, scale * share(dots.a_b, dots.a_a), b,
                  scale * share(dots.a_b, dots.b_b), count);
}

/// The vectors that are left, by id of PowerOfTwo, and the memory of those that were made here.
class Tree {
 public:
  Tree(DType dtype, std::span<const std::byte* const> sources, uint64_t count)
      : dtype_(dtype), count_(count), ids_(static_cast<int32_t>(sources.size())) {
    const auto active = static_cast<size_t>(ids_.active);
    // The last sum, and sums of two sources at the start, are all that is made for two.
    if (sources.size() > 2) made_.resize(active * bytes());
    for (size_t id = 0; id < active; ++id) {
      const auto rank = static_cast<size_t>(ids_.rank_of(static_cast<int32_t>(id)));
      have_.push_back(sources[rank]);
      if (ids_.has_extra(static_cast<int32_t>(rank))) add(id, sources[rank + 1]);
    }
  }

  void sum(std::byte* into, double scale) {
    const size_t active = have_.size();
    for (size_t distance = 1; distance < active / 2; distance *= 2)
      for (size_t id = 0; id < active; id += 2 * distance) add(id, have_[id + distance]);
    adasum_of_two(dtype_, into, have_[0], have_[active / 2], count_, scale);
  }

 private:
  [[nodiscard]] size_t bytes() const { return count_ * size_of(dtype_); }
  void add(size_t id, const std::byte* other) {
    std::byte* into = made_.data() + id * bytes();
    adasum_of_two(dtype_, into, have_[id], other, count_, 1);
    have_[id] = into;
  }

  const DType dtype_;
  const uint64_t count_;
  const PowerOfTwo ids_;
  std::vector<const std::byte*> have_;
  std::vector<std::byte> made_;
};

}  // namespace

void adasum(DType dtype, std::byte* into, std::span<const std::byte* const> sources, uint64_t count,
            double scale) {
  if (sources.size() == 1) return device::scale(dtype, into, sources[0], count, scale);
  Tree(dtype, sources, count).sum(into, scale);
}

}  // namespace corro::collective
