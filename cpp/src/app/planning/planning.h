// What the commands of `corro plan` do, each by itself: files in, texts out. The program writes and
// prints what comes back.
#pragma once

#include <string>
#include <vector>

#include "app/planning/plan_cli.h"
#include "app/planning/whole_files.h"
#include "base/variables.h"

namespace corro::app {

/// Plans, fits, predicts, compares or measures, as the command says. Status 2 for input that cannot
/// be, 1 for a file that cannot be written.
[[nodiscard]] int plan_command(const PlanCommand& command, const Variables& environment);

struct Outcome {
  std::string printed;  ///< For stdout.
  std::vector<OutputFile> files = {};
  std::vector<std::string> remarks = {};  ///< Lines for stderr.
};

/// Makes a plan and reports it. `color`: stdout shows colours.
[[nodiscard]] Result<Outcome> plan_job(const PlanCommand& command, bool color);
/// Makes plans with and without hosts, and compares them. The files are of the second one.
[[nodiscard]] Result<Outcome> plan_without(const PlanCommand& command);
[[nodiscard]] Result<Outcome> compare_plans(const PlanCommand& command);
[[nodiscard]] Result<Outcome> export_plan(const PlanCommand& command);
[[nodiscard]] Result<Outcome> fit_runs(const PlanCommand& command);
[[nodiscard]] Result<Outcome> predict_runs(const PlanCommand& command);
/// Decides where the tables of a file are.
[[nodiscard]] Result<Outcome> plan_tables(const PlanCommand& command);
[[nodiscard]] Result<Outcome> partition_instance(const PlanCommand& command);
/// Becomes the job that runs every plan (python/corro/torch/measure.py). Comes back with an exit
/// status if there is none.
[[nodiscard]] int measure_plans(const PlanCommand& command);
/// Measures this machine, or several, for a cluster file.
[[nodiscard]] Result<Outcome> probe_hosts(const PlanCommand& command, const Variables& environment);

}  // namespace corro::app
