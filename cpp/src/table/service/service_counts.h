// ServiceCounts: what a server has done with a table, for people: messages, rows, and how long pulls
// of late took.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "obs/table_recorder.h"

namespace corro::table {

/// Pure. Loop-confined.
class ServiceCounts {
 public:
  /// Of so many pulls, the last ones, the durations are kept.
  static constexpr size_t kKeptPulls = 1000;

  /// A pull of so many keys was answered; `took`: since it was heard, or since the step for which it
  /// has waited.
  void add_pull(size_t rows, Duration took);
  /// A push of so many keys, or a part of one, was taken.
  void add_push(size_t rows);

  /// Sets those of the numbers that are counted here. Costs a look at each kept duration.
  void count(obs::TableCounts& into) const;

 private:
  /// What 99 % of the kept ones do not exceed; 0: there are none.
  [[nodiscard]] Duration pull_p99() const;

  uint64_t pulls_ = 0;
  uint64_t pulled_rows_ = 0;
  uint64_t pushes_ = 0;
  uint64_t pushed_rows_ = 0;
  std::vector<Duration> took_;  ///< By pull, modulo kKeptPulls.
};

}  // namespace corro::table
