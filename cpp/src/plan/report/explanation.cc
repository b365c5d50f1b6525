// The tables of the explanation. Stages that look alike share a row.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "plan/amounts.h"
#include "plan/report/decision_fields.h"
#include "plan/report/facts.h"
#include "plan/report/text_report.h"

namespace corro::plan {
namespace {

struct Term {
  std::string_view name;
  double StepTerms::* field;
  std::string_view what;
};
constexpr std::array<Term, 9> kTerms = {{
    {"compute", &StepTerms::compute, "forward and backward of all micro-batches, slowest stage"},
    {"recompute", &StepTerms::recompute, "forward once more, for activations not kept"},
    {"exchanges", &StepTerms::exchanges, "tensor, context and expert parallelism inside layers"},
    {"weights", &StepTerms::weights, "ZeRO 3 gathers weights and scatters gradients"},
    {"offload", &StepTerms::offload, "moving to host memory and back, not hidden"},
    {"hops", &StepTerms::hops, "activations and gradients between stages"},
    {"bubble", &StepTerms::bubble, "the pipeline fills and drains"},
    {"sync", &StepTerms::sync, "gradients reduced that backward does not hide"},
    {"update", &StepTerms::update, "the optimizer"},
}};

Table step_table(const Decision& decision) {
  const StepTerms& terms = decision.best.terms;
  const double sum = terms.sum();
  Table table{.title = "Step time", .head = {"term", "time", "share", "what"}, .sums = true};
  for (const Term& term : kTerms) {
    const double seconds = terms.*term.field;
    table.rows.push_back({std::string(term.name), seconds_text(seconds),
                          percent_text(sum > 0 ? seconds / sum : 0), std::string(term.what)});
  }
  table.rows.push_back({"sum", seconds_text(sum), percent_text(sum > 0 ? 1 : 0), "a step"});
  return table;
}

/// A row of the stages in `group`.
std::string label_of(const StageGroup& group) { return range_text(group.first, group.last); }

Table memory_table(const DecisionFile& file, const std::vector<StageGroup>& groups) {
  Table table{.title = "Memory of a device", .head = {"stage"}};
  for (const auto& [name, field] : kMemoryFields) table.head.emplace_back(name);
  table.head.insert(table.head.end(), {"sum", "limit", "used"});
  for (const StageGroup& group : groups) {
    const PlannedStage& stage = file.decision.best.stages[group.first];
    const MemoryUse& use = stage.estimate.memory;
    std::vector<std::string> row{label_of(group)};
    for (const auto& [name, field] : kMemoryFields) row.push_back(bytes_text(use.*field));
    const double limit = limit_of(file, stage);
    row.push_back(bytes_text(use.sum()));
    row.push_back(limit > 0 ? bytes_text(limit) : "");
    row.push_back(limit > 0 ? percent_text(use.sum() / limit) : "");
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table seconds_table(const Decision& decision, const std::vector<StageGroup>& groups) {
  Table table{.title = "Time of a stage: of a micro-batch; sync and update of a step",
              .head = {"stage", "forward", "backward", "recompute", "weights", "hops", "period",
                       "exchanges", "sync", "update"},
              .note = "Exchanges are part of forward, backward and recompute."};
  for (const StageGroup& group : groups) {
    const StageEstimate& stage = decision.best.stages[group.first].estimate;
    std::vector<std::string> row{label_of(group)};
    for (const double seconds :
         {stage.forward, stage.backward, stage.recompute, stage.weights, stage.hops, stage.period(),
          stage.exchanges, stage.sync, stage.update}) {
      row.push_back(seconds_text(seconds));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

/// Nothing where no gradients are reduced in buckets.
std::vector<Table> bucket_table(const Decision& decision, const std::vector<StageGroup>& groups) {
  Table table{
      .title = "Reducing gradients, of a step",
      .head = {"stage", "bucket", "buckets", "reducing", "of it starting", "sync"},
      .note =
          "Sync is what shows: the last bucket, and what backward does not hide of the others."};
  for (const StageGroup& group : groups) {
    const StageEstimate& stage = decision.best.stages[group.first].estimate;
    if (stage.bucket <= 0) continue;
    const double gradients = stage.memory.gradients;
    const bool sharded = decision.best.shape.zero >= 2;
    table.rows.push_back({label_of(group), bytes_text(stage.bucket),
                          sharded ? "" : fmt::format("{:.0f}", std::ceil(gradients / stage.bucket)),
                          seconds_text(stage.reduce), seconds_text(stage.starts),
                          seconds_text(stage.sync)});
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

/// Nothing where nothing lies in host memory.
std::vector<Table> host_table(const Decision& decision, const std::vector<StageGroup>& groups) {
  Table table{.title = "Host memory of a device",
              .head = {"stage", "holds", "moving"},
              .note = "Moving is what shows of it beside computing, of a micro-batch."};
  for (const StageGroup& group : groups) {
    const StageEstimate& stage = decision.best.stages[group.first].estimate;
    if (stage.host <= 0) continue;
    table.rows.push_back({label_of(group), bytes_text(stage.host), seconds_text(stage.offload)});
  }
  if (table.rows.empty()) return {};
  return {std::move(table)};
}

/// "embedding, 6 block": the layers of a stage.
std::string layers_text(const ModelSummary& model, const LayerRange& range) {
  std::string text;
  const auto [first, last] = runs_within(model, range);
  for (size_t i = first; i < last && text.size() < kReportColumns; ++i) {
    const LayerSummary& run = model.layers[i];
    const uint32_t count = layers_within(run, range);
    text += text.empty() ? "" : ", ";
    const std::string name = run.name.substr(0, run.name.find(".{}"));
    text += run.count() == 1 ? name : fmt::format("{} {}", count, name);
  }
  return text;
}

Table layers_table(const DecisionFile& file, const std::vector<StageGroup>& groups) {
  Table table{
      .title = "Layers, devices, recompute and offload of a stage",
      .head = {"stage", "layers", "devices", "type", "attention", "full", "offload", "each"},
      .note =
          "Layers and devices of all stages of a row; recompute, offload and the last column "
          "of each of them."};
  for (const StageGroup& group : groups) {
    const PlannedStage& first = file.decision.best.stages[group.first];
    const PlannedStage& last = file.decision.best.stages[group.last];
    const bool has_type = first.type < file.cluster.types.size();
    table.rows.push_back(
        {label_of(group), range_text(first.layers.begin, last.layers.end - 1),
         range_text(first.first_device, uint64_t{last.first_device} + last.devices - 1),
         has_type ? clipped(file.cluster.types[first.type].name, 16) : "",
         fmt::format("{}", recomputed(first, Recompute::kAttention)),
         fmt::format("{}", recomputed(first, Recompute::kFull)),
         fmt::format("{}", recomputed(first, Recompute::kOffload)),
         layers_text(file.model, first.layers)});
  }
  return table;
}

/// Elements of the widest layer's output for one micro-batch on one device, in bytes.
double hop_bytes(const DecisionFile& file) {
  const JobShape& shape = file.decision.best.shape;
  double hidden = 0;
  for (const LayerSummary& run : file.model.layers) hidden = std::max(hidden, run.hidden);
  const double tokens = std::max(1U, file.model.sequence);
  const double parts = static_cast<double>(shape.context) * shape.tensor;
  return hidden * tokens * shape.micro_batch * static_cast<double>(size_of(shape.dtype)) / parts;
}

/// Who exchanges what. Layers choose their layouts one by one, so what is exchanged inside them is
/// known by its time alone.
Table exchange_table(const DecisionFile& file) {
  const JobShape& shape = file.decision.best.shape;
  const auto& stages = file.decision.best.stages;
  Table table{.title = "What devices exchange",
              .head = {"axis", "among", "what", "bytes", "a step"}};
  const auto times = [](uint64_t count) { return fmt::format("{} x", integer_text(count)); };
  const auto add = [&](std::string axis, uint32_t among, std::string what, std::string bytes,
                       std::string often) {
    if (among > 1) {
      table.rows.push_back({std::move(axis), fmt::format("{}", among), std::move(what),
                            std::move(bytes), std::move(often)});
    }
  };
  double weights = 0;
  for (const PlannedStage& stage : stages) {
    weights = std::max(weights, stage.estimate.memory.weights);
  }
  add("tensor", shape.tensor,
      shape.sequence_parallel ? "allgather, reducescatter inside layers"
                              : "allreduce inside layers",
      "", "each layer");
  add("context", shape.context, "keys and values, in a ring", "", "each attention");
  add("expert", shape.expert, "alltoall of tokens", "", "each mixture");
  add("pipeline", shape.pipeline, "activations, and their gradients back",
      bytes_text(hop_bytes(file)), times(2ULL * shape.micro_batches * shape.chunks));
  const uint32_t ranks = shape.data * shape.context;
  add("data", ranks,
      shape.zero == 0 ? "allreduce of gradients"
                      : "reducescatter of gradients, allgather of weights",
      shape.zero == 3 ? "" : bytes_text(weights) + " of weights",
      shape.zero == 3 ? "each micro-batch" : "once");
  if (table.rows.empty()) table.rows.push_back({"none", "1", "nothing", "", ""});
  return table;
}

}  // namespace

std::vector<Table> explanation_of(const DecisionFile& file) {
  const auto groups = groups_of(file, file.decision.best.stages);
  std::vector<Table> tables{step_table(file.decision), memory_table(file, groups),
                            seconds_table(file.decision, groups)};
  for (Table& table : bucket_table(file.decision, groups)) tables.push_back(std::move(table));
  for (Table& table : host_table(file.decision, groups)) tables.push_back(std::move(table));
  tables.push_back(layers_table(file, groups));
  tables.push_back(exchange_table(file));
  return tables;
}

}  // namespace corro::plan
