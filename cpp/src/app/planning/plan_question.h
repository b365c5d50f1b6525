// The files that `corro plan` is asked about, read.
#pragma once

#include <string>
#include <vector>

#include "app/planning/plan_cli.h"
#include "plan/cost/layer_cost.h"
#include "plan/search/decision.h"

namespace corro::app {

/// Reads the model, the cluster and the calibration that are named. Fails as their readers do:
/// INVALID_ARGUMENT "file:line: field: ...", NOT_FOUND for a file or a model that is not there.
/// `remarks` gets what is to be said of the model (ModelOptions).
[[nodiscard]] Result<plan::Request> read_question(const PlanQuestion& question,
                                                  std::vector<std::string>& remarks);

/// A calibration file, or the defaults for "".
[[nodiscard]] Result<plan::Calibration> read_params(const std::string& path);

/// The machine that measured runs ran on: of a cluster file, or for "" hosts with 8 A100-80GB.
[[nodiscard]] Result<plan::Machine> read_machine_of(const std::string& cluster,
                                                    const plan::Calibration& calibration);

/// The cluster without the hosts of these names. NOT_FOUND for a name that no host has,
/// INVALID_ARGUMENT if no host is left.
[[nodiscard]] Result<plan::Cluster> without_hosts(plan::Cluster cluster,
                                                  const std::vector<std::string>& names);

}  // namespace corro::app
