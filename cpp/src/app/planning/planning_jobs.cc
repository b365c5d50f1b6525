// Commands that make plans, and those about plans that were made.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "app/planning/long_wait.h"
#include "app/planning/plan_question.h"
#include "app/planning/planning.h"
#include "plan/plan_file.h"
#include "plan/report/decision_file.h"
#include "plan/report/drawing.h"
#include "plan/report/megatron.h"
#include "plan/report/tables_report.h"
#include "plan/report/text_report.h"
#include "plan/search/planner.h"
#include "plan_files/plan_files.h"

namespace corro::app {
namespace {

/// What is said where there is a plan; what there is not says make_plan().
Result<plan::DecisionFile> decide(const plan::Request& request) {
  const LongWait wait("planning");
  CORRO_ASSIGN(plan::Decision decision, plan::make_plan(request));
  return plan::make_decision_file(std::move(decision), request.model, request.cluster);
}

/// Adds the files that the user asked for; with --json - the plan replaces what is printed.
Status add_files(const PlanCommand& command, const plan::DecisionFile& file, Outcome& outcome) {
  if (!command.json.empty()) {
    CORRO_ASSIGN(std::string text, plan::decision_to_json(file));
    if (command.json == "-") {
      outcome.printed = std::move(text);
    } else {
      outcome.files.push_back({command.json, std::move(text)});
    }
  }
  if (!command.svg.empty()) outcome.files.push_back({command.svg, plan::decision_to_svg(file)});
  if (!command.html.empty()) outcome.files.push_back({command.html, plan::decision_to_html(file)});
  return {};
}

}  // namespace

Result<Outcome> plan_job(const PlanCommand& command, bool color) {
  std::vector<std::string> remarks;
  CORRO_ASSIGN(const plan::Request request, read_question(command.question, remarks));
  CORRO_ASSIGN(const plan::DecisionFile file, decide(request));
  Outcome outcome{.printed = plan::format_decision(file, color), .remarks = std::move(remarks)};
  if (command.explain) outcome.printed += "\n" + plan::explain_decision(file);
  CORRO_TRY(add_files(command, file, outcome));
  return outcome;
}

Result<Outcome> plan_without(const PlanCommand& command) {
  std::vector<std::string> remarks;
  CORRO_ASSIGN(plan::Request request, read_question(command.question, remarks));
  CORRO_ASSIGN(const plan::DecisionFile before, decide(request));
  request.global_batch = before.decision.global_batch;  // what is trained stays what it is
  CORRO_ASSIGN(request.cluster, without_hosts(std::move(request.cluster), command.removed));
  auto after = decide(request);
  if (!after.ok()) {
    return after.status().with_context(fmt::format("without {}", fmt::join(command.removed, ", ")));
  }
  Outcome outcome{
      .printed = plan::compare_decisions(
          before, "before", *after, fmt::format("without {}", fmt::join(command.removed, ", "))),
      .remarks = std::move(remarks)};
  if (command.explain) outcome.printed += "\n" + plan::explain_decision(*after);
  CORRO_TRY(add_files(command, *after, outcome));
  return outcome;
}

Result<Outcome> compare_plans(const PlanCommand& command) {
  CORRO_ASSIGN(const auto a, plan_files::load_decision(command.files[0]));
  CORRO_ASSIGN(const auto b, plan_files::load_decision(command.files[1]));
  // Columns are narrow: folders are shown only where they tell two files of one name apart.
  std::string name_a = std::filesystem::path(command.files[0]).filename();
  std::string name_b = std::filesystem::path(command.files[1]).filename();
  if (name_a == name_b) {
    name_a = command.files[0];
    name_b = command.files[1];
  }
  return Outcome{.printed = plan::compare_decisions(a, name_a, b, name_b)};
}

Result<Outcome> export_plan(const PlanCommand& command) {
  CORRO_ASSIGN(const auto file, plan_files::load_decision(command.files[0]));
  std::string text;
  if (command.target == "megatron") {
    text = plan::export_megatron(file);
  } else {
    CORRO_ASSIGN(text, plan::write_plan(file.decision.graph));
  }
  if (command.output.empty()) return Outcome{.printed = std::move(text)};
  return Outcome{.printed = "", .files = {{command.output, std::move(text)}}};
}

Result<Outcome> plan_tables(const PlanCommand& command) {
  CORRO_ASSIGN(const plan::Tables tables, plan_files::load_tables(command.files[0]));
  CORRO_ASSIGN(const plan::Cluster cluster, plan_files::load_cluster(command.question.cluster));
  auto decision = plan::decide_tables(tables, cluster);
  if (!decision.ok()) return decision.status().with_context(command.files[0]);
  if (command.json == "-") return Outcome{.printed = plan::tables_to_json(tables, *decision)};
  Outcome outcome{.printed = plan::format_tables(tables, *decision, cluster)};
  if (!command.json.empty()) {
    outcome.files.push_back({command.json, plan::tables_to_json(tables, *decision)});
  }
  return outcome;
}

}  // namespace corro::app
