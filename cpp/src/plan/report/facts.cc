#include "plan/report/facts.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "plan/amounts.h"
#include "plan/report/decision_fields.h"

namespace corro::plan {
namespace {

/// All that tables show of a stage but its number and its place.
std::string look_of(const DecisionFile& file, const PlannedStage& stage) {
  std::string look = fmt::format("{} {}", stage.devices, stage.type);
  const auto [first, last] = runs_within(file.model, stage.layers);
  for (size_t run = first; run < last; ++run) {
    look += fmt::format(" {}: {}", run, layers_within(file.model.layers[run], stage.layers));
  }
  for (const auto& counts : stage.recompute) look += fmt::format(" {}", fmt::join(counts, " "));
  for (const auto& [name, field] : kEstimateFields) {
    look += " " + seconds_text(stage.estimate.*field);
  }
  for (const auto& [name, field] : kMemoryFields) {
    look += " " + bytes_text(stage.estimate.memory.*field);
  }
  look += " " + bytes_text(limit_of(file, stage)) + " " + bytes_text(stage.estimate.bucket);
  return look;
}

std::string model_text(const ModelSummary& model) {
  const std::string tokens =
      model.sequence == 0 ? "" : fmt::format(", {} a sample", counted(model.sequence, "token"));
  uint64_t attention = 0;
  for (const LayerSummary& run : model.layers) attention += run.attention ? run.count() : 0;
  const std::string kinds =
      attention == 0 ? "" : fmt::format(" ({} with attention)", integer_text(attention));
  return fmt::format("{}: {}{}, {} parameters{}", clipped(model.name, 40),
                     counted(layer_count(model), "layer"), kinds,
                     count_text(static_cast<double>(model.parameters)), tokens);
}

std::string cut_text(const JobShape& shape) {
  return fmt::format("{}  (tensor x context x expert x data x pipeline), {}", degrees_text(shape),
                     counted(shape.ranks(), "device"));
}

std::string memory_text(const DecisionFile& file) {
  const auto& stages = file.decision.best.stages;
  const size_t fullest = fullest_stage(file);
  const double bytes = fullest_bytes(file);
  const double limit = stages.empty() ? 0 : limit_of(file, stages[fullest]);
  std::string text =
      fmt::format("{} a device of stage {}, the fullest", bytes_text(bytes), fullest);
  if (limit == 0) return text;
  const bool differ = std::ranges::any_of(
      stages, [&](const PlannedStage& stage) { return limit_of(file, stage) != limit; });
  return fmt::format("{}: {} of {} limit, {}", text, percent_text(bytes / limit),
                     differ ? "its" : "the", bytes_text(limit));
}

/// "74.5 GiB in stages 0-1, 29.8 GiB in 2-3"; empty where all are alike.
std::string limits_text(const DecisionFile& file) {
  const auto& stages = file.decision.best.stages;
  std::string text;
  size_t first = 0;
  for (size_t s = 1; s <= stages.size(); ++s) {
    const double limit = limit_of(file, stages[first]);
    if (s < stages.size() && limit_of(file, stages[s]) == limit) continue;
    if (first == 0 && s == stages.size()) return {};
    text += fmt::format("{}{} in {}{}", first == 0 ? "" : ", ", bytes_text(limit),
                        first == 0 ? "stages " : "", range_text(first, s - 1));
    first = s;
  }
  return text;
}

std::string speed_text(const DecisionFile& file) {
  const Decision& decision = file.decision;
  const double samples = samples_per_second(decision, decision.best);
  std::string text = fmt::format("{} samples/s", count_text(samples));
  if (file.model.sequence > 0) {
    text += fmt::format(", {} tokens/s", count_text(samples * file.model.sequence));
  }
  if (decision.eta > 0) text += fmt::format(", {} of peak (MFU)", percent_text(decision.eta));
  return text;
}

std::string runner_up_text(const Decision& decision) {
  const Candidate& other = *decision.runner_up;
  const double step = decision.best.step;
  const double slower = step > 0 ? other.step / step - 1 : 0;
  return fmt::format("{}, {} micro-batches, ZeRO {}: {}, {} {}", degrees_text(other.shape),
                     batch_text(other.shape), other.shape.zero, seconds_text(other.step),
                     percent_text(std::abs(slower)), slower < 0 ? "faster" : "slower");
}

std::string sharding_text(const Candidate& candidate) {
  const JobShape& shape = candidate.shape;
  std::string text =
      fmt::format("ZeRO {}, {}, {}", shape.zero,
                  shape.sequence_parallel ? "sequence parallel" : "no sequence parallelism",
                  shape.offload == Offload::kOff
                      ? "no offload"
                      : fmt::format("{} offloaded to hosts", what_moves(shape.offload)));
  const double bucket = bucket_of(candidate);
  return bucket > 0 ? fmt::format("{}, buckets of {}", text, bytes_text(bucket)) : text;
}

std::string dtypes_text(const JobShape& shape) {
  if (shape.gradient_dtype == DType::kF32) return std::string(name_of(shape.dtype));
  return fmt::format("{}, gradients in {}", name_of(shape.dtype), name_of(shape.gradient_dtype));
}

std::vector<Fact> decisions_of(const DecisionFile& file) {
  const Decision& decision = file.decision;
  const JobShape& shape = decision.best.shape;
  return {{"model", model_text(file.model)},
          {"machines",
           fmt::format("{}: {}", clipped(file.cluster.name, 40), machines_text(file.cluster))},
          {"cut", cut_text(shape)},
          {"batch", fmt::format("{}: {} micro-batches on each of {}",
                                counted(decision.global_batch, "sample"), batch_text(shape),
                                counted(shape.data, "data-parallel rank"))},
          {"schedule", fmt::format("{}, {}", schedule_text(shape), dtypes_text(shape))},
          {"sharding", sharding_text(decision.best)},
          {"recompute", recompute_text(decision.best)}};
}

std::string placement_text(const Candidate& candidate) {
  const size_t ranks = candidate.placement.size();
  size_t elsewhere = 0;
  const uint32_t first = candidate.stages.empty() ? 0 : candidate.stages.front().first_device;
  for (size_t rank = 0; rank < ranks; ++rank) {
    elsewhere += candidate.placement[rank] == first + rank ? 0 : 1;
  }
  return fmt::format("{} of {} ranks on other devices than their numbers'; in their order {}",
                     integer_text(elsewhere), integer_text(ranks),
                     seconds_text(candidate.unplaced));
}

std::vector<Fact> predictions_of(const DecisionFile& file) {
  const Decision& decision = file.decision;
  std::vector<Fact> facts;
  std::string step = seconds_text(decision.best.step);
  if (decision.best.simulated > 0) {
    const bool longer = decision.best.simulated > 1.03 * decision.best.step;
    step += fmt::format(", simulated {}{}", seconds_text(decision.best.simulated),
                        longer ? ": an order by priorities takes longer" : "");
  }
  facts.push_back({"step time", step});
  if (!decision.best.placement.empty()) {
    facts.push_back({"placement", placement_text(decision.best)});
  }
  facts.push_back({"speed", speed_text(file)});
  facts.push_back({"memory", memory_text(file)});
  if (std::string limits = limits_text(file); !limits.empty()) {
    facts.push_back({"limits", std::move(limits)});
  }
  std::string end;
  if (decision.hours > 0) end = hours_text(decision.hours);
  if (decision.cost > 0) {
    end += fmt::format("{}cost {}", end.empty() ? "" : ", ", money_text(decision.cost));
  }
  if (!end.empty()) facts.push_back({"to the end", end});
  if (decision.lambda > 0) {
    facts.push_back({"storage", bytes_text(decision.lambda) + "/s have to be read"});
  }
  return facts;
}

std::string bound_text(const Decision& decision) {
  const std::string gap = percent_text(decision.gap);
  if (decision.objective == Objective::kTime)
    return fmt::format("no plan searched takes less than {}: gap {}", seconds_text(decision.bound),
                       gap);
  return fmt::format("no plan searched costs less than {} a step: gap {}",
                     money_text(decision.best.price * (1 - decision.gap)), gap);
}

std::vector<Fact> certificates_of(const Decision& decision) {
  std::vector<Fact> facts;
  facts.push_back({"bound", bound_text(decision)});
  double host = 0;
  for (const PlannedStage& stage : decision.best.stages) host = std::max(host, stage.estimate.host);
  facts.push_back(
      {"proof",
       fmt::format("{} summed on the fullest device{}, no deadlock, {} looked at",
                   bytes_text(static_cast<double>(decision.memory_proof)),
                   host > 0 ? fmt::format(", {} of host memory each", bytes_text(host)) : "",
                   counted(decision.shapes, "shape"))});
  if (!decision.limit.empty()) facts.push_back({"limited by", decision.limit});
  if (decision.runner_up) facts.push_back({"runner-up", runner_up_text(decision)});
  return facts;
}

}  // namespace

Facts facts_of(const DecisionFile& file) {
  return {.decisions = decisions_of(file),
          .predictions = predictions_of(file),
          .certificates = certificates_of(file.decision)};
}

std::string degrees_text(const JobShape& shape) {
  return fmt::format("{} x {} x {} x {} x {}", shape.tensor, shape.context, shape.expert,
                     shape.data, shape.pipeline);
}

std::string batch_text(const JobShape& shape) {
  return fmt::format("{} x {}", shape.micro_batches, shape.micro_batch);
}

std::string schedule_text(const JobShape& shape) {
  if (shape.pipeline == 1) return "no pipeline";
  if (shape.chunks == 1) return std::string(name_of(shape.schedule));
  return fmt::format("{}, {} a stage", name_of(shape.schedule), counted(shape.chunks, "chunk"));
}

std::string recompute_text(const Candidate& candidate) {
  uint64_t counts[kRecomputeCount] = {};
  uint64_t layers = 0;
  for (const PlannedStage& stage : candidate.stages) {
    layers += stage.layers.end - stage.layers.begin;
    for (int how = 0; how < kRecomputeCount; ++how) {
      counts[how] += recomputed(stage, static_cast<Recompute>(how));
    }
  }
  std::string text;
  for (int how = 1; how < kRecomputeCount; ++how) {
    if (counts[how] == 0) continue;
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ",
                        name_of(static_cast<Recompute>(how)), counts[how]);
  }
  return text.empty() ? "none" : fmt::format("{} of {}", text, counted(layers, "layer"));
}

double bucket_of(const Candidate& candidate) {
  double bucket = 0;
  double most = -1;
  for (const PlannedStage& stage : candidate.stages) {
    if (stage.estimate.sync > most) bucket = stage.estimate.bucket;
    most = std::max(most, stage.estimate.sync);
  }
  return bucket;
}

std::string machines_text(const Cluster& cluster) {
  std::string text = counted(cluster.host_count(), "host");
  for (size_t type = 0; type < cluster.types.size(); ++type) {
    uint64_t devices = 0;
    for (const HostGroup& group : cluster.hosts) {
      if (group.type == type) devices += uint64_t{group.count} * group.devices;
    }
    text += fmt::format(", {} x {}", integer_text(devices), clipped(cluster.types[type].name, 30));
  }
  return text;
}

double limit_of(const DecisionFile& file, const PlannedStage& stage) {
  if (stage.memory_limit > 0) return stage.memory_limit;
  const double limit = file.decision.memory_limit;
  if (stage.type >= file.cluster.types.size()) return limit;
  const double memory = file.cluster.types[stage.type].memory;
  return limit > 0 && memory > 0 ? std::min(limit, memory) : limit;
}

size_t fullest_stage(const DecisionFile& file) {
  const auto& stages = file.decision.best.stages;
  const auto fullness = [&](size_t stage) {
    const double limit = limit_of(file, stages[stage]);
    return stages[stage].estimate.memory.sum() / (limit > 0 ? limit : 1);
  };
  size_t fullest = 0;
  for (size_t i = 1; i < stages.size(); ++i) {
    if (fullness(i) > fullness(fullest)) fullest = i;
  }
  return fullest;
}

double fullest_bytes(const DecisionFile& file) {
  const auto& stages = file.decision.best.stages;
  return stages.empty() ? 0 : stages[fullest_stage(file)].estimate.memory.sum();
}

double samples_per_second(const Decision& decision, const Candidate& candidate) {
  return candidate.step > 0 ? decision.global_batch / candidate.step : 0;
}

std::vector<StageGroup> groups_of(const DecisionFile& file,
                                  const std::vector<PlannedStage>& stages) {
  std::vector<StageGroup> groups;
  std::string before;
  for (size_t i = 0; i < stages.size(); ++i) {
    std::string look = look_of(file, stages[i]);
    if (groups.empty() || look != before) {
      groups.push_back({i, i});
    } else {
      groups.back().last = i;
    }
    before = std::move(look);
  }
  return groups;
}

}  // namespace corro::plan
