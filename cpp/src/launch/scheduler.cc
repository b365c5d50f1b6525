#include "launch/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>
#include <sstream>

namespace corro::launch {
namespace {

/// A variable that holds a number of nodes or of copies of this launcher.
struct CountVariable {
  const char* who;
  const char* name;
  const char* unit;
};

constexpr std::array kCounts = {
    CountVariable{.who = "srun", .name = "SLURM_STEP_NUM_TASKS", .unit = "copies of this launcher"},
    CountVariable{.who = "Slurm", .name = "SLURM_JOB_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "Slurm", .name = "SLURM_NNODES", .unit = "nodes"},
    CountVariable{.who = "PBS", .name = "PBS_NUM_NODES", .unit = "nodes"},
    CountVariable{
        .who = "Open MPI", .name = "OMPI_COMM_WORLD_SIZE", .unit = "copies of this launcher"},
    CountVariable{.who = "MPI", .name = "PMI_SIZE", .unit = "copies of this launcher"},
    CountVariable{.who = "torchrun's environment", .name = "PET_NNODES", .unit = "nodes"},
    CountVariable{.who = "torchrun", .name = "GROUP_WORLD_SIZE", .unit = "nodes"},
    CountVariable{.who = "SkyPilot", .name = "SKYPILOT_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "Azure ML", .name = "AZUREML_NODE_COUNT", .unit = "nodes"},
    CountVariable{.who = "corro run", .name = "CORRO_NODES", .unit = "nodes"},
    CountVariable{
        .who = "corro run", .name = "CORRO_SIZE", .unit = "ranks, of which this process is one"},
};

/// Reads "4", and the upper end of "1:4" (torchrun's elastic range); 0 if it is no number.
long upper_count(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string last = colon == std::string::npos ? text : text.substr(colon + 1);
  char* end = nullptr;
  const long value = std::strtol(last.c_str(), &end, 10);
  return end == last.c_str() ? 0 : value;
}

size_t distinct_words(const std::string& text, size_t stride = 1) {
  std::istringstream words(text);
  std::set<std::string> distinct;
  std::string word;
  for (size_t i = 0; words >> word; ++i) {
    if (i % stride == 0) distinct.insert(word);
  }
  return distinct.size();
}

std::optional<Surplus> find_host_list(
    const Variables& environment, const std::function<std::string(const std::string&)>& read_file) {
  const std::string node_file = value_of(environment, "PBS_NODEFILE");
  if (!node_file.empty()) {
    const size_t nodes = distinct_words(read_file(node_file));
    if (nodes > 1)
      return Surplus{.who = "PBS", .what = fmt::format("{} nodes (PBS_NODEFILE)", nodes)};
  }
  // "host1 4 host2 4"
  const size_t lsf = distinct_words(value_of(environment, "LSB_MCPU_HOSTS"), 2);
  if (lsf > 1) return Surplus{.who = "LSF", .what = fmt::format("{} nodes (LSB_MCPU_HOSTS)", lsf)};
  // Amazon SageMaker: a JSON list, ["algo-1","algo-2"]
  const std::string hosts = value_of(environment, "SM_HOSTS");
  const auto commas = std::count(hosts.begin(), hosts.end(), ',');
  if (commas > 0)
    return Surplus{.who = "SageMaker", .what = fmt::format("{} nodes (SM_HOSTS)", commas + 1)};
  return std::nullopt;
}

/// Kubernetes training operators give each pod RANK, WORLD_SIZE and MASTER_ADDR, and no local size.
std::optional<Surplus> find_pods(const Variables& environment) {
  const long world = upper_count(value_of(environment, "WORLD_SIZE"));
  const std::string master = value_of(environment, "MASTER_ADDR");
  const bool elsewhere = !master.empty() && master != "localhost" && master != "127.0.0.1";
  if (world > 1 && elsewhere && !environment.contains("LOCAL_WORLD_SIZE") &&
      environment.contains("KUBERNETES_SERVICE_HOST")) {
    return Surplus{.who = "Kubernetes",
                   .what = fmt::format("{} pods (WORLD_SIZE={})", world, world)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<Surplus> find_surplus(const Variables& environment,
                                    const std::function<std::string(const std::string&)>& read_file,
                                    bool with_slurm) {
  for (const CountVariable& variable : kCounts) {
    if (with_slurm && variable.who == std::string_view("Slurm")) continue;
    const long count = upper_count(value_of(environment, variable.name));
    if (count > 1) {
      return Surplus{.who = variable.who,
                     .what = fmt::format("{} {} ({}={})", count, variable.unit, variable.name,
                                         environment.at(variable.name))};
    }
  }
  if (auto found = find_host_list(environment, read_file)) return found;
  return find_pods(environment);
}

std::string refusal(const Surplus& surplus) {
  return fmt::format(
      "{} announces {}, but this launcher would train on this host alone; give "
      "--allow-single-node if that is what you want",
      surplus.who, surplus.what);
}

}  // namespace corro::launch
