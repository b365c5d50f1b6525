// What a fit and a prediction say of measured runs, as text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/cost/fit.h"

namespace corro::plan {

/// The machine that the runs of one table ran on: a host of the cluster, and the narrowest link
/// from the first host to another. INVALID_ARGUMENT for a cluster of several kinds of hosts: rows
/// do not say which of them ran where.
[[nodiscard]] Result<Machine> machine_of(const Cluster& cluster, const Calibration& calibration);

/// A fit, with what it says of runs that it has not seen.
struct FitReport {
  size_t runs = 0;  ///< With a time.
  FitResult fit = {};
  double leave_one_out = 0;
  std::vector<LeftOut> models = {};  ///< Empty if there is only one model.
};
/// INVALID_ARGUMENT as of fit_calibration().
[[nodiscard]] Result<FitReport> report_fit(std::span<const MeasuredRun> runs,
                                           const Machine& machine);
/// Fields, errors, and a table of the models left out. Lines of at most 100 columns.
[[nodiscard]] std::string format_fit(const FitReport& report);

/// The table with two columns more, predicted_ms and predicted_gib (of the fullest device).
/// INVALID_ARGUMENT "name:line: ..." for a run that cannot be.
[[nodiscard]] Result<std::string> predictions_csv(const RunTable& table, const Machine& machine,
                                                  std::string_view name);

}  // namespace corro::plan
