// Fits a Calibration to measured runs.
#pragma once

#include <span>
#include <vector>

#include "plan/cost/runs.h"

namespace corro::plan {

struct FitResult {
  Calibration calibration = {};
  double mean_error = 0;  ///< Of |predicted / measured - 1|.
  double median_error = 0;
  double worst_error = 0;
  uint32_t iterations = 0;
};

/// Maximum a posteriori: Gauss-Newton with Levenberg-Marquardt damping on the logarithms of the
/// fields, residuals log(predicted / measured) with a pseudo-Huber loss (a run in ten is disturbed
/// by what no model knows), and each field's prior. Deterministic. INVALID_ARGUMENT without a run
/// that has a time, or with one that cannot be.
[[nodiscard]] Result<FitResult> fit_calibration(std::span<const MeasuredRun> runs,
                                                const Machine& machine);

/// Runs of one model each are left out in turn, and predicted from a fit to the others.
struct LeftOut {
  std::string model;  ///< "hidden 3072, layers 30".
  size_t runs = 0;
  double mean_error = 0;
  double median_error = 0;
  double regret = 0;  ///< Measured time of the run predicted fastest, over the fastest, - 1.
};
[[nodiscard]] Result<std::vector<LeftOut>> leave_models_out(std::span<const MeasuredRun> runs,
                                                            const Machine& machine);

inline constexpr size_t kMostFits = 40;

/// One fit for each run without it, where there are at most kMostFits runs; else of every k-th.
[[nodiscard]] Result<double> leave_one_out_error(std::span<const MeasuredRun> runs,
                                                 const Machine& machine);

}  // namespace corro::plan
