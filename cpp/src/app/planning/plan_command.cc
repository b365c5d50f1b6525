#include <unistd.h>

#include "app/planning/planning.h"
#include "app/program.h"
#include "diagnosis/exit_status.h"

namespace corro::app {
namespace {

Result<Outcome> carry_out(const PlanCommand& command, const Variables& environment) {
  switch (command.action) {
    case PlanAction::kPlan: {
      const bool color = isatty(STDOUT_FILENO) != 0 && value_of(environment, "NO_COLOR").empty();
      return plan_job(command, color);
    }
    case PlanAction::kFit:
      return fit_runs(command);
    case PlanAction::kPredict:
      return predict_runs(command);
    case PlanAction::kPartition:
      return partition_instance(command);
    case PlanAction::kCompare:
      return compare_plans(command);
    case PlanAction::kWhatif:
      return plan_without(command);
    case PlanAction::kExport:
      return export_plan(command);
    case PlanAction::kTables:
      return plan_tables(command);
    case PlanAction::kMeasure:
    case PlanAction::kProbe:
      break;
  }
  return probe_hosts(command, environment);
}

}  // namespace

int plan_command(const PlanCommand& command, const Variables& environment) {
  const std::string name = name_of(command.action);
  if (command.action == PlanAction::kMeasure) return measure_plans(command);
  const auto outcome = carry_out(command, environment);
  if (!outcome.ok()) {
    complain(outcome.status().with_context(name).message());
    return diagnosis::kUsageExit;
  }
  for (const std::string& remark : outcome->remarks) complain(name + ": " + remark);
  Status status = write_files(outcome->files);
  if (status.ok()) status = print_text(outcome->printed);
  if (status.ok()) return 0;
  complain(status.with_context(name).message());
  return 1;
}

}  // namespace corro::app
