// Commands about runs and instances that others have measured.
#include <chrono>

#include "app/planning/long_wait.h"
#include "app/planning/plan_question.h"
#include "app/planning/planning.h"
#include "plan/cost/calibration_file.h"
#include "plan/cost/run_report.h"
#include "plan/json.h"
#include "plan/partition/partition.h"
#include "plan_files/plan_files.h"

namespace corro::app {
namespace {

constexpr size_t kMostRunBytes = size_t{64} << 20U;

Result<plan::RunTable> load_runs(const std::string& path) {
  CORRO_ASSIGN(const std::string text, plan_files::read_text(path, kMostRunBytes));
  return plan::read_runs(text, path);
}

}  // namespace

Result<Outcome> fit_runs(const PlanCommand& command) {
  CORRO_ASSIGN(const plan::RunTable table, load_runs(command.files[0]));
  CORRO_ASSIGN(const plan::Machine machine, read_machine_of(command.question.cluster, {}));
  const LongWait wait("fitting");
  const auto report = plan::report_fit(table.runs, machine);
  if (!report.ok()) return report.status().with_context(command.files[0]);
  Outcome outcome{.printed = plan::format_fit(*report)};
  if (!command.output.empty()) {
    outcome.files.push_back({command.output, plan::write_calibration(report->fit.calibration)});
  }
  return outcome;
}

Result<Outcome> predict_runs(const PlanCommand& command) {
  CORRO_ASSIGN(const plan::RunTable table, load_runs(command.files[0]));
  CORRO_ASSIGN(const plan::Calibration calibration, read_params(command.question.params));
  CORRO_ASSIGN(const plan::Machine machine, read_machine_of(command.question.cluster, calibration));
  CORRO_ASSIGN(std::string csv, plan::predictions_csv(table, machine, command.files[0]));
  if (command.output.empty()) return Outcome{.printed = std::move(csv)};
  return Outcome{.printed = "", .files = {{command.output, std::move(csv)}}};
}

Result<Outcome> partition_instance(const PlanCommand& command) {
  const std::string& path = command.partition.file;
  CORRO_ASSIGN(const std::string text, plan_files::read_text(path, plan::kMostJsonBytes));
  CORRO_ASSIGN(const auto instance, plan::read_instance(text, path));
  const LongWait wait("searching");
  const auto begin = std::chrono::steady_clock::now();
  const auto result = plan::solve(instance, command.partition.options);
  if (!result.ok()) return result.status().with_context(path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::string line = plan::to_json(*result, took.count());
  if (!line.ends_with('\n')) line += '\n';
  return Outcome{.printed = std::move(line)};
}

}  // namespace corro::app
