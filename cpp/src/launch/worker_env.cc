#include "launch/worker_env.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace corro::launch {
namespace {

bool is_name(std::string_view text) {
  if (text.empty() || (text[0] >= '0' && text[0] <= '9')) return false;
  return text.find_first_not_of(
             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") ==
         std::string_view::npos;
}

constexpr std::array kReserved = {
    "CORRO_RUN",       "CORRO_RANK",   "CORRO_SIZE",    "CORRO_LOCAL_RANK", "CORRO_LOCAL_SIZE",
    "CORRO_NODE_RANK", "CORRO_NODES",  "CORRO_JOB_ID",  "CORRO_AGENT",      "CORRO_MEMBER_UUID",
    "CORRO_JOINS",     "CORRO_SERVER", "CORRO_SERVERS", "CORRO_ELASTIC"};

void add_torchrun_names(const JobFacts& job, const Seat& seat, Variables& variables) {
  const JobHost& host = job.hosts[seat.host];
  const std::string& master = job.hosts[0].address;
  for (const char* name : {"RANK", "ROLE_RANK"}) variables[name] = std::to_string(seat.rank);
  variables["LOCAL_RANK"] = std::to_string(seat.local_rank);
  for (const char* name : {"WORLD_SIZE", "ROLE_WORLD_SIZE"})
    variables[name] = std::to_string(job.ranks);
  variables["LOCAL_WORLD_SIZE"] = std::to_string(host.ranks);
  variables["GROUP_RANK"] = std::to_string(seat.host);
  variables["GROUP_WORLD_SIZE"] = std::to_string(job.nodes());
  variables["ROLE_NAME"] = "default";
  variables["MASTER_ADDR"] = master.empty() ? "127.0.0.1" : master;
  variables["MASTER_PORT"] = std::to_string(job.master_port);
  variables["TORCHELASTIC_RUN_ID"] = job.job_id;
  variables["TORCHELASTIC_RESTART_COUNT"] = "0";
  variables["TORCHELASTIC_MAX_RESTARTS"] = "0";
  variables["TORCHELASTIC_USE_AGENT_STORE"] = "False";  // rank 0 opens the store at MASTER_PORT
  if (host.own)
    variables["TORCHELASTIC_ERROR_FILE"] =
        fmt::format("{}/rank-{}.error.json", job.error_dir, seat.rank);
}

/// Scripts of Horovod read them. Cross rank: the place of the rank's host among those that have its
/// local rank.
void add_horovod_names(const JobFacts& job, const Seat& seat, Variables& variables) {
  const JobHost& host = job.hosts[seat.host];
  int cross_rank = 0;
  int cross_size = 0;
  for (const JobHost& one : job.hosts) {
    if (&one == &host) cross_rank = cross_size;
    cross_size += one.ranks > seat.local_rank ? 1 : 0;
  }
  for (const auto& [name, value] : {std::pair("RANK", seat.rank),
                                    {"SIZE", job.ranks},
                                    {"LOCAL_RANK", seat.local_rank},
                                    {"LOCAL_SIZE", host.ranks},
                                    {"CROSS_RANK", cross_rank},
                                    {"CROSS_SIZE", cross_size}})
    variables[std::string("HOROVOD_") + name] = std::to_string(value);
  variables["HOROVOD_HOSTNAME"] = host.name;
}

}  // namespace

size_t JobFacts::nodes() const {
  return static_cast<size_t>(
      std::ranges::count_if(hosts, [](const JobHost& host) { return host.slots() > 0; }));
}

size_t JobFacts::host_of_server(int server) const {
  std::vector<size_t> around;
  for (size_t host = 0; host < hosts.size(); ++host)
    if (hosts[host].slots() == 0) around.push_back(host);
  const auto turn = static_cast<size_t>(server);
  return around.empty() ? turn % hosts.size() : around[turn % around.size()];
}

size_t JobFacts::host_of(int rank) const {
  const auto next = std::ranges::upper_bound(hosts, rank, {}, &JobHost::first_rank);
  return static_cast<size_t>(next - hosts.begin()) - 1;
}

Seat JobFacts::seat_of(int rank) const {
  const size_t host = host_of(rank);
  return {.rank = rank, .host = host, .local_rank = rank - hosts[host].first_rank};
}

JobFacts JobFacts::full() const {
  JobFacts job = *this;
  job.ranks = places();
  for (JobHost& host : job.hosts) host.ranks += std::exchange(host.spare, 0);
  return job;
}

Result<Variables> apply_env_options(Variables inherited, const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    const std::string name = option.substr(0, equals);
    if (!is_name(name)) {
      return Status(Code::kInvalidArgument,
                    "--env " + option + ": not a variable; write --env NAME=VALUE or --env NAME");
    }
    if (std::ranges::find(kReserved, name) != kReserved.end()) {
      return Status(Code::kInvalidArgument, "--env " + name + ": corro sets this one itself");
    }
    if (equals != std::string::npos) {
      inherited[name] = option.substr(equals + 1);
    } else if (!inherited.contains(name)) {
      return Status(Code::kInvalidArgument,
                    "--env " + name + ": not set here; write --env " + name + "=VALUE");
    }
  }
  return inherited;
}

Variables worker_variables(const JobFacts& job, const Seat& seat, const Variables& base) {
  Variables variables;
  variables["CORRO_RUN"] = "1";
  variables["CORRO_RANK"] = std::to_string(seat.rank);
  variables["CORRO_SIZE"] = std::to_string(job.ranks);
  const JobHost& host = job.hosts[seat.host];
  variables["CORRO_LOCAL_RANK"] = std::to_string(seat.local_rank);
  variables["CORRO_LOCAL_SIZE"] = std::to_string(host.ranks);
  variables["CORRO_NODE_RANK"] = std::to_string(seat.host);
  variables["CORRO_NODES"] = std::to_string(job.nodes());
  if (!host.address.empty()) variables["CORRO_LISTEN"] = host.address;
  if (!host.id.empty()) variables["CORRO_HOST_ID"] = host.id;
  variables["CORRO_JOB_ID"] = job.job_id;
  variables["CORRO_AGENT"] = job.agent_on(seat.host);
  if (job.servers > 0) variables["CORRO_SERVERS"] = std::to_string(job.servers);
  if (job.ranks_serve) variables["CORRO_SERVERS"] = "ranks";
  add_torchrun_names(job, seat, variables);
  add_horovod_names(job, seat, variables);
  // Lines reach the screen when they are printed; a crash in native code shows its Python stack.
  const Variables defaults = {{"PYTHONUNBUFFERED", "1"},
                              {"PYTHONFAULTHANDLER", "1"},
                              {"OMP_NUM_THREADS", std::to_string(host.threads)}};
  for (const auto& [name, value] : defaults) {
    if (!base.contains(name)) variables[name] = value;
  }
  return variables;
}

Variables server_variables(const JobFacts& job, int server, size_t number) {
  const JobHost& host = job.hosts[number];
  Variables variables = {{"CORRO_RUN", "1"},
                         {"CORRO_SERVER", std::to_string(server)},
                         {"CORRO_SERVERS", std::to_string(job.servers)},
                         {"CORRO_SIZE", std::to_string(job.ranks)},
                         {"CORRO_NODES", std::to_string(job.hosts.size())},
                         {"CORRO_JOB_ID", job.job_id},
                         {"CORRO_AGENT", job.agent_on(number)}};
  if (!host.address.empty()) variables["CORRO_LISTEN"] = host.address;
  if (!host.id.empty()) variables["CORRO_HOST_ID"] = host.id;
  return variables;
}

void forget_place(Variables& base) {
  for (const char* name : kReserved) base.erase(name);
}

Variables for_other_hosts(Variables base) {
  static const std::set<std::string> kOfAHost = {
      "HOME",  "USER", "LOGNAME", "SHELL",   "MAIL",   "HOSTNAME",  "PWD",        "OLDPWD",
      "SHLVL", "_",    "TERM",    "DISPLAY", "TMPDIR", "LS_COLORS", "XAUTHORITY", "HOST"};
  std::erase_if(base, [](const auto& entry) {
    const std::string& name = entry.first;
    return kOfAHost.contains(name) || name.starts_with("SSH_") || name.starts_with("XDG_") ||
           name.starts_with("DBUS_");
  });
  return base;
}

}  // namespace corro::launch
