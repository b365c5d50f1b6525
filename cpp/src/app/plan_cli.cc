// How `corro plan` and `corro probe` take their arguments, in two steps. describe_plan() tells
// CLI11 the options; each value lands as text under its long name in RawPlan, whichever subcommand
// it belongs to. After parsing, finish_plan() finds out which action is meant, and Checked turns
// the texts into numbers, amounts and choices: the first that cannot be becomes the one error line
// "corro plan: --tp: must be ...". Nothing is read from a file here; plan_question.cc does that.
#include "app/plan_cli.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "plan/quantity.h"

namespace corro::app {
namespace {

constexpr const char* kPlanExamples = R"(
Examples:
  corro plan --model gpt3-175b --cluster cluster.yaml
  corro plan --model config.json --sequence 4096 --cluster cluster.yaml --explain
  corro plan --model llama3-70b --cluster cluster.yaml --tp 8 --zero 1 --json plan.json
  corro plan --model gpt3-13b --cluster cluster.yaml --samples 1e9 --bytes-per-sample 4096
  corro plan --measure --model train.py:build --cluster cluster.yaml -H node1,node2

A model is a file (a recorded model, a config.json of Hugging Face, a few lines of YAML) or one of
the names in docs/planner-inputs.md; a cluster is a file, which `corro probe` writes. What you pin
with --tp, --pp, ... is kept; the planner decides the rest. --measure runs every plan of data and
pipeline parallelism on the cluster's machines, processors only, and shows how well each was
predicted.
)";

constexpr const char* kFitExamples = R"(
Examples:
  corro plan fit runs.csv -o params.json
  corro plan --model gpt3-13b --cluster cluster.yaml --params params.json

A row is a run: gpus, global_batch, micro_batch, hidden, heads, layers, seq_len, tp, dp, pp, step_ms.
)";

constexpr const char* kPredictExamples = R"(
Examples:
  corro plan predict runs.csv --params params.json
  corro plan predict runs.csv --cluster cluster.yaml -o predicted.csv
)";

constexpr const char* kPartitionExamples = R"(
Examples:
  corro plan partition graph.json
  corro plan partition layers.json --devices 64 --micro-batches 32 --memory 40e9 --bandwidth 25e9
)";

constexpr const char* kCompareExamples = R"(
Example:
  corro plan compare before.json after.json
)";

constexpr const char* kWhatifExamples = R"(
Examples:
  corro plan whatif --remove node3 --model gpt3-175b --cluster cluster.yaml
  corro plan whatif --remove node3 --remove node7 --model config.json --cluster cluster.yaml
)";

constexpr const char* kExportExamples = R"(
Examples:
  corro plan export plan.json --to megatron      flags for pretrain_gpt.py
  corro plan export plan.json -o graph.json      the graph that corro's executor runs
)";

constexpr const char* kProbeExamples = R"(
Examples:
  corro probe -o cluster.yaml                 measures this machine
  corro probe -H node1,node2 -o cluster.yaml  and the links between several, as corro doctor -H does
)";

/// A text option whose value lands in `raw.values` under its long name.
CLI::Option* add_value(CLI::App& app, RawPlan& raw, const std::string& names,
                       const std::string& type, const std::string& description) {
  const std::string name = names.substr(names.rfind("--"));
  return app
      .add_option_function<std::string>(
          names, [&raw, name](const std::string& value) { raw.values[name] = value; }, description)
      ->type_name(type);
}

void add_choice(CLI::App& app, RawPlan& raw, const std::string& name, const std::string& type,
                std::vector<std::string> choices, const std::string& description) {
  add_value(app, raw, name, type, description)->check(CLI::IsMember(std::move(choices)));
}

void add_files(CLI::App& app, RawPlan& raw, const std::string& description, int count) {
  app.add_option("file", raw.files, description)->type_name("FILE")->expected(count);
}

void describe_question(CLI::App& app, RawPlan& raw) {
  add_value(app, raw, "--model", "FILE|NAME", "What is trained: a file, or a known model's name");
  add_value(app, raw, "--cluster", "FILE", "On what: a cluster file");
  add_value(app, raw, "--samples", "N", "Samples of the whole training");
  add_value(app, raw, "--bytes-per-sample", "BYTES",
            "What storage delivers for each of them, such as \"16 KiB\"");
  add_choice(app, raw, "--objective", "WHAT", {"time", "cost", "samples_per_price"},
             "What is best: time (the default), cost or samples_per_price");
  add_choice(app, raw, "--trainer", "PROGRAM", {"corro", "megatron"},
             "What is to run the plan: corro (the default) or megatron");
  add_value(app, raw, "--global-batch", "N",
            "Samples of a step; default: 32768 tokens for each device, at most 4 million, "
            "but a sample for each device at least");
  add_value(app, raw, "--memory-limit", "BYTES",
            "Of a device, such as \"70 GiB\"; default: 94 % of what it has");
  add_value(app, raw, "--sequence", "N", "Tokens of a sample, instead of the model's");
  add_value(app, raw, "--params", "FILE", "Calibration, from corro plan fit");
  add_value(app, raw, "--profile", "FILE", "Measured times of layers, from corro plan --measure");
  add_value(app, raw, "--tp", "N", "Pin the tensor parallel degree");
  add_value(app, raw, "--cp", "N", "Pin the context parallel degree");
  add_value(app, raw, "--ep", "N", "Pin the expert parallel degree");
  add_value(app, raw, "--dp", "N", "Pin the data parallel degree");
  add_value(app, raw, "--pp", "N", "Pin the number of pipeline stages");
  add_value(app, raw, "--micro-batch", "N", "Pin the samples of a micro-batch");
  add_value(app, raw, "--interleave", "N", "Pin the pieces of the model in each stage");
  add_value(app, raw, "--zero", "0..3", "Pin what data parallel ranks shard");
  add_choice(app, raw, "--sequence-parallel", "on|off", {"on", "off"},
             "Pin sequence parallelism: on or off");
  add_choice(app, raw, "--schedule", "ORDER", {"1f1b", "interleaved", "gpipe", "zero_bubble"},
             "Pin the order of micro-batches: 1f1b, interleaved, gpipe or zero_bubble");
  add_choice(app, raw, "--recompute", "WHAT", {"none", "attention", "full", "offload"},
             "Pin what is recomputed: none, attention or full; offload: kept in host memory");
  add_choice(app, raw, "--overlap", "on|off", {"on", "off"},
             "Pin whether gradients are reduced beside backward (the default) or after it");
  add_choice(app, raw, "--offload", "WHAT", {"off", "optimizer", "gradients", "weights"},
             "Pin what lies in host memory: off, optimizer, gradients too, weights too");
  add_value(app, raw, "--bucket", "BYTES", "Pin how much of the gradients is reduced at a time");
  add_choice(app, raw, "--dtype", "TYPE", {"bf16", "f16", "f32"}, "Pin the type of activations");
  add_choice(app, raw, "--gradient-dtype", "TYPE", {"bf16", "f16", "f32"},
             "Pin the type in which gradients are reduced and kept (default: f32)");
  app.add_flag("--explain", raw.explain, "Show each term of the step's time, and the memory");
  add_value(app, raw, "--json", "FILE", "Write the plan file; -: print it");
  add_value(app, raw, "--svg", "FILE", "Draw the pipeline, the memory and the placement");
  add_value(app, raw, "--html", "FILE", "The same as a page");
}

void describe_hosts(CLI::App& app, RawPlan& raw, const std::string& description) {
  app.add_option("-H,--hosts", raw.hosts.hosts, description)
      ->type_name("HOST,...")
      ->check({[](const std::string& hosts) {  // a variable that was never set is not this host
                 return hosts.empty() ? std::string("no host; give some, as in: -H node1,node2")
                                      : "";
               },
               ""});
  app.add_option("--hostfile", raw.hosts.hostfile, "The hosts of this file")->type_name("FILE");
  app.add_option("--network", raw.hosts.network, "Reach hosts by addresses in this range only")
      ->type_name("CIDR");
  app.add_option("--rsh", raw.hosts.rsh, "Another remote shell than ssh, with its options")
      ->type_name("CMD");
}

void describe_calibration(CLI::App& plan, RawPlan& raw) {
  CLI::App& fit = *plan.add_subcommand("fit", "Fit the cost model to measured runs");
  fit.footer(kFitExamples);
  add_files(fit, raw, "Measured runs, CSV", 1);
  add_value(fit, raw, "-o,--output", "FILE", "Write the calibration here");
  add_value(fit, raw, "--cluster", "FILE", "Where they ran; default: hosts with 8 A100-80GB");
  CLI::App& predict = *plan.add_subcommand("predict", "Predict the time and the memory of runs");
  predict.footer(kPredictExamples);
  add_files(predict, raw, "Runs, CSV", 1);
  add_value(predict, raw, "--params", "FILE", "Calibration, from corro plan fit");
  add_value(predict, raw, "--cluster", "FILE", "Where they run; default: hosts with 8 A100-80GB");
  add_value(predict, raw, "-o,--output", "FILE", "Write the table here; default: print it");
}

void describe_plans(CLI::App& plan, RawPlan& raw) {
  CLI::App& partition =
      *plan.add_subcommand("partition", "Find the optimum of a published instance");
  partition.footer(kPartitionExamples);
  add_files(partition, raw, "Instance, JSON", 1);
  add_value(partition, raw, "--devices", "K", "Instead of the file's");
  add_value(partition, raw, "--micro-batches", "N", "Instead of the file's");
  add_value(partition, raw, "--memory", "BYTES", "Of a device, instead of the file's");
  add_value(partition, raw, "--bandwidth", "BYTES_PER_S", "Of a link, instead of the file's");
  CLI::App& compare = *plan.add_subcommand("compare", "Show how two plan files differ");
  compare.footer(kCompareExamples);
  add_files(compare, raw, "Plan files", 2);
  CLI::App& whatif = *plan.add_subcommand("whatif", "Plan before and after hosts are lost");
  whatif.footer(kWhatifExamples);
  whatif.add_option("--remove", raw.removed, "Without this host (several times, or a list)")
      ->type_name("HOST,...")
      ->delimiter(',')
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  describe_question(whatif, raw);
  CLI::App& exported = *plan.add_subcommand("export", "Write a plan for another program");
  exported.footer(kExportExamples);
  add_files(exported, raw, "Plan file", 1);
  add_choice(exported, raw, "--to", "PROGRAM", {"corro", "megatron"},
             "corro (the default) or megatron");
  add_value(exported, raw, "-o,--output", "FILE", "Write it here; default: print it");
}

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
  for (const PlanAction action : {PlanAction::kFit, PlanAction::kPredict, PlanAction::kPartition,
                                  PlanAction::kCompare, PlanAction::kWhatif, PlanAction::kExport}) {
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

}  // namespace

void describe_plan(CLI::App& program, RawPlan& raw) {
  CLI::App& plan = *program.add_subcommand("plan", "Decide how to train a model on a cluster");
  plan.footer(kPlanExamples);
  plan.require_subcommand(0, 1);
  describe_question(plan, raw);
  plan.add_flag("--measure", raw.measure,
                "Run every plan of FILE.py:FUNCTION, and compare with what is predicted");
  describe_hosts(plan, raw, "With --measure: run on these hosts; default: this one");
  describe_calibration(plan, raw);
  describe_plans(plan, raw);
  CLI::App& probe = *program.add_subcommand("probe", "Measure machines for a cluster file");
  probe.footer(kProbeExamples);
  add_value(probe, raw, "-o,--output", "FILE", "Write the cluster file here; default: print it");
  describe_hosts(probe, raw, "These hosts, reached by ssh; default: this one");
}

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
  }
  if (command.action == PlanAction::kWhatif && raw.removed.empty()) {
    checked.refuse("--remove", "is missing: the name of a host");
  }
  CORRO_TRY(checked.status());
  return command;
}

std::string name_of(PlanAction action) {
  constexpr const char* kNames[] = {
      "corro plan",         "corro plan",           "corro plan fit",
      "corro plan predict", "corro plan partition", "corro plan compare",
      "corro plan whatif",  "corro plan export",    "corro probe"};
  return kNames[static_cast<size_t>(action)];
}

}  // namespace corro::app
