#include "plan/partition/partition.h"

#include <type_traits>
#include <utility>

#include <fmt/format.h>

#include "plan/json.h"
#include "plan/partition/instance_fields.h"
#include "plan/partition/max_load.h"
#include "plan/partition/piper.h"

namespace corro::plan {
namespace {

Status refuse(std::string_view option, std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", option, what)};
}

/// Replaces `value` by an option, if the option is given and possible.
template <typename T>
Status replace(T& value, const std::optional<T>& option, std::string_view name, T least, T most) {
  if (!option) return {};
  // Turned around, so that it holds for what is no number at all, too.
  if (!(*option >= least && *option <= most)) {
    return refuse(name, fmt::format("must be a number from {} to {}", least, most));
  }
  value = *option;
  return {};
}

Status apply(MaxLoadInstance& instance, const PartitionOptions& options) {
  constexpr std::string_view kOther = "is no number of this kind of file";
  if (options.micro_batches) return refuse("micro-batches", kOther);
  if (options.bandwidth) return refuse("bandwidth", kOther);
  const uint32_t least = instance.processors == 0 ? 1 : 0;
  CORRO_TRY(
      replace(instance.accelerators, options.devices, "devices", least, kMostPartitionDevices));
  return replace(instance.memory_bytes, options.memory_bytes, "memory", 0.0, kMostQuantity);
}

Status apply(PiperInstance& instance, const PartitionOptions& options) {
  CORRO_TRY(
      replace(instance.devices, options.devices, "devices", uint32_t{1}, kMostPartitionDevices));
  CORRO_TRY(replace(instance.micro_batches, options.micro_batches, "micro-batches", uint64_t{1},
                    kMostMicroBatches));
  CORRO_TRY(replace(instance.memory_bytes, options.memory_bytes, "memory", kLeastPositive,
                    kMostQuantity));
  return replace(instance.bandwidth, options.bandwidth, "bandwidth", kLeastPositive, kMostQuantity);
}

Result<PartitionResult> search(const MaxLoadInstance& instance) { return solve_max_load(instance); }
Result<PartitionResult> search(const PiperInstance& instance) { return solve_piper(instance); }

Json to_value(const PartitionStage& stage) {
  if (stage.choices.empty()) {
    return {{"nodes", stage.nodes},
            {"device", stage.on_accelerator ? "accelerator" : "processor"},
            {"load", stage.time},
            {"memory_bytes", stage.memory_bytes}};
  }
  return {{"nodes", stage.nodes},
          {"devices", stage.devices()},
          {"data_parallel", stage.data_parallel},
          {"tensor_parallel", stage.tensor_parallel},
          {"time", stage.time},
          {"memory_bytes", stage.memory_bytes},
          {"choices", stage.choices}};
}

}  // namespace

Result<PartitionInstance> read_instance(std::string_view text, std::string_view name) {
  CORRO_ASSIGN(const Json document, parse_json(text, name));
  PartitionInstance instance{.name = std::string(name), .problem = {}};
  Reading reading(name);
  const bool max_load = document.is_object() && document.contains("maxFPGAs");
  const bool piper = document.is_object() && document.contains("maxDevices");
  if (!document.is_object()) {
    reading.fail({}, "must be an object");
  } else if (max_load == piper) {
    reading.fail({},
                 "must have either maxFPGAs (a max-load instance) or maxDevices (an instance "
                 "of Piper)");
  }
  CORRO_TRY(reading.status());
  if (max_load) {
    CORRO_ASSIGN(instance.problem, read_max_load(document, name));
  } else {
    CORRO_ASSIGN(instance.problem, read_piper(document, name));
  }
  return instance;
}

Result<PartitionResult> solve(const PartitionInstance& instance, const PartitionOptions& options) {
  auto result = std::visit(
      [&options](auto problem) -> Result<PartitionResult> {
        CORRO_TRY(apply(problem, options));
        return search(problem);
      },
      instance.problem);
  if (!result.ok()) return result.status().with_context(instance.name);
  return result;
}

std::string to_json(const PartitionResult& result, double seconds) {
  Json stages = Json::array();
  for (const PartitionStage& stage : result.stages) stages.push_back(to_value(stage));
  nlohmann::ordered_json document{{"objective", result.objective}};
  document["stages"] = stages;
  document["seconds"] = seconds;
  return document.dump() + "\n";
}

}  // namespace corro::plan
