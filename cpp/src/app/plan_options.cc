#include "app/plan_options.h"

#include <CLI/CLI.hpp>
#include <utility>

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

constexpr const char* kTablesExamples = R"(
Examples:
  corro plan tables tables.yaml --cluster cluster.yaml
  corro plan tables tables.yaml --cluster cluster.yaml --json tables.json
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
  CLI::App& tables =
      *plan.add_subcommand("tables", "Decide which tables servers have, and how many");
  tables.footer(kTablesExamples);
  add_files(tables, raw, "Tables, YAML or JSON", 1);
  add_value(tables, raw, "--cluster", "FILE", "On what: a cluster file");
  add_value(tables, raw, "--json", "FILE", "Write what was decided; -: print it");
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

}  // namespace corro::app
