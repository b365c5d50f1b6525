// The command line of `corro plan` and of `corro probe`: what the user gives, checked as far as
// that can be done without opening a file.
#pragma once

#include <string>
#include <vector>

#include "launch/preflight.h"
#include "plan/partition/partition_command.h"
#include "plan/search/decision.h"

namespace corro::app {

enum class PlanAction : uint8_t {
  kPlan,
  kMeasure,
  kFit,
  kPredict,
  kPartition,
  kCompare,
  kWhatif,
  kExport,
  kTables,
  kProbe
};

/// What decides a plan. Files are named, not read.
struct PlanQuestion {
  std::string model = {};  ///< File, or the name of a known one.
  std::string cluster = {};
  std::string params = {};    ///< Calibration file; "": the defaults.
  std::string profile = {};   ///< Profile file; "": none.
  uint32_t sequence = 0;      ///< 0: as the model says.
  uint32_t global_batch = 0;  ///< 0: the planner's choice.
  double samples = 0;
  double bytes_per_sample = 0;
  double memory_limit = 0;  ///< Bytes; 0: as the planner has it.
  plan::Objective objective = plan::Objective::kTime;
  plan::Trainer trainer = plan::Trainer::kCorro;
  plan::Pins pins = {};
};

struct PlanCommand {
  PlanAction action = PlanAction::kPlan;
  PlanQuestion question;             ///< kPlan, kMeasure, kWhatif.
  std::vector<std::string> removed;  ///< kWhatif: names of hosts.
  bool explain = false;
  std::string json;  ///< Files to write; "": none, "-": stdout. Of kTables, too.
  std::string svg;
  std::string html;
  std::vector<std::string> files;  ///< Inputs of the other actions.
  std::string output;              ///< Of kFit, kPredict, kProbe, kExport; "": stdout.
  std::string target;              ///< kExport: "corro" or "megatron".
  plan::PartitionRequest partition;
  launch::PreflightOptions hosts;  ///< kProbe, kMeasure.
};

struct PlanRequest {
  std::string text;  ///< Help for stdout; "": the command is to be carried out.
  PlanCommand command;
};

/// Reads the arguments after the program's name, which begin with "plan" or "probe".
/// INVALID_ARGUMENT "corro plan: --tp: ..." for a value that cannot be and for what is missing.
[[nodiscard]] Result<PlanRequest> parse_plan_line(const std::vector<std::string>& arguments);

/// Under which name errors of the command are shown: "corro plan fit".
[[nodiscard]] std::string name_of(PlanAction action);

}  // namespace corro::app
