// What the commands of `corro plan` do, each by itself: files in, texts out. The program writes and
// prints what comes back.
#pragma once

#include <string>
#include <vector>

#include "app/plan_cli.h"
#include "app/whole_files.h"
#include "base/variables.h"

namespace corro::app {

struct Outcome {
  std::string printed;  ///< For stdout.
  std::vector<OutputFile> files = {};
};

/// Makes a plan and reports it. `color`: stdout shows colours.
[[nodiscard]] Result<Outcome> plan_job(const PlanCommand& command, bool color);
/// Makes plans with and without hosts, and compares them. The files are of the second one.
[[nodiscard]] Result<Outcome> plan_without(const PlanCommand& command);
[[nodiscard]] Result<Outcome> compare_plans(const PlanCommand& command);
[[nodiscard]] Result<Outcome> export_plan(const PlanCommand& command);
[[nodiscard]] Result<Outcome> fit_runs(const PlanCommand& command);
[[nodiscard]] Result<Outcome> predict_runs(const PlanCommand& command);
[[nodiscard]] Result<Outcome> partition_instance(const PlanCommand& command);
/// Starts the job that runs every plan (python/corro/torch/measure.py). Returns its exit status.
[[nodiscard]] int measure_plans(const PlanCommand& command, const Variables& environment);
/// Measures this machine, or several, for a cluster file.
[[nodiscard]] Result<Outcome> probe_hosts(const PlanCommand& command, const Variables& environment);

}  // namespace corro::app
