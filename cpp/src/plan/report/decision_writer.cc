#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "plan/plan_file.h"
#include "plan/report/decision_fields.h"
#include "plan/report/decision_file.h"

namespace corro::plan {
namespace {

using Written = nlohmann::ordered_json;

template <typename T>
void put(Written& object, const char* field, const T& value, const T& by_default) {
  if (value != by_default) object[field] = value;
}

template <typename Object, size_t Count>
Written reals_to_json(const Object& values, const std::array<RealField<Object>, Count>& fields) {
  Written object = Written::object();
  for (const auto& [name, field] : fields) {
    if (values.*field != 0) object[std::string(name)] = values.*field;
  }
  return object;
}

Written model_to_json(const ModelSummary& model) {
  const LayerSummary usual;
  Written layers = Written::array();
  for (const LayerSummary& run : model.layers) {
    Written object{{"name", run.name}};
    put(object, "count", run.count(), 1U);
    put(object, "hidden", run.hidden, usual.hidden);
    put(object, "parameters", run.parameters, usual.parameters);
    put(object, "experts", run.experts, usual.experts);
    put(object, "attention", run.attention, usual.attention);
    layers.push_back(std::move(object));
  }
  Written object{{"name", model.name}};
  put(object, "sequence", model.sequence, 0U);
  put(object, "parameters", model.parameters, uint64_t{0});
  put(object, "forward_flops", model.forward_flops, 0.0);
  object["layers"] = std::move(layers);
  return object;
}

Written type_to_json(const DeviceType& type) {
  Written peaks = Written::object();
  for (int i = 0; i < kDTypeCount; ++i) {
    const double peak = type.peak[static_cast<size_t>(i)];
    if (peak != 0) peaks[std::string(name_of(static_cast<DType>(i)))] = peak;
  }
  Written object{{"name", type.name}, {"memory_bytes", type.memory}};
  object["peak_flops_per_second"] = std::move(peaks);
  put(object, "memory_bytes_per_second", type.memory_bandwidth, 0.0);
  put(object, "price", type.price, 0.0);
  return object;
}

Written cluster_to_json(const Cluster& cluster) {
  const HostGroup usual;
  Written types = Written::array();
  Written hosts = Written::array();
  for (const DeviceType& type : cluster.types) types.push_back(type_to_json(type));
  for (const HostGroup& group : cluster.hosts) {
    Written object{{"name", group.name}};
    put(object, "count", group.count, usual.count);
    put(object, "type", group.type, usual.type);
    put(object, "devices", group.devices, usual.devices);
    put(object, "first", group.first, usual.first);
    hosts.push_back(std::move(object));
  }
  return {{"name", cluster.name}, {"types", std::move(types)}, {"hosts", std::move(hosts)}};
}

Written shape_to_json(const JobShape& shape) {
  const JobShape usual;
  Written object = Written::object();
  for (const auto& [name, field] : kDegreeFields) {
    if (shape.*field != 1) object[std::string(name)] = shape.*field;
  }
  put(object, "schedule", name_of(shape.schedule), name_of(usual.schedule));
  put(object, "zero", shape.zero, usual.zero);
  put(object, "sequence_parallel", shape.sequence_parallel, usual.sequence_parallel);
  put(object, "overlap", shape.overlap, usual.overlap);
  put(object, "offload", name_of(shape.offload), name_of(usual.offload));
  put(object, "bucket_bytes", shape.bucket, usual.bucket);
  put(object, "dtype", name_of(shape.dtype), name_of(usual.dtype));
  put(object, "gradient_dtype", name_of(shape.gradient_dtype), name_of(usual.gradient_dtype));
  return object;
}

/// What moves to host memory is left out where nothing does.
Written recompute_to_json(const RecomputeCounts& counts) {
  Written list = Written::array();
  for (const auto& of_run : counts) {
    const size_t size = of_run.back() == 0 ? of_run.size() - 1 : of_run.size();
    list.push_back(std::vector(of_run.begin(), of_run.begin() + static_cast<ptrdiff_t>(size)));
  }
  return list;
}

Written stage_to_json(const PlannedStage& stage, double memory_limit) {
  Written object{{"layers", {stage.layers.begin, stage.layers.end}},
                 {"first_device", stage.first_device},
                 {"devices", stage.devices}};
  put(object, "type", stage.type, 0U);
  if (stage.memory_limit != 0) put(object, "memory_limit_bytes", stage.memory_limit, memory_limit);
  if (!stage.recompute.empty()) object["recompute"] = recompute_to_json(stage.recompute);
  put(object, "bucket_bytes", stage.estimate.bucket, 0.0);
  put(object, "host_bytes", stage.estimate.host, 0.0);
  object["seconds"] = reals_to_json(stage.estimate, kEstimateFields);
  object["memory_bytes"] = reals_to_json(stage.estimate.memory, kMemoryFields);
  return object;
}

void put_decisions(Written& object, const Candidate& candidate, double memory_limit) {
  Written stages = Written::array();
  for (const PlannedStage& stage : candidate.stages) {
    stages.push_back(stage_to_json(stage, memory_limit));
  }
  object["shape"] = shape_to_json(candidate.shape);
  object["stages"] = std::move(stages);
  if (!candidate.placement.empty()) object["placement"] = candidate.placement;
}

Written predictions_to_json(const Candidate& candidate) {
  Written object{{"step_seconds", candidate.step}};
  put(object, "simulated_seconds", candidate.simulated, 0.0);
  put(object, "price", candidate.price, 0.0);
  put(object, "unplaced_seconds", candidate.unplaced, 0.0);
  object["terms_seconds"] = reals_to_json(candidate.terms, kTermFields);
  return object;
}

Written certificates_to_json(const Decision& decision) {
  return {{"bound_seconds", decision.bound},
          {"gap", decision.gap},
          {"memory_proof_bytes", decision.memory_proof},
          {"memory_limit_bytes", decision.memory_limit},
          {"liveness", "checked"},
          {"binding", decision.limit}};
}

Result<Written> document_of(const DecisionFile& file) {
  const Decision& decision = file.decision;
  CORRO_ASSIGN(Written graph, to_json(decision.graph));
  Written decisions{{"global_batch", decision.global_batch}};
  put(decisions, "objective", name_of(decision.objective), name_of(Objective::kTime));
  put_decisions(decisions, decision.best, decision.memory_limit);
  Written predictions = predictions_to_json(decision.best);
  put(predictions, "hours", decision.hours, 0.0);
  put(predictions, "cost", decision.cost, 0.0);
  put(predictions, "mfu", decision.eta, 0.0);
  put(predictions, "storage_bytes_per_second", decision.lambda, 0.0);
  Written document{
      {"corro_decision", kDecisionVersion},       {"model", model_to_json(file.model)},
      {"cluster", cluster_to_json(file.cluster)}, {"decisions", std::move(decisions)},
      {"predictions", std::move(predictions)},    {"certificates", certificates_to_json(decision)}};
  if (!decision.why.empty()) document["why"] = decision.why;
  if (decision.runner_up) {
    Written runner_up = Written::object();
    put_decisions(runner_up, *decision.runner_up, decision.memory_limit);
    runner_up["predictions"] = predictions_to_json(*decision.runner_up);
    document["runner_up"] = std::move(runner_up);
  }
  document["search"] = {{"shapes", decision.shapes}, {"exact", decision.exact}};
  document["graph"] = std::move(graph);
  return document;
}

/// Text that is not UTF-8 comes out with replacement characters, and the reader refuses nothing
/// that a name may have.
std::string compact(const Written& value) {
  return value.dump(-1, ' ', false, Written::error_handler_t::replace);
}

/// What fits on a line is on one line; longer lists and objects have a line for each member.
std::string layout(const Written& value, size_t indent) {
  constexpr size_t kColumns = 140;
  std::string line = compact(value);
  if (!value.is_structured() || (indent > 0 && line.size() + indent <= kColumns)) return line;
  const bool is_object = value.is_object();
  const std::string margin(indent + 2, ' ');
  std::string text(is_object ? "{" : "[");
  const char* comma = "\n";
  for (const auto& [field, member] : value.items()) {
    text += std::exchange(comma, ",\n") + margin;
    if (is_object) text += compact(field) + ": ";
    text += layout(member, indent + 2);
  }
  return text + "\n" + std::string(indent, ' ') + (is_object ? "}" : "]");
}

}  // namespace

Result<std::string> decision_to_json(const DecisionFile& file) {
  CORRO_ASSIGN(const Written document, document_of(file));
  std::string text = layout(document, 0) + "\n";
  CORRO_TRY(read_decision(text, "decision").status());
  return text;
}

}  // namespace corro::plan
