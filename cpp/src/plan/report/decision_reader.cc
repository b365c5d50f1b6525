#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "graph/plan.h"
#include "plan/model/model_file.h"
#include "plan/plan_file.h"
#include "plan/report/decision_fields.h"
#include "plan/report/decision_file.h"

namespace corro::plan {
namespace {

constexpr RealRange kAmount{0, 1e30};
constexpr RealRange kFraction{-1, 1};
constexpr int64_t kMostCounted = 0xffffffff;
constexpr int64_t kMostElements = 1'000'000'000'000'000'000;
constexpr size_t kMostTypes = 1024;
constexpr uint32_t kMostBatch = 1U << 30U;

/// Text on one line, for a person. The JSON parser has seen to it that it is UTF-8.
bool is_sentence(std::string_view text) {
  return text.size() <= kMostSentenceBytes && std::ranges::all_of(text, [](char c) {
           const auto byte = static_cast<unsigned char>(c);
           return byte >= ' ' && byte != 0x7F;
         });
}

/// Reads model and cluster first: stages are checked against them.
class DecisionReader {
 public:
  DecisionReader(std::string_view name, std::string_view text)
      : name_(name), reading_(name, text) {}

  Result<DecisionFile> read(const Json& document);

 private:
  std::string read_name(ObjectReader& object, const Place& place);
  std::string read_sentence(ObjectReader& object, const Place& place, std::string_view field);
  uint32_t count(ObjectReader& object, std::string_view field, uint32_t least, int64_t most,
                 std::optional<int64_t> fallback = {});
  template <typename Object, size_t Count>
  void read_reals(ObjectReader& parent, const Place& place, std::string_view field,
                  const std::array<RealField<Object>, Count>& fields, Object& into);

  void read_model(const Json& value);
  void read_layers(const Json& item, const Place& place);
  void read_cluster(const Json& value);
  void read_type(const Json& item, const Place& place);
  void read_hosts(const Json& item, const Place& place);
  void read_decisions(const Json& value);
  void read_predictions(const Json& value);
  void read_certificates(const Json& value);
  void read_runner_up(const Json& value);
  void read_search(const Json& value);
  void read_candidate(ObjectReader& object, const Place& place, Candidate& candidate);
  void read_candidate_predictions(ObjectReader& object, const Place& place, Candidate& candidate);
  void read_placement(ObjectReader& object, const Place& place, Candidate& candidate);
  JobShape read_shape(const Json& value, const Place& place);
  PlannedStage read_stage(const Json& item, const Place& place, uint32_t first_layer);
  void read_range(ObjectReader& object, const Place& place, uint32_t first, LayerRange& layers);
  void read_recompute(ObjectReader& object, const Place& place, PlannedStage& stage);

  std::string name_;
  Reading reading_;
  DecisionFile file_;
  uint32_t layers_ = 0;
  uint64_t devices_ = 0;
};

std::string DecisionReader::read_name(ObjectReader& object, const Place& place) {
  std::string name = object.text("name");
  if (reading_.ok() && !is_name(name)) reading_.fail({&place, "name", {}}, kNameRule);
  return name;
}

std::string DecisionReader::read_sentence(ObjectReader& object, const Place& place,
                                          std::string_view field) {
  std::string text = object.text(field, "");
  if (!is_sentence(text)) {
    reading_.fail({&place, field, {}},
                  fmt::format("must be at most {} bytes of text on one line", kMostSentenceBytes));
  }
  return text;
}

uint32_t DecisionReader::count(ObjectReader& object, std::string_view field, uint32_t least,
                               int64_t most, std::optional<int64_t> fallback) {
  return static_cast<uint32_t>(object.integer(field, {least, most}, fallback));
}

template <typename Object, size_t Count>
void DecisionReader::read_reals(ObjectReader& parent, const Place& place, std::string_view field,
                                const std::array<RealField<Object>, Count>& fields, Object& into) {
  const Json* value = parent.find(field);
  const Place at{&place, field, {}};
  if (value == nullptr) return reading_.fail(at, "is missing");
  if (!value->is_object()) return reading_.fail(at, "must be an object");
  for (const auto& [name, number] : value->items()) {
    const Place here{&at, name, {}};
    const auto found = std::ranges::find(fields, name, &RealField<Object>::name);
    if (found == fields.end()) return reading_.fail(here, "is no field here");
    if (!number.is_number() || !kAmount.holds(number.template get<double>())) {
      return reading_.fail(here, fmt::format("must be a number from 0 to {}", kAmount.most));
    }
    into.*(found->field) = number.template get<double>();
  }
}

void DecisionReader::read_model(const Json& value) {
  const Place at{nullptr, "model", {}};
  ObjectReader object(value, at, reading_,
                      {"name", "sequence", "parameters", "forward_flops", "layers"});
  ModelSummary& model = file_.model;
  model.name = read_name(object, at);
  model.sequence = count(object, "sequence", 0, kMostCounted, 0);
  model.parameters = static_cast<uint64_t>(object.integer("parameters", {0, kMostElements}, 0));
  model.forward_flops = object.real("forward_flops", kAmount, 0);
  object.list("layers", [this](const Json& item, const Place& place) { read_layers(item, place); });
  if (model.layers.empty()) reading_.fail({&at, "layers", {}}, "must be at least one");
}

void DecisionReader::read_layers(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_,
                      {"name", "count", "hidden", "parameters", "experts", "attention"});
  LayerSummary run;
  run.name = read_name(object, place);
  run.layers = {layers_, layers_ + count(object, "count", 1, kMostLayers, 1)};
  run.hidden = object.real("hidden", kAmount, 0);
  run.parameters = static_cast<uint64_t>(object.integer("parameters", {0, kMostElements}, 0));
  run.experts = count(object, "experts", 0, kMostCounted, 0);
  run.attention = object.boolean("attention", false);
  layers_ = run.layers.end;
  if (layers_ > kMostLayers) {
    reading_.fail(place, fmt::format("makes more than {} layers of all", kMostLayers));
  }
  file_.model.layers.push_back(std::move(run));
}

void DecisionReader::read_cluster(const Json& value) {
  const Place at{nullptr, "cluster", {}};
  ObjectReader object(value, at, reading_, {"name", "types", "hosts"});
  file_.cluster.name = read_name(object, at);
  object.list("types", [this](const Json& item, const Place& place) { read_type(item, place); });
  if (file_.cluster.types.size() > kMostTypes) {
    reading_.fail({&at, "types", {}}, fmt::format("must be at most {}", kMostTypes));
  }
  object.list("hosts", [this](const Json& item, const Place& place) { read_hosts(item, place); });
  if (devices_ == 0) reading_.fail({&at, "hosts", {}}, "must be at least one");
}

void DecisionReader::read_type(const Json& item, const Place& place) {
  ObjectReader object(
      item, place, reading_,
      {"name", "memory_bytes", "peak_flops_per_second", "memory_bytes_per_second", "price"});
  DeviceType type;
  type.name = read_name(object, place);
  type.memory = object.real("memory_bytes", kAmount);
  type.memory_bandwidth = object.real("memory_bytes_per_second", kAmount, 0);
  type.price = object.real("price", kAmount, 0);
  object.fields("peak_flops_per_second",
                [&](const std::string& field, const Json& number, const Place& at) {
                  for (int i = 0; i < kDTypeCount; ++i) {
                    if (name_of(static_cast<DType>(i)) != field) continue;
                    if (!number.is_number() || !kAmount.holds(number.get<double>())) break;
                    type.peak[static_cast<size_t>(i)] = number.get<double>();
                    return;
                  }
                  reading_.fail(at, "must be the number of a dtype");
                });
  file_.cluster.types.push_back(std::move(type));
}

void DecisionReader::read_hosts(const Json& item, const Place& place) {
  ObjectReader object(item, place, reading_, {"name", "count", "type", "devices", "first"});
  HostGroup group;
  group.name = read_name(object, place);
  group.count = count(object, "count", 1, kMostDevices, 1);
  group.type = count(object, "type", 0, kMostCounted, 0);
  group.devices = count(object, "devices", 1, kMostDevices, 1);
  group.first = count(object, "first", 0, kMostDevices, 0);
  if (reading_.ok() && group.type >= file_.cluster.types.size()) {
    reading_.fail({&place, "type", {}}, "is no number of a device type");
  }
  devices_ += uint64_t{group.count} * group.devices;
  if (devices_ > kMostDevices) {
    reading_.fail(place, fmt::format("makes more than {} devices of all", kMostDevices));
  }
  file_.cluster.hosts.push_back(std::move(group));
}

JobShape DecisionReader::read_shape(const Json& value, const Place& place) {
  ObjectReader object(value, place, reading_,
                      {"tensor", "context", "expert", "data", "pipeline", "micro_batch",
                       "micro_batches", "chunks", "schedule", "zero", "sequence_parallel",
                       "overlap", "offload", "bucket_bytes", "dtype", "gradient_dtype"});
  JobShape shape;
  for (const auto& [name, field] : kDegreeFields) {
    shape.*field = count(object, name, 1, kMostDevices, 1);
  }
  shape.schedule = object.choice<Schedule>("schedule", kScheduleCount, Schedule::kOneFOneB);
  shape.zero = count(object, "zero", 0, 3, 0);
  shape.sequence_parallel = object.boolean("sequence_parallel", false);
  shape.overlap = object.boolean("overlap", true);
  shape.offload = object.choice<Offload>("offload", kOffloadCount, Offload::kOff);
  shape.bucket = object.real("bucket_bytes", kAmount, 0);
  shape.dtype = object.choice<DType>("dtype", kDTypeCount, DType::kBF16);
  shape.gradient_dtype = object.choice<DType>("gradient_dtype", kDTypeCount, DType::kF32);
  uint64_t ranks = 1;
  for (const uint32_t degree : {shape.tensor, shape.context, shape.data, shape.pipeline}) {
    ranks = std::min<uint64_t>(ranks * degree, uint64_t{1} << 32U);
  }
  if (ranks > devices_) {
    reading_.fail(place, fmt::format("needs more devices than the cluster has, {}", devices_));
  }
  return shape;
}

void DecisionReader::read_range(ObjectReader& object, const Place& place, uint32_t first,
                                LayerRange& layers) {
  const Json* value = object.find("layers");
  const Place at{&place, "layers", {}};
  const bool is_pair = value != nullptr && value->is_array() && value->size() == 2 &&
                       (*value)[0].is_number_unsigned() && (*value)[1].is_number_unsigned();
  const uint64_t begin = is_pair ? (*value)[0].get<uint64_t>() : 0;
  const uint64_t end = is_pair ? (*value)[1].get<uint64_t>() : 0;
  if (!is_pair || begin != first || end <= begin || end > layers_) {
    return reading_.fail(
        at, fmt::format("must be [{}, END] with END from {} to {}", first, first + 1, layers_));
  }
  layers = {static_cast<uint32_t>(begin), static_cast<uint32_t>(end)};
}

void DecisionReader::read_recompute(ObjectReader& object, const Place& place, PlannedStage& stage) {
  const Place list{&place, "recompute", {}};
  object.list("recompute", [&](const Json& item, const Place& at) {
    const size_t run = stage.recompute.size();
    if (run == file_.model.layers.size()) {
      return reading_.fail(at, "is more than the model's runs of layers");
    }
    const uint32_t most = layers_within(file_.model.layers[run], stage.layers);
    auto& counts = stage.recompute.emplace_back();
    uint64_t sum = 0;
    const size_t least = counts.size() - 1;  // Nothing moves to host memory.
    bool good = item.is_array() && item.size() >= least && item.size() <= counts.size();
    for (size_t how = 0; good && how < item.size(); ++how) {
      good = item[how].is_number_unsigned() && item[how].get<uint64_t>() <= most;
      if (good) counts[how] = item[how].get<uint32_t>();
      sum += counts[how];
    }
    if (good && sum <= most) return;
    reading_.fail(at, fmt::format("must be {} or {} counts of layers, together at most {}", least,
                                  counts.size(), most));
  });
  if (!stage.recompute.empty() && stage.recompute.size() != file_.model.layers.size()) {
    reading_.fail(list, fmt::format("must have {} items, as the model has runs of layers",
                                    file_.model.layers.size()));
  }
}

PlannedStage DecisionReader::read_stage(const Json& item, const Place& place,
                                        uint32_t first_layer) {
  ObjectReader object(item, place, reading_,
                      {"layers", "first_device", "devices", "type", "memory_limit_bytes",
                       "recompute", "bucket_bytes", "host_bytes", "seconds", "memory_bytes"});
  PlannedStage stage;
  read_range(object, place, first_layer, stage.layers);
  const auto most = static_cast<int64_t>(devices_);
  stage.first_device = count(object, "first_device", 0, most);
  stage.devices = count(object, "devices", 1, most);
  stage.type = count(object, "type", 0, kMostCounted, 0);
  if (reading_.ok() && stage.type >= file_.cluster.types.size()) {
    reading_.fail({&place, "type", {}}, "is no number of a device type");
  }
  stage.estimate.bucket = object.real("bucket_bytes", kAmount, 0);
  stage.estimate.host = object.real("host_bytes", kAmount, 0);
  stage.memory_limit = object.real("memory_limit_bytes", kAmount, 0);
  if (uint64_t{stage.first_device} + stage.devices > devices_) {
    reading_.fail({&place, "devices", {}}, fmt::format("end behind the last one, {}", devices_));
  }
  if (reading_.ok()) read_recompute(object, place, stage);
  read_reals(object, place, "seconds", kEstimateFields, stage.estimate);
  if (stage.estimate.weight_part > stage.estimate.backward)
    reading_.fail({&place, "seconds", {}}, "weight_gradients are a part of backward");
  read_reals(object, place, "memory_bytes", kMemoryFields, stage.estimate.memory);
  return stage;
}

void DecisionReader::read_candidate(ObjectReader& object, const Place& place,
                                    Candidate& candidate) {
  const Json* shape = object.find("shape");
  const Place at{&place, "shape", {}};
  if (shape == nullptr) return reading_.fail(at, "is missing");
  candidate.shape = read_shape(*shape, at);
  uint32_t next = 0;
  object.list("stages", [&](const Json& item, const Place& stage) {
    candidate.stages.push_back(read_stage(item, stage, next));
    next = candidate.stages.back().layers.end;
  });
  const Place stages{&place, "stages", {}};
  if (candidate.stages.size() != candidate.shape.pipeline) {
    reading_.fail(stages, fmt::format("must be {}, as many as shape.pipeline says",
                                      candidate.shape.pipeline));
  }
  if (next != layers_) {
    reading_.fail(stages, fmt::format("have {} layers; the model has {}", next, layers_));
  }
  read_placement(object, place, candidate);
}

/// All of the job's ranks, each on another device.
void DecisionReader::read_placement(ObjectReader& object, const Place& place,
                                    Candidate& candidate) {
  const Json* value = object.find("placement");
  if (value == nullptr || !reading_.ok()) return;
  const Place at{&place, "placement", {}};
  bool good = value->is_array() && value->size() == candidate.shape.ranks();
  std::vector<bool> used(devices_);
  for (size_t i = 0; good && i < value->size(); ++i) {
    const Json& device = (*value)[i];
    good = device.is_number_unsigned() && device.get<uint64_t>() < devices_ &&
           !used[device.get<size_t>()];
    if (!good) break;
    used[device.get<size_t>()] = true;
    candidate.placement.push_back(device.get<uint32_t>());
  }
  if (good) return;
  reading_.fail(at, fmt::format("must be {} different devices, each below {}",
                                candidate.shape.ranks(), devices_));
}

void DecisionReader::read_candidate_predictions(ObjectReader& object, const Place& place,
                                                Candidate& candidate) {
  candidate.step = object.real("step_seconds", kAmount);
  candidate.simulated = object.real("simulated_seconds", kAmount, 0);
  candidate.price = object.real("price", kAmount, 0);
  candidate.unplaced = object.real("unplaced_seconds", kAmount, 0);
  read_reals(object, place, "terms_seconds", kTermFields, candidate.terms);
}

void DecisionReader::read_decisions(const Json& value) {
  const Place at{nullptr, "decisions", {}};
  ObjectReader object(value, at, reading_,
                      {"global_batch", "objective", "shape", "stages", "placement"});
  file_.decision.global_batch = count(object, "global_batch", 1, kMostBatch);
  file_.decision.objective =
      object.choice<Objective>("objective", kObjectiveCount, Objective::kTime);
  read_candidate(object, at, file_.decision.best);
}

void DecisionReader::read_predictions(const Json& value) {
  const Place at{nullptr, "predictions", {}};
  ObjectReader object(value, at, reading_,
                      {"step_seconds", "simulated_seconds", "price", "unplaced_seconds",
                       "terms_seconds", "hours", "cost", "mfu", "storage_bytes_per_second"});
  Decision& decision = file_.decision;
  read_candidate_predictions(object, at, decision.best);
  decision.hours = object.real("hours", kAmount, 0);
  decision.cost = object.real("cost", kAmount, 0);
  decision.eta = object.real("mfu", kAmount, 0);
  decision.lambda = object.real("storage_bytes_per_second", kAmount, 0);
}

void DecisionReader::read_certificates(const Json& value) {
  const Place at{nullptr, "certificates", {}};
  ObjectReader object(
      value, at, reading_,
      {"bound_seconds", "gap", "memory_proof_bytes", "memory_limit_bytes", "liveness", "binding"});
  Decision& decision = file_.decision;
  decision.bound = object.real("bound_seconds", kAmount);
  decision.gap = object.real("gap", kFraction);
  decision.memory_proof =
      static_cast<uint64_t>(object.integer("memory_proof_bytes", {0, kMostElements}));
  decision.memory_limit = object.real("memory_limit_bytes", kAmount);
  decision.limit = read_sentence(object, at, "binding");
  if (object.text("liveness") != "checked" && reading_.ok()) {
    reading_.fail({&at, "liveness", {}}, "must be \"checked\"");
  }
}

void DecisionReader::read_runner_up(const Json& value) {
  const Place at{nullptr, "runner_up", {}};
  ObjectReader object(value, at, reading_, {"shape", "stages", "placement", "predictions"});
  Candidate& candidate = file_.decision.runner_up.emplace();
  read_candidate(object, at, candidate);
  const Json* predictions = object.find("predictions");
  const Place there{&at, "predictions", {}};
  if (predictions == nullptr) return reading_.fail(there, "is missing");
  ObjectReader fields(
      *predictions, there, reading_,
      {"step_seconds", "simulated_seconds", "price", "unplaced_seconds", "terms_seconds"});
  read_candidate_predictions(fields, there, candidate);
}

void DecisionReader::read_search(const Json& value) {
  const Place at{nullptr, "search", {}};
  ObjectReader object(value, at, reading_, {"shapes", "exact"});
  file_.decision.shapes = count(object, "shapes", 0, kMostCounted, 0);
  file_.decision.exact = count(object, "exact", 0, kMostCounted, 0);
}

Result<DecisionFile> DecisionReader::read(const Json& document) {
  check_version(document, "corro_decision", kDecisionVersion, reading_);
  ObjectReader top(document, {}, reading_,
                   {"corro_decision", "model", "cluster", "decisions", "predictions",
                    "certificates", "why", "runner_up", "search", "graph"});
  const auto read = [&](std::string_view field, bool needed, auto member) {
    if (!reading_.ok()) return;
    const Json* value = top.find(field);
    if (value != nullptr) return (this->*member)(*value);
    if (needed) reading_.fail({nullptr, field, {}}, "is missing");
  };
  read("model", true, &DecisionReader::read_model);
  read("cluster", true, &DecisionReader::read_cluster);
  read("decisions", true, &DecisionReader::read_decisions);
  read("predictions", true, &DecisionReader::read_predictions);
  read("certificates", true, &DecisionReader::read_certificates);
  read("runner_up", false, &DecisionReader::read_runner_up);
  read("search", false, &DecisionReader::read_search);
  file_.decision.why = read_sentence(top, {}, "why");
  const Json* graph = top.find("graph");
  if (graph == nullptr) reading_.fail({nullptr, "graph", {}}, "is missing");
  CORRO_TRY(reading_.status());
  const std::string name = name_ + ": graph";
  CORRO_ASSIGN(file_.decision.graph, from_json(*graph, name));
  CORRO_TRY(graph::check(file_.decision.graph).with_context(name));
  return std::move(file_);
}

}  // namespace

Result<DecisionFile> read_decision(std::string_view text, std::string_view name) {
  CORRO_ASSIGN(const Json document, parse_json(text, name));
  return DecisionReader(name, text).read(document);
}

}  // namespace corro::plan
