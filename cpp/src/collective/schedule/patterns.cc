#include "collective/schedule/patterns.h"

#include <algorithm>

namespace corro::collective {

Shares::Shares(int32_t contributors, int32_t aggregators) : contributors_(contributors) {
  const auto n = static_cast<uint64_t>(contributors);
  const auto k = static_cast<uint64_t>(aggregators);
  if (k == 0 || n == 1) {  // one contributor has nobody to add to
    contributor_weight_ = 1;
    aggregator_weight_ = 0;
  } else if (k >= n) {
    contributor_weight_ = 0;
    aggregator_weight_ = 1;
  } else {
    contributor_weight_ = n - k;
    aggregator_weight_ = 2 * (n - 1);
  }
  total_weight_ = n * contributor_weight_ + k * aggregator_weight_;
}

bool Shares::owns(int32_t member) const {
  return (member < contributors_ ? contributor_weight_ : aggregator_weight_) != 0;
}

uint64_t Shares::weight_before(int32_t member) const {
  const auto contributors = static_cast<uint64_t>(std::min(member, contributors_));
  const auto aggregators = static_cast<uint64_t>(std::max(member - contributors_, 0));
  return contributors * contributor_weight_ + aggregators * aggregator_weight_;
}

Range Shares::of(int32_t member, uint64_t count) const {
  const auto boundary = [&](int32_t i) {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>(static_cast<Wide>(count) * weight_before(i) / total_weight_);
  };
  const uint64_t begin = boundary(member);
  return {begin, boundary(member + 1) - begin};
}

Layout::Layout(std::span<const uint64_t> counts, uint64_t count, int32_t size)
    : even_(counts.empty()), size_(size), count_(count), largest_(even_ ? count : 0) {
  if (even_) return;
  starts_.reserve(counts.size() + 1);
  starts_.push_back(0);
  for (const uint64_t c : counts) {
    starts_.push_back(starts_.back() + c);
    largest_ = std::max(largest_, c);
  }
}

uint64_t Layout::count_of_run(int32_t first, int32_t length) const {
  const int32_t end = first + length;
  if (end <= size_) return offset(end) - offset(first);
  return total() - offset(first) + offset(end - size_);
}

}  // namespace corro::collective
