#include "plan/report/decision_file.h"

#include <algorithm>
#include <utility>

namespace corro::plan {
namespace {

LayerSummary summary_of_run(const Model& model, const LayerRun& run, uint32_t first) {
  const LayerType& type = model.types[run.type];
  LayerSummary summary{.name = run.name.empty() ? type.name : run.name,
                       .layers = {first, first + run.count},
                       .experts = type.experts};
  for (const Operator& op : type.operators) {
    summary.parameters += op.parameters;
    summary.attention = summary.attention || op.kind == OperatorKind::kAttention;
  }
  const double tokens = std::max(1U, model.sequence);
  if (!type.operators.empty()) summary.hidden = type.operators.back().output / tokens;
  return summary;
}

}  // namespace

ModelSummary summary_of(const Model& model) {
  ModelSummary summary{.name = model.name,
                       .sequence = model.sequence,
                       .parameters = parameter_count(model),
                       .forward_flops = forward_flops(model)};
  uint32_t first = 0;
  for (const LayerRun& run : model.layers) {
    summary.layers.push_back(summary_of_run(model, run, first));
    first += run.count;
  }
  return summary;
}

Cluster summary_of(const Cluster& cluster) {
  Cluster summary{.name = cluster.name, .types = cluster.types};
  for (const HostGroup& group : cluster.hosts) {
    summary.hosts.push_back({.name = group.name,
                             .count = group.count,
                             .type = group.type,
                             .devices = group.devices,
                             .first = group.first});
  }
  return summary;
}

DecisionFile make_decision_file(Decision decision, const Model& model, const Cluster& cluster) {
  return {
      .decision = std::move(decision), .model = summary_of(model), .cluster = summary_of(cluster)};
}

uint32_t layer_count(const ModelSummary& model) {
  return model.layers.empty() ? 0 : model.layers.back().layers.end;
}

uint32_t layers_within(const LayerSummary& run, const LayerRange& range) {
  const uint32_t begin = std::max(range.begin, run.layers.begin);
  const uint32_t end = std::min(range.end, run.layers.end);
  return end > begin ? end - begin : 0;
}

std::pair<size_t, size_t> runs_within(const ModelSummary& model, const LayerRange& range) {
  const auto& runs = model.layers;
  const auto first = std::ranges::partition_point(
      runs, [&](const LayerSummary& run) { return run.layers.end <= range.begin; });
  const auto last = std::partition_point(
      first, runs.end(), [&](const LayerSummary& run) { return run.layers.begin < range.end; });
  return {static_cast<size_t>(first - runs.begin()), static_cast<size_t>(last - runs.begin())};
}

uint32_t recomputed(const PlannedStage& stage, Recompute how) {
  uint32_t count = 0;
  for (const auto& run : stage.recompute) count += run[static_cast<size_t>(how)];
  return count;
}

}  // namespace corro::plan
