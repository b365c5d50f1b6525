#include "base/env.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "base/meeting_hosts.h"
#include "base/node_list.h"

namespace corro {
namespace {

constexpr int32_t kMaxRanks = 1 << 20;
constexpr int32_t kMaxServers = 1024;

/// How one launcher tells a process its place. nullptr: it does not.
struct LauncherNames {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
  const char* node_rank;
  const char* nodes;
};

/// The innermost launcher first: torchrun runs inside Slurm's jobs, not the other way round.
/// Slurm's variables are those that exist only for processes started by srun: in a batch script
/// SLURM_PROCID and SLURM_NTASKS promise ranks that nobody has started.
constexpr std::array<LauncherNames, 8> kLaunchers = {{
    {"corro", "CORRO_RANK", "CORRO_SIZE", "CORRO_LOCAL_RANK", "CORRO_LOCAL_SIZE", "CORRO_NODE_RANK",
     "CORRO_NODES"},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK",
     "GROUP_WORLD_SIZE"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", nullptr, nullptr},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_RANK",
     "MV2_COMM_WORLD_LOCAL_SIZE", nullptr, nullptr},
    {"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE", "JSM_NAMESPACE_LOCAL_RANK",
     "JSM_NAMESPACE_LOCAL_SIZE", nullptr, nullptr},
    {"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE", "FLUX_TASK_LOCAL_ID", nullptr, nullptr, nullptr},
    {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr, "SLURM_NODEID",
     "SLURM_STEP_NUM_NODES"},
}};

Status invalid(const char* name, std::string_view value, std::string_view expected) {
  return {Code::kInvalidArgument, fmt::format("{}={}: expected {}", name, value, expected)};
}

/// Reads variables one after the other and keeps the first thing that is wrong with them.
class Reader {
 public:
  explicit Reader(const EnvironmentLookup& lookup) : lookup_(lookup) {}

  /// An empty variable counts as not set, as shells' `X= command` means it.
  std::optional<std::string> text(const char* name) {
    if (name == nullptr) return std::nullopt;
    auto value = lookup_(name);
    return value && !value->empty() ? value : std::nullopt;
  }

  template <typename T = int32_t>
  std::optional<T> number(const char* name, T lowest, T highest = kMaxRanks) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    T result = 0;
    const char* end = value->data() + value->size();
    const auto [stop, error] = std::from_chars(value->data(), end, result);
    if (error == std::errc() && stop == end && result >= lowest && result <= highest) return result;
    fail(invalid(name, *value, fmt::format("a whole number from {} to {}", lowest, highest)));
    return std::nullopt;
  }

  /// A decimal number of `unit`s, at least `least`.
  std::optional<Duration> duration(const char* name, Duration unit, std::string_view unit_name,
                                   Duration least = Duration(1)) {
    const auto value = text(name);
    if (!value) return std::nullopt;
    char* stop = nullptr;
    const double count = std::strtod(value->c_str(), &stop);
    constexpr double kYear = 365.0 * 24 * 3600 * 1e9;
    const double nanoseconds = count * static_cast<double>(unit.count());
    if (stop == value->c_str() + value->size() &&
        nanoseconds >= static_cast<double>(least.count()) && nanoseconds <= kYear) {
      return Duration(static_cast<Duration::rep>(nanoseconds));
    }
    fail(invalid(name, *value,
                 fmt::format("a number of {} {} 0, at most those of a year", unit_name,
                             least > Duration::zero() ? "above" : "from")));
    return std::nullopt;
  }

  bool flag(const char* name) {
    const auto value = text(name);
    if (value && *value != "0" && *value != "1") fail(invalid(name, *value, "0 or 1"));
    return value == "1";
  }

  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const EnvironmentLookup& lookup_;
  Status status_;
};

/// A table server is no rank, whatever it has inherited; it knows with how many the job begins, and may
/// have come later.
void read_server(Reader& reader, int32_t server, Environment& environment) {
  environment.launcher = "corro";
  environment.size = reader.number("CORRO_SIZE", 1);
  environment.nodes = reader.number("CORRO_NODES", 1);
  if (environment.servers > 0) return;
  reader.fail(invalid("CORRO_SERVER", fmt::to_string(server),
                      "a server of a job that has some: CORRO_SERVERS is not set, or 0"));
}

/// Takes the place in the job from the first launcher that tells rank and size.
void read_place(Reader& reader, Environment& environment) {
  for (const LauncherNames& names : kLaunchers) {
    const auto rank_text = reader.text(names.rank);
    const auto size_text = reader.text(names.size);
    const bool ours = names.launcher == std::string_view("corro");
    if (ours && rank_text.has_value() != size_text.has_value()) {
      reader.fail(
          {Code::kInvalidArgument,
           fmt::format("{}={} is set, but {} is not: set both or none",
                       rank_text ? names.rank : names.size, rank_text ? *rank_text : *size_text,
                       rank_text ? names.size : names.rank)});
      return;
    }
    // Another launcher's half pair is a stray variable, not ours to judge.
    if (!rank_text || !size_text || environment.rank) continue;
    environment.launcher = names.launcher;
    environment.rank = reader.number(names.rank, 0);
    environment.size = reader.number(names.size, 1);
    environment.local_rank = reader.number(names.local_rank, 0);
    environment.local_size = reader.number(names.local_size, 1);
    environment.node_rank = reader.number(names.node_rank, 0);
    environment.nodes = reader.number(names.nodes, 1);
    if (environment.rank && environment.size && *environment.rank >= *environment.size) {
      reader.fail(invalid(names.rank, *rank_text,
                          fmt::format("a rank below {}={}", names.size, *size_text)));
    }
    if (environment.local_rank && environment.local_size &&
        *environment.local_rank >= *environment.local_size) {
      reader.fail(
          invalid(names.local_rank, fmt::to_string(*environment.local_rank),
                  fmt::format("a rank below {}={}", names.local_size, *environment.local_size)));
    }
  }
}

/// Several mpiruns, and several steps, may run in one job of Slurm.
std::string read_job_id(Reader& reader, const std::string& launcher) {
  for (const char* name : {"CORRO_JOB_ID", "TORCHELASTIC_RUN_ID"}) {
    if (auto value = reader.text(name)) return *value;
  }
  if (launcher == "Open MPI") {
    // It follows from mpirun's host and number, which are those of before in a container that was
    // started again.
    const auto run = reader.text("CORRO_RUN");
    if (auto value = reader.text("PMIX_NAMESPACE")) return run ? *value + "." + *run : *value;
  }
  const auto job = reader.text("SLURM_JOB_ID").value_or("");
  const auto step = launcher == "Slurm" ? reader.text("SLURM_STEP_ID") : std::nullopt;
  return step ? fmt::format("{}.{}", job, *step) : job;
}

bool read_local_tcp(Reader& reader) {
  const auto value = reader.text("CORRO_TRANSPORT");
  if (value && *value != "shm" && *value != "tcp")
    reader.fail(invalid("CORRO_TRANSPORT", *value, "shm or tcp"));
  return value == "tcp";
}

/// "dir:PATH" or "tcp:HOST:PORT".
void read_bootstrap(Reader& reader, Environment& environment) {
  constexpr std::string_view kDirectory = "dir:";
  constexpr std::string_view kTcp = "tcp:";
  const auto value = reader.text("CORRO_BOOTSTRAP");
  if (!value) return;
  if (value->starts_with(kDirectory) && value->size() > kDirectory.size()) {
    environment.bootstrap_directory = value->substr(kDirectory.size());
    return;
  }
  const size_t colon = value->rfind(':');
  const bool tcp = value->starts_with(kTcp) && colon > kTcp.size();
  uint16_t port = 0;
  const char* end = value->data() + value->size();
  const char* begin = tcp ? value->data() + colon + 1 : end;
  const auto [stop, error] = std::from_chars(begin, end, port);
  if (!tcp || error != std::errc() || stop != end || port == 0) {
    reader.fail(invalid("CORRO_BOOTSTRAP", *value,
                        "dir:PATH with a directory that all ranks share, or tcp:HOST:PORT with "
                        "rank 0's host and a free port"));
    return;
  }
  std::string host = value->substr(kTcp.size(), colon - kTcp.size());
  std::erase_if(host, [](char c) { return c == '[' || c == ']'; });
  environment.meeting_hosts = {std::move(host)};
  environment.meeting_port = port;
}

/// Where the launcher's ranks can meet, from what it says of its hosts.
void read_meeting_hosts(Reader& reader, Environment& environment) {
  if (environment.meeting_port) return;
  if (environment.launcher == "Open MPI") {
    environment.meeting_hosts = addresses_of_uri(reader.text("OMPI_MCA_orte_hnp_uri").value_or(""));
    const auto host = host_of_namespace(reader.text("PMIX_NAMESPACE").value_or(""));
    if (environment.meeting_hosts.empty() && !host.empty()) environment.meeting_hosts = {host};
  }
  const auto nodes = reader.text("SLURM_STEP_NODELIST");
  if (environment.launcher != "Slurm" || !nodes) return;
  const auto hosts = expand_node_list(*nodes);
  if (hosts.ok()) {
    environment.meeting_hosts = {hosts->front()};
  } else {
    reader.fail(hosts.status().with_context("SLURM_STEP_NODELIST"));
  }
}

std::string read_user_secret_file(Reader& reader) {
  const auto config = reader.text("XDG_CONFIG_HOME");
  if (config) return *config + "/corro/secret";
  const auto home = reader.text("HOME");
  return home ? *home + "/.config/corro/secret" : "";
}

}  // namespace

std::optional<bool> on_one_host(const Environment& environment) {
  if (environment.elastic) return std::nullopt;
  if (environment.nodes) return environment.nodes == 1;
  if (environment.local_size && environment.size) return environment.local_size == environment.size;
  return std::nullopt;
}

std::string common_settings(const Environment& environment) {
  return fmt::format("CORRO_TRANSPORT={} CORRO_DETERMINISTIC={:d} CORRO_COMMIT={:d}",
                     environment.local_tcp ? "tcp" : "shm", environment.deterministic,
                     environment.commit);
}

Result<Environment> read_environment(const EnvironmentLookup& lookup) {
  Reader reader(lookup);
  Environment environment;
  environment.ranks_serve = reader.text("CORRO_SERVERS") == "ranks";
  if (!environment.ranks_serve)
    environment.servers = reader.number("CORRO_SERVERS", 0, kMaxServers).value_or(0);
  environment.server = reader.number("CORRO_SERVER", 0, kMaxServers);
  if (environment.server)
    read_server(reader, *environment.server, environment);
  else
    read_place(reader, environment);
  if (environment.ranks_serve) environment.servers = environment.size.value_or(1);
  environment.job_id = read_job_id(reader, environment.launcher);
  environment.agent = reader.text("CORRO_AGENT").value_or("");
  environment.elastic = reader.flag("CORRO_ELASTIC");
  environment.member = reader.text("CORRO_MEMBER_UUID").value_or("");
  environment.joins = reader.flag("CORRO_JOINS");
  environment.pod_job = reader.text("CORRO_JOB_UID").value_or("");
  environment.pod_head = reader.text("CORRO_HEAD").value_or("");
  environment.secret_file = reader.text("CORRO_SECRET_FILE").value_or("");
  environment.user_secret_file = read_user_secret_file(reader);
  environment.master_address = reader.text("MASTER_ADDR").value_or("");
  read_bootstrap(reader, environment);
  read_meeting_hosts(reader, environment);
  environment.listen = reader.text("CORRO_LISTEN").value_or("");
  environment.host_id = reader.text("CORRO_HOST_ID").value_or("");
  environment.interfaces = find_interface_rule(lookup);
  environment.local_tcp = read_local_tcp(reader);
  environment.deterministic = reader.flag("CORRO_DETERMINISTIC");
  environment.commit = reader.flag("CORRO_COMMIT");
  environment.timeout = reader.duration("CORRO_TIMEOUT", std::chrono::seconds(1), "seconds");
  environment.spin =
      reader.duration("CORRO_SPIN", std::chrono::microseconds(1), "microseconds", Duration::zero());
  environment.fusion_bytes = reader.number<uint64_t>("CORRO_FUSION_BYTES", 0, uint64_t{1} << 40U);
  environment.algorithms = reader.text("CORRO_ALGORITHMS").value_or("");
  environment.scheduler_nodes = reader.number("SLURM_JOB_NUM_NODES", 1);
  if (!reader.status().ok()) return reader.status();
  return environment;
}

Result<Environment> read_environment() {
  return read_environment([](const char* name) -> std::optional<std::string> {
    const char* value =
        std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before any thread
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

}  // namespace corro
