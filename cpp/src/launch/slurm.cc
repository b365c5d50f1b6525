#include "launch/slurm.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/node_list.h"

namespace corro::launch {
namespace {

constexpr int kMostNodes = 65536;
/// Steps from here on are Slurm's own: the batch script, the shell of salloc.
constexpr uint32_t kFirstOwnStep = 0xFFFFFFF0;

Status not_understood(const char* name, std::string_view value, std::string_view expected) {
  return {Code::kInvalidArgument, fmt::format("{}={}: expected {}", name, value, expected)};
}

template <typename T>
std::optional<T> number_of(std::string_view text, T lowest, T highest) {
  T number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.begin(), end, number);
  const bool good = error == std::errc() && stop == end && number >= lowest && number <= highest;
  return good ? std::optional(number) : std::nullopt;
}

/// Whether the launcher is a task of a step that the user has started by srun.
bool in_step(const Variables& environment) {
  if (!environment.contains("SLURM_STEP_NODELIST")) return false;
  const auto step = number_of<uint32_t>(value_of(environment, "SLURM_STEP_ID"), 0, UINT32_MAX);
  return step && *step < kFirstOwnStep;
}

/// Ranks on each of `nodes` hosts, and what says so.
Result<std::vector<int>> slots_of(const Variables& environment, bool step, size_t nodes,
                                  std::string& source) {
  const char* name = step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE";
  if (const std::string text = value_of(environment, name); !text.empty()) {
    auto slots = expand_tasks_per_node(text);
    if (!slots.ok() || slots->size() != nodes) {
      return not_understood(name, text,
                            fmt::format("the tasks of {} nodes, such as 2(x3),1", nodes));
    }
    source += fmt::format(", {}={}", name, text);
    return slots;
  }
  const std::string each = value_of(environment, "SLURM_NTASKS_PER_NODE", "1");
  const auto slots = number_of(each, 1, kMostNodes);
  if (!slots) return not_understood("SLURM_NTASKS_PER_NODE", each, "a number of tasks");
  return std::vector<int>(nodes, *slots);
}

}  // namespace

Result<std::vector<int>> expand_tasks_per_node(std::string_view text) {
  const Status wrong(Code::kInvalidArgument,
                     fmt::format("'{}' is no list of tasks such as 2(x3),1", text));
  std::vector<int> all;
  while (true) {
    const std::string_view part = text.substr(0, text.find(','));
    const size_t open = part.find("(x");
    const auto tasks = number_of(part.substr(0, open), 1, kMostNodes);
    std::optional<int> times = 1;
    if (open != std::string_view::npos) {
      times = part.ends_with(')')
                  ? number_of(part.substr(open + 2, part.size() - open - 3), 1, kMostNodes)
                  : std::nullopt;
    }
    if (!tasks || !times || static_cast<size_t>(*times) > kMostNodes - all.size()) return wrong;
    all.insert(all.end(), static_cast<size_t>(*times), *tasks);
    if (part.size() == text.size()) return all;
    text.remove_prefix(part.size() + 1);
  }
}

Result<std::optional<SlurmHosts>> find_slurm_hosts(const Variables& environment) {
  const bool step = in_step(environment);
  const char* name = step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST";
  const std::string nodes = value_of(environment, name);
  const bool one_of_many =
      number_of(value_of(environment, "SLURM_STEP_NUM_TASKS"), 2, kMostNodes).has_value();
  if (nodes.empty() || one_of_many) return std::optional<SlurmHosts>();
  auto names = expand_node_list(nodes);
  if (!names.ok()) return names.status().with_context(name);
  SlurmHosts found;
  found.source = fmt::format("Slurm: {}={}", name, nodes);
  CORRO_ASSIGN(const auto slots, slots_of(environment, step, names->size(), found.source));
  for (size_t i = 0; i < names->size(); ++i)
    found.hosts.push_back({.name = std::move((*names)[i]), .slots = slots[i]});
  found.slots_asked_for =
      environment.contains("SLURM_NTASKS") || environment.contains("SLURM_NTASKS_PER_NODE");
  return std::optional(std::move(found));
}

}  // namespace corro::launch
