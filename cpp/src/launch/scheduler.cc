#include "launch/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdlib>
#include <set>
#include <span>
#include <sstream>

namespace corro::launch {
namespace {

/// A variable that holds a number of nodes or of copies of this launcher.
struct CountVariable {
  const char* who;
  const char* name;
  const char* unit;
};

constexpr const char* kCopies = "copies of this launcher";

constexpr std::array kCounts = {
    CountVariable{.who = "srun", .name = "SLURM_STEP_NUM_TASKS", .unit = kCopies},
    CountVariable{.who = "Slurm", .name = "SLURM_JOB_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "Slurm", .name = "SLURM_NNODES", .unit = "nodes"},
    CountVariable{.who = "Open MPI", .name = "OMPI_COMM_WORLD_SIZE", .unit = kCopies},
    CountVariable{.who = "MPI", .name = "PMI_SIZE", .unit = kCopies},
    CountVariable{.who = "MVAPICH", .name = "MV2_COMM_WORLD_SIZE", .unit = kCopies},
    CountVariable{.who = "jsrun", .name = "JSM_NAMESPACE_SIZE", .unit = kCopies},
    CountVariable{.who = "Flux", .name = "FLUX_JOB_SIZE", .unit = kCopies},
    CountVariable{.who = "Flux", .name = "FLUX_JOB_NNODES", .unit = "nodes"},
    CountVariable{.who = "torchrun's environment", .name = "PET_NNODES", .unit = "nodes"},
    CountVariable{.who = "torchrun", .name = "GROUP_WORLD_SIZE", .unit = "nodes"},
    CountVariable{.who = "SkyPilot", .name = "SKYPILOT_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "Azure ML", .name = "AZUREML_NODE_COUNT", .unit = "nodes"},
    CountVariable{.who = "AWS Batch", .name = "AWS_BATCH_JOB_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "corro run", .name = "CORRO_NODES", .unit = "nodes"},
    CountVariable{
        .who = "corro run", .name = "CORRO_SIZE", .unit = "ranks, of which this process is one"},
};

/// These come after lists of hosts, which say by which file corro run can use them.
constexpr std::array kCountsBesideLists = {
    CountVariable{.who = "PBS", .name = "PBS_NUM_NODES", .unit = "nodes"},
    CountVariable{.who = "Cobalt", .name = "COBALT_JOBSIZE", .unit = "nodes"},
};

/// A variable that names the hosts themselves, or a file of them.
struct HostList {
  enum class Form : uint8_t {
    kFileOfHosts,         ///< A line for each slot: a host. corro reads it as a hostfile.
    kFileOfHostsAndMore,  ///< Grid Engine's: "host1 4 all.q@host1 UNDEFINED".
    kHosts,               ///< "host1 host1 host2"
    kHostsAndSlots,       ///< "host1 4 host2 4"
  };
  const char* who;
  const char* name;
  Form form;
};

constexpr std::array kHostLists = {
    HostList{.who = "PBS", .name = "PBS_NODEFILE", .form = HostList::Form::kFileOfHosts},
    HostList{.who = "LSF", .name = "LSB_DJOB_HOSTFILE", .form = HostList::Form::kFileOfHosts},
    HostList{.who = "LSF", .name = "LSB_MCPU_HOSTS", .form = HostList::Form::kHostsAndSlots},
    HostList{.who = "LSF", .name = "LSB_HOSTS", .form = HostList::Form::kHosts},
    HostList{
        .who = "Grid Engine", .name = "PE_HOSTFILE", .form = HostList::Form::kFileOfHostsAndMore},
    HostList{.who = "Cobalt", .name = "COBALT_NODEFILE", .form = HostList::Form::kFileOfHosts},
    HostList{.who = "OAR", .name = "OAR_NODEFILE", .form = HostList::Form::kFileOfHosts},
    HostList{.who = "OAR", .name = "OAR_NODE_FILE", .form = HostList::Form::kFileOfHosts},
};

/// A variable by which a job of a scheduler knows itself.
struct JobVariable {
  const char* who;
  const char* name;
};

constexpr std::array kJobs = {
    JobVariable{.who = "PBS", .name = "PBS_JOBID"},
    JobVariable{.who = "LSF", .name = "LSB_JOBID"},
    JobVariable{.who = "Grid Engine", .name = "PE_HOSTFILE"},
    JobVariable{.who = "Flux", .name = "FLUX_JOB_ID"},
    JobVariable{.who = "Flux", .name = "FLUX_URI"},
    JobVariable{.who = "Cobalt", .name = "COBALT_JOBID"},
    JobVariable{.who = "OAR", .name = "OAR_JOB_ID"},
};

/// Reads "4", and the upper end of "1:4" (torchrun's elastic range); 0 if it is no number.
long upper_count(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string last = colon == std::string::npos ? text : text.substr(colon + 1);
  char* end = nullptr;
  const long value = std::strtol(last.c_str(), &end, 10);
  return end == last.c_str() ? 0 : value;
}

using FileReader = std::function<std::string(const std::string&)>;

/// How many different hosts the list names; 0 if it is not there or cannot be read.
size_t count_hosts(const HostList& list, const Variables& environment,
                   const FileReader& read_file) {
  using Form = HostList::Form;
  const std::string value = value_of(environment, list.name);
  if (value.empty()) return 0;
  const bool is_file = list.form == Form::kFileOfHosts || list.form == Form::kFileOfHostsAndMore;
  std::istringstream text(is_file ? read_file(value) : value);
  std::set<std::string> hosts;
  std::string word;
  for (size_t i = 0; text >> word; ++i) {
    if (list.form != Form::kHostsAndSlots || i % 2 == 0) hosts.insert(word);
    if (list.form == Form::kFileOfHostsAndMore) std::getline(text, word);
  }
  return hosts.size();
}

std::string remedy_of(const HostList& list) {
  switch (list.form) {
    case HostList::Form::kFileOfHosts:
      return fmt::format("--hostfile ${}", list.name);
    case HostList::Form::kFileOfHostsAndMore:
      return fmt::format(R"(--hostfile <(awk '{{print $1":"$2}}' ${}))", list.name);
    case HostList::Form::kHosts:
    case HostList::Form::kHostsAndSlots:
      break;
  }
  return "-H with their names";
}

std::optional<Surplus> find_host_list(const Variables& environment, const FileReader& read_file) {
  for (const HostList& list : kHostLists) {
    const size_t hosts = count_hosts(list, environment, read_file);
    if (hosts > 1) {
      return Surplus{.who = list.who,
                     .what = fmt::format("{} nodes ({})", hosts, list.name),
                     .remedy = remedy_of(list)};
    }
  }
  // Amazon SageMaker: a JSON list, ["algo-1","algo-2"]
  const std::string hosts = value_of(environment, "SM_HOSTS");
  const auto commas = std::count(hosts.begin(), hosts.end(), ',');
  if (commas > 0)
    return Surplus{.who = "SageMaker",
                   .what = fmt::format("{} nodes (SM_HOSTS)", commas + 1),
                   .remedy = "-H with their names"};
  return std::nullopt;
}

std::optional<Surplus> find_count(std::span<const CountVariable> counts,
                                  const Variables& environment, bool with_slurm) {
  for (const CountVariable& variable : counts) {
    if (with_slurm && variable.who == std::string_view("Slurm")) continue;
    const long count = upper_count(value_of(environment, variable.name));
    if (count <= 1) continue;
    const bool are_nodes = variable.unit == std::string_view("nodes");
    return Surplus{.who = variable.who,
                   .what = fmt::format("{} {} ({}={})", count, variable.unit, variable.name,
                                       environment.at(variable.name)),
                   .remedy = are_nodes ? "-H with their names" : ""};
  }
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
  if (auto found = find_count(kCounts, environment, with_slurm)) return found;
  if (auto found = find_host_list(environment, read_file)) return found;
  if (auto found = find_count(kCountsBesideLists, environment, with_slurm)) return found;
  return find_pods(environment);
}

std::string describe_unknown_hosts(
    const Variables& environment, const std::function<std::string(const std::string&)>& read_file) {
  std::set<std::string_view> known;
  for (const HostList& list : kHostLists) {
    if (count_hosts(list, environment, read_file) > 0) known.insert(list.who);
  }
  for (const auto& counts : {std::span<const CountVariable>(kCounts),
                             std::span<const CountVariable>(kCountsBesideLists)}) {
    for (const CountVariable& count : counts) {
      const bool is_of_nodes = count.unit == std::string_view("nodes");
      if (is_of_nodes && upper_count(value_of(environment, count.name)) > 0)
        known.insert(count.who);
    }
  }
  for (const JobVariable& job : kJobs) {
    if (known.contains(job.who) || value_of(environment, job.name).empty()) continue;
    return fmt::format(
        "this is a job of {} ({}), whose hosts corro does not know: the ranks run on this host "
        "alone; -H or --hostfile names others, --allow-single-node leaves this line out",
        job.who, job.name);
  }
  return "";
}

std::string refusal(const Surplus& surplus) {
  return fmt::format(
      "{} announces {}, but this launcher would train on this host alone; {}give "
      "--allow-single-node if that is what you want",
      surplus.who, surplus.what,
      surplus.remedy.empty() ? "" : fmt::format("to use all, give {}; ", surplus.remedy));
}

}  // namespace corro::launch
