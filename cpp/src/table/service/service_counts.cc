#include "table/service/service_counts.h"

#include <algorithm>

namespace corro::table {

void ServiceCounts::add_pull(size_t rows, Duration took) {
  if (took_.size() < kKeptPulls) {
    took_.push_back(took);
  } else {
    took_[pulls_ % kKeptPulls] = took;
  }
  ++pulls_;
  pulled_rows_ += rows;
}

void ServiceCounts::add_push(size_t rows) {
  ++pushes_;
  pushed_rows_ += rows;
}

Duration ServiceCounts::pull_p99() const {
  if (took_.empty()) return Duration::zero();
  std::vector<Duration> sorted = took_;
  const auto at = static_cast<ptrdiff_t>((sorted.size() * 99 + 99) / 100) - 1;
  std::ranges::nth_element(sorted, sorted.begin() + at);
  return std::max(sorted[static_cast<size_t>(at)], Duration::zero());
}

void ServiceCounts::count(obs::TableCounts& into) const {
  into.pulls = pulls_;
  into.pulled_rows = pulled_rows_;
  into.pushes = pushes_;
  into.pushed_rows = pushed_rows_;
  into.pull_p99_ns = static_cast<uint64_t>(pull_p99().count());
}

}  // namespace corro::table
