// What ranks tell of their training, together: how far it is, how fast, and the values that they log.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dashboard/picture.h"

namespace corro::dashboard {

/// Of all ranks together; more are left out.
inline constexpr size_t kMostNames = 32;

/// A step that was the newest one of any rank at some time.
struct StepPoint {
  UnixTime at{};
  uint64_t step = 0;
};

/// A value that ranks log.
struct Metric {
  std::string name;
  double mean = 0;  ///< Of the ranks' newest values.
  double least = 0;
  double most = 0;
  uint64_t step = 0;  ///< The newest one.
  size_t ranks = 0;   ///< That log it.
};
/// Of the ranks that run; of all if none does. In the order in which ranks have begun to log them. One
/// value that is no number makes the mean none.
[[nodiscard]] std::vector<Metric> metrics_of(const std::vector<RankRow>& ranks);

/// How far the training is.
struct Progress {
  uint64_t step = 0;                            ///< Of the rank that is furthest.
  std::optional<uint64_t> of = {};              ///< Steps in all; none: no rank has told.
  std::optional<double> steps_per_second = {};  ///< 0: it stands still. None: not known.
  std::optional<double> eta_seconds = {};  ///< Until the last step; none: not known, or it is over.
};
/// None: no rank has told a step. `steps`: by time.
[[nodiscard]] std::optional<Progress> progress_of(const JobPicture& job,
                                                  std::span<const StepPoint> steps, UnixTime now);

/// "about 12 min left".
[[nodiscard]] std::string describe_eta(double seconds);

}  // namespace corro::dashboard
