// How `corro plan` and `corro probe` take their arguments, in two steps. describe_plan() tells
// CLI11 the options; each value lands as text under its long name in RawPlan, whichever subcommand
// it belongs to. After parsing, finish_plan() finds out which action is meant, and Checked turns
// the texts into numbers, amounts and choices: the first that cannot be becomes the one error line
// "corro plan: --tp: must be ...". Nothing is read from a file here; plan_question.cc does that.
#include "app/planning/plan_cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "app/command_line.h"
#include "app/plan_options.h"
#include "plan/quantity.h"

namespace corro::app {
namespace {

/// Checks values as they are taken; the first that cannot be is the error.
class Checked {
 public:
  Checked(const RawPlan& raw, std::string command) : raw_(raw), command_(std::move(command)) {}

  [[nodiscard]] const std::string* find(const std::string& name) const {
    const auto value = raw_.values.find(name);
    return value == raw_.values.end() ? nullptr : &value->second;
  }
  /// "" if it was not given; "" that was given is an error.
  [[nodiscard]] std::string text(const std::string& name) {
    const std::string* value = find(name);
    if (value != nullptr && value->empty()) refuse(name, "must not be empty");
    return value == nullptr ? "" : *value;
  }
  template <typename T>
  void whole(const std::string& name, plan::RealRange range, T& result) {
    const std::string* value = find(name);
    if (value == nullptr) return;
    const auto read = plan::parse_quantity(*value, plan::Unit::kSeconds);
    // A number alone: parse_quantity() would take "2 ms", too.
    const bool plain = value->find_first_not_of("0123456789") == std::string::npos;
    if (!read || !plain || !range.holds(*read)) {
      return refuse(name, fmt::format("must be an integer from {} to {}, not {}", range.least,
                                      range.most, shown(*value)));
    }
    result = static_cast<uint32_t>(*read);
  }
  void number(const std::string& name, plan::RealRange range, double& result) {
    const std::string* value = find(name);
    if (value == nullptr) return;
    char* end = nullptr;
    result = std::strtod(value->c_str(), &end);  // libc++ has no from_chars for it
    if (value->empty() || *end != '\0' || !range.holds(result)) {
      refuse(name, fmt::format("must be a number from {} to {}, not {}", range.least, range.most,
                               shown(*value)));
    }
  }
  template <typename T>
  void bytes(const std::string& name, plan::RealRange range, T& result) {
    const std::string* value = find(name);
    if (value == nullptr) return;
    const auto read = plan::parse_quantity(*value, plan::Unit::kBytes);
    if (!read || !range.holds(*read)) {
      return refuse(name, fmt::format("must be an amount of bytes such as \"{}\", not {}",
                                      plan::example_of(plan::Unit::kBytes), shown(*value)));
    }
    const double amount = *read;
    result = amount;
  }
  void on_off(const std::string& name, std::optional<bool>& result) const {
    if (const std::string* value = find(name)) result = *value == "on";
  }
  /// CLI11 has checked that the value is one of the enum's.
  template <typename Enum, typename T>
  void choice(const std::string& name, int count, T& result) const {
    const std::string* value = find(name);
    for (int i = 0; value != nullptr && i < count; ++i) {
      if (name_of(static_cast<Enum>(i)) == *value) result = static_cast<Enum>(i);
    }
  }
  void refuse(const std::string& name, const std::string& what) {
    if (!status_.ok()) return;
    status_ = {Code::kInvalidArgument, fmt::format("{}: {}: {}", command_, name, what)};
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  static std::string shown(const std::string& value) {
    std::string text = value.substr(0, 40);
    for (char& c : text) c = static_cast<unsigned char>(c) < ' ' ? ' ' : c;
    return '"' + text + '"';
  }

  const RawPlan& raw_;
  std::string command_;
  Status status_;
};

void finish_question(Checked& checked, PlanCommand& command) {
  PlanQuestion& question = command.question;
  plan::Pins& pins = question.pins;
  constexpr double kMostDegree = plan::kMostDevices;
  question.model = checked.text("--model");
  if (question.model.empty()) checked.refuse("--model", "is missing: a file, or a model's name");
  question.cluster = checked.text("--cluster");
  if (question.cluster.empty()) {
    checked.refuse("--cluster", "is missing: a cluster file, which corro probe writes");
  }
  question.params = checked.text("--params");
  question.profile = checked.text("--profile");
  checked.number("--samples", {1, 1e18}, question.samples);
  checked.bytes("--bytes-per-sample", {0, 1e18}, question.bytes_per_sample);
  checked.choice<plan::Objective>("--objective", plan::kObjectiveCount, question.objective);
  checked.choice<plan::Trainer>("--trainer", plan::kTrainerCount, question.trainer);
  checked.whole("--global-batch", {1, 1U << 24U}, question.global_batch);
  checked.whole("--sequence", {1, 1U << 24U}, question.sequence);
  checked.bytes("--memory-limit", {1, 1e18}, question.memory_limit);
  checked.whole("--tp", {1, kMostDegree}, pins.tensor);
  checked.whole("--cp", {1, kMostDegree}, pins.context);
  checked.whole("--ep", {1, kMostDegree}, pins.expert);
  checked.whole("--dp", {1, kMostDegree}, pins.data);
  checked.whole("--pp", {1, kMostDegree}, pins.pipeline);
  checked.whole("--micro-batch", {1, 1U << 24U}, pins.micro_batch);
  checked.whole("--interleave", {1, kMostDegree}, pins.chunks);
  checked.whole("--zero", {0, 3}, pins.zero);
  checked.on_off("--sequence-parallel", pins.sequence_parallel);
  checked.on_off("--overlap", pins.overlap);
  checked.choice<plan::Offload>("--offload", plan::kOffloadCount, pins.offload);
  checked.bytes("--bucket", {1, 1e18}, pins.bucket);
  checked.choice<plan::Schedule>("--schedule", plan::kScheduleCount, pins.schedule);
  checked.choice<plan::Recompute>("--recompute", plan::kRecomputeCount, pins.recompute);
  checked.choice<DType>("--dtype", kDTypeCount, pins.dtype);
  checked.choice<DType>("--gradient-dtype", kDTypeCount, pins.gradient_dtype);
  command.json = checked.text("--json");
  command.svg = checked.text("--svg");
  command.html = checked.text("--html");
}

PlanAction action_of(const CLI::App& program) {
  if (program.got_subcommand("probe")) return PlanAction::kProbe;
  const CLI::App& plan = *program.get_subcommand("plan");
  for (const PlanAction action :
       {PlanAction::kFit, PlanAction::kPredict, PlanAction::kPartition, PlanAction::kCompare,
        PlanAction::kWhatif, PlanAction::kExport, PlanAction::kTables}) {
    const std::string name = name_of(action);
    if (plan.got_subcommand(name.substr(name.rfind(' ') + 1))) return action;
  }
  return PlanAction::kPlan;
}

/// What is measured is one model's plans, all of them: most of what decides a plan has no say.
void finish_measuring(const RawPlan& raw, Checked& checked, PlanCommand& command) {
  finish_question(checked, command);
  constexpr const char* kTaken[] = {"--model", "--cluster", "--global-batch", "--memory-limit",
                                    "--json"};
  for (const auto& [name, value] : raw.values) {
    if (std::ranges::find(kTaken, name) != std::end(kTaken)) continue;
    checked.refuse(name, "has no say with --measure, which runs all plans");
  }
  if (command.question.model.find(':') == std::string::npos) {
    checked.refuse("--model", "must be FILE.py:FUNCTION with --measure, which runs the model");
  }
}

/// Options of `corro plan` before a subcommand that has none of them would be forgotten.
void refuse_strays(const CLI::App& plan, Checked& checked) {
  for (const CLI::Option* option : plan.get_options()) {
    if (option->count() == 0) continue;
    checked.refuse(option->get_name(), "is an option of corro plan alone");
  }
}

/// As parse_partition_arguments() takes them: it is the one that knows their types.
std::vector<std::string> partition_arguments(const RawPlan& raw) {
  std::vector<std::string> arguments;
  for (const auto& [name, value] : raw.values)
    arguments.push_back(fmt::format("{}={}", name, value));
  arguments.insert(arguments.end(), raw.files.begin(), raw.files.end());
  return arguments;
}

/// The command that was given.
Result<PlanCommand> finish_plan(const CLI::App& program, const RawPlan& raw) {
  PlanCommand command;
  command.action = action_of(program);
  const std::string name = name_of(command.action);
  Checked checked(raw, name);
  command.files = raw.files;
  command.explain = raw.explain;
  command.hosts = raw.hosts;
  command.removed = raw.removed;
  const size_t needed = command.action == PlanAction::kCompare ? 2 : 1;
  if (command.action == PlanAction::kPlan && raw.measure) command.action = PlanAction::kMeasure;
  const bool runs_on_hosts =
      command.action == PlanAction::kMeasure || command.action == PlanAction::kProbe;
  const launch::PreflightOptions& hosts = raw.hosts;
  if (!runs_on_hosts && !(hosts.hosts + hosts.hostfile + hosts.network + hosts.rsh).empty()) {
    checked.refuse("hosts", "are for corro plan --measure and for corro probe");
  }
  const bool reads_files =
      command.action != PlanAction::kPlan && command.action != PlanAction::kMeasure &&
      command.action != PlanAction::kWhatif && command.action != PlanAction::kProbe;
  if (reads_files) refuse_strays(*program.get_subcommand("plan"), checked);
  if (reads_files && raw.files.size() < needed) {
    checked.refuse(needed == 2 ? "two files" : "a file", "missing; see " + name + " --help");
  }
  if (command.action == PlanAction::kMeasure) {
    finish_measuring(raw, checked, command);
  } else if (command.action == PlanAction::kPlan || command.action == PlanAction::kWhatif) {
    finish_question(checked, command);
  } else if (command.action == PlanAction::kPartition && checked.status().ok()) {
    auto request = plan::parse_partition_arguments(partition_arguments(raw));
    if (!request.ok()) return request.status().with_context(name);
    command.partition = *std::move(request);
  } else {
    command.question.params = checked.text("--params");
    command.question.cluster = checked.text("--cluster");
    command.output = checked.text("--output");
    command.target = checked.find("--to") == nullptr ? "corro" : checked.text("--to");
    command.json = checked.text("--json");
  }
  if (command.action == PlanAction::kWhatif && raw.removed.empty()) {
    checked.refuse("--remove", "is missing: the name of a host");
  }
  if (command.action == PlanAction::kTables && command.question.cluster.empty()) {
    checked.refuse("--cluster", "is missing: a cluster file, which corro probe writes");
  }
  CORRO_TRY(checked.status());
  return command;
}

}  // namespace

Result<PlanRequest> parse_plan_line(const std::vector<std::string>& arguments) {
  CLI::App program("corro plans training jobs.", "corro");
  program.require_subcommand(1);
  RawPlan raw;
  describe_plan(program, raw);
  CORRO_ASSIGN(const auto help, parse_words(program, arguments));
  if (help) return PlanRequest{.text = *help, .command = {}};
  CORRO_ASSIGN(PlanCommand command, finish_plan(program, raw));
  return PlanRequest{.text = "", .command = std::move(command)};
}

std::string name_of(PlanAction action) {
  constexpr const char* kNames[] = {
      "corro plan",           "corro plan",         "corro plan fit",    "corro plan predict",
      "corro plan partition", "corro plan compare", "corro plan whatif", "corro plan export",
      "corro plan tables",    "corro probe"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace corro::app
