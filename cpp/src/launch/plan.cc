#include "launch/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/env.h"
#include "base/quoted.h"
#include "base/ranges.h"
#include "collective/schedule/algorithm.h"
#include "dashboard/dashboard.h"
#include "io/files.h"
#include "io/socket.h"
#include "launch/hosts.h"
#include "launch/misspelt.h"
#include "launch/network.h"
#include "launch/ranks.h"
#include "launch/scheduler.h"
#include "launch/slurm.h"
#include "wire/server_number.h"

namespace corro::launch {
namespace {

constexpr int kMaxRanks = 1024;

/// Hosts, and who has given them: "" the user.
struct NamedHosts {
  std::vector<HostSlots> hosts;
  std::string source;
};

/// One of those that mean something to elastic jobs alone.
std::string_view elastic_option(const RunOptions& options) {
  if (options.elastic_timeout) return "--elastic-timeout";
  if (options.replace_wait) return "--replace-wait";
  if (!options.policy.empty()) return "--policy";
  if (options.hang_timeout) return "--hang-timeout";
  if (options.reset_limit) return "--reset-limit";
  return options.back_off ? "--back-off" : "";
}

/// Ranks of elastic jobs come and go, and tables do not know of that.
Status check_servers(const RunOptions& options, const PlanInputs& inputs) {
  if (options.servers < 0 || options.servers > wire::kMostServers) {
    return {Code::kInvalidArgument,
            fmt::format("--servers {}: give 0 to {}", options.servers, wire::kMostServers)};
  }
  if (options.servers == 0 && !options.ranks_serve) return {};
  if (options.elastic()) {
    return {Code::kInvalidArgument,
            "--servers: elastic jobs have no table servers; leave out --min-np, --max-np and "
            "--host-discovery"};
  }
  if (inputs.record == nullptr && inputs.dialled.empty()) return {};
  return {Code::kInvalidArgument, "--servers: jobs of a coordinator have no table servers"};
}

Status check_options(const RunOptions& options, const PlanInputs& inputs) {
  CORRO_TRY(check_servers(options, inputs));
  if (options.ranks && (*options.ranks < 1 || *options.ranks > kMaxRanks)) {
    return {Code::kInvalidArgument,
            fmt::format("-np {}: give 1 to {} ranks", *options.ranks, kMaxRanks)};
  }
  if (!options.discovery.empty() && !(options.hosts.empty() && options.hostfile.empty()))
    return {Code::kInvalidArgument, "--host-discovery, -H and --hostfile: give one of them"};
  if (const auto name = elastic_option(options); !name.empty() && !options.elastic()) {
    return {Code::kInvalidArgument,
            fmt::format("{}: the job is not elastic: add --min-np, --max-np or --host-discovery",
                        name)};
  }
  if (options.timeout && *options.timeout <= Duration::zero()) {
    return {Code::kInvalidArgument, "--timeout: give a time above 0, such as 90, 30m or 2h"};
  }
  if (!options.sync.empty() && !inputs.files.exists(options.sync + "/."))
    return {Code::kNotFound, fmt::format("--sync {}: no such folder", options.sync)};
  if (!options.dashboard.empty())
    CORRO_TRY(dashboard::parse_address("--dashboard", options.dashboard).status());
  return options.network.empty() ? Status() : Network::parse(options.network).status();
}

Status check_shown_ranks(const screen::Show& show, int ranks) {
  if (show.mode != screen::ShowMode::kRanks || show.ranks.back() < ranks) return {};
  return {Code::kInvalidArgument,
          fmt::format("--show {}: the ranks are 0 to {}", show.ranks.back(), ranks - 1)};
}

/// What the engine would refuse in every rank is refused before the first one starts. Returns the
/// names of all variables that corro knows.
Result<std::set<std::string>> check_variables(const Variables& environment) {
  std::set<std::string> known = {"CORRO_RUN"};
  CORRO_ASSIGN(const Environment read, read_environment([&](const char* name) {
                 known.insert(name);
                 const auto found = environment.find(name);
                 return found == environment.end() ? std::nullopt : std::optional(found->second);
               }));
  CORRO_TRY(collective::selection_rules_of(read).status());
  if (!read.listen.empty()) CORRO_TRY(io::SocketAddress::parse_listen(read.listen).status());
  return known;
}

/// corro-runs/<time>-<name>, with a number behind it if a job of the same second has that one.
std::string new_log_dir(const PlanInputs& inputs, const std::string& name) {
  const std::string wanted = fmt::format("corro-runs/{}-{}", inputs.time, name);
  std::string directory = wanted;
  for (int i = 2; inputs.files.exists(directory); ++i) directory = fmt::format("{}-{}", wanted, i);
  return directory;
}

/// What a rank's environment has beyond what the launcher found in its own.
Variables added_variables(const LaunchPlan& plan, int rank) {
  Variables added;
  for (const auto& [name, value] : environment_of(plan, plan.job.seat_of(rank))) {
    const auto found = plan.inherited.find(name);
    if (found == plan.inherited.end() || found->second != value) added[name] = value;
  }
  for (const std::string& option : plan.options.env) {
    const std::string name = option.substr(0, option.find('='));
    added[name] = plan.base.at(name);
  }
  return added;
}

/// The variables that have the same value everywhere.
Variables common_to(const std::vector<Variables>& all) {
  Variables common = all[0];
  for (const Variables& variables : all) {
    std::erase_if(common, [&](const auto& entry) {
      const auto found = variables.find(entry.first);
      return found == variables.end() || found->second != entry.second;
    });
  }
  return common;
}

/// Where the program of the table servers is, beside the folder of `corro`.
Result<std::string> find_server_program(const PlanInputs& inputs) {
  const std::string& bin = inputs.own_directory;
  std::string path = bin.substr(0, bin.rfind('/')) + "/libexec/corro/corro-server";
  if (inputs.files.executable(path)) return path;
  return Status(Code::kNotFound,
                fmt::format("--servers: {} is not there: this corro was installed without it; "
                            "install the whole wheel, or CMake's component development-more",
                            path));
}

/// Lines about what the user may have meant otherwise.
std::string describe_remarks(const LaunchPlan& plan) {
  std::string text;
  if (!plan.options.quiet) {
    for (const std::string& line : plan.misspelt) text += fmt::format("corro: {}\n", line);
  }
  // Always: a job of several hosts that trains on one looks like one that works.
  if (!plan.unknown_hosts.empty()) text += fmt::format("corro: {}\n", plan.unknown_hosts);
  return text;
}

/// A node of Slurm may have another name than its host.
bool is_here(const std::string& name, const PlanInputs& inputs) {
  return is_own_host(name, inputs.machine.host) ||
         name == value_of(inputs.environment, "SLURMD_NODENAME");
}

/// The hosts that Slurm has given. On this host alone Slurm's number of tasks counts only where the
/// user has named it to Slurm and not here.
Result<std::optional<NamedHosts>> hosts_of_slurm(const RunOptions& options,
                                                 const PlanInputs& inputs) {
  CORRO_ASSIGN(auto given, find_slurm_hosts(inputs.environment));
  const auto surplus = find_surplus(inputs.environment, io::read_small_file, given.has_value());
  if (surplus) return Status(Code::kFailedPrecondition, refusal(*surplus));
  if (!given) return std::optional<NamedHosts>();
  const bool alone = given->hosts.size() == 1 && is_here(given->hosts[0].name, inputs);
  if (alone && (options.ranks || !given->slots_asked_for)) return std::optional<NamedHosts>();
  return std::optional(
      NamedHosts{.hosts = std::move(given->hosts), .source = std::move(given->source)});
}

/// Where --host-discovery says what there is.
int slots_needed(const RunOptions& options) {
  return options.least.value_or(options.ranks.value_or(1));
}

/// The hosts of the ranks if they are not just on this one.
Result<std::optional<NamedHosts>> find_hosts(const RunOptions& options, const PlanInputs& inputs) {
  if (!inputs.dialled.empty()) {
    return std::optional(
        NamedHosts{.hosts = inputs.dialled, .source = "the agents that have dialled"});
  }
  if (!options.discovery.empty()) {
    NamedHosts found;
    CORRO_ASSIGN(found.hosts, inputs.discover(options.discovery, slots_needed(options),
                                              options.elastic_timeout.value_or(kElasticTimeout)));
    return std::optional(std::move(found));
  }
  if (options.hosts.empty() && options.hostfile.empty()) {
    if (options.allow_single_node) return std::optional<NamedHosts>();
    return hosts_of_slurm(options, inputs);
  }
  NamedHosts named;
  CORRO_ASSIGN(named.hosts, read_hosts(options.hosts, options.hostfile, inputs.read_hostfile));
  return std::optional(std::move(named));
}

/// --min-np and --max-np, beside the ranks that start.
Status check_elastic(const RunOptions& options, int ranks) {
  if (options.least && (*options.least < 1 || *options.least > ranks)) {
    return {Code::kInvalidArgument,
            fmt::format("--min-np {}: give 1 to {}, the number of ranks that start", *options.least,
                        ranks)};
  }
  if (options.most && (*options.most < ranks || *options.most > kMaxRanks)) {
    return {Code::kInvalidArgument, fmt::format("--max-np {}: give {} to {}; so many ranks start",
                                                *options.most, ranks, kMaxRanks)};
  }
  return {};
}

/// Numbers the hosts' slots, and decides in which of them the job begins.
void give_places(std::vector<JobHost>& hosts, const RunOptions& options) {
  int place = 0;
  for (JobHost& host : hosts) {
    const int slots = host.slots();
    const int most = options.most.value_or(options.ranks.value_or(place + slots));
    const int left = std::max(0, options.ranks.value_or(most) - place);
    host.first_rank = place;
    host.ranks = std::min(left, slots);
    host.spare = slots - host.ranks;
    place += slots;
  }
}

/// Hosts that are left over are for servers, where there are some: links and memory of their own.
void add_hosts_of_servers(std::vector<JobHost>& hosts, const NamedHosts& named, int servers,
                          const PlanInputs& inputs) {
  for (size_t i = hosts.size(); i < named.hosts.size() && servers > 0; ++i, --servers) {
    const std::string& name = named.hosts[i].name;
    hosts.push_back({.name = name, .own = is_here(name, inputs), .ranks = 0, .address = ""});
  }
}

/// Which ranks are on which of these hosts.
Result<std::vector<JobHost>> spread_ranks(const NamedHosts& named, const RunOptions& options,
                                          const PlanInputs& inputs) {
  // Hosts that are discovered may come and go: all their slots are kept.
  const bool hosts_come = !options.discovery.empty() || !inputs.dialled.empty();
  auto placed = hosts_come     ? place_ranks(named.hosts, 0)
                : options.most ? place_ranks(named.hosts, *options.most, "--max-np")
                               : place_ranks(named.hosts, options.ranks.value_or(0));
  if (!placed.ok())
    return named.source.empty() ? placed.status() : placed.status().with_context(named.source);
  std::vector<JobHost> hosts;
  for (const HostSlots& host : *placed) {
    hosts.push_back({.name = host.name,
                     .own = inputs.dialled.empty() && is_here(host.name, inputs),
                     .ranks = host.slots,
                     .address = ""});
  }
  if (!hosts_come && !options.most) add_hosts_of_servers(hosts, named, options.servers, inputs);
  give_places(hosts, options);
  return hosts;
}

/// Those of a job that goes on. Whose ranks are where, its record says.
std::vector<JobHost> hosts_of(const JobRecord& record) {
  std::vector<JobHost> hosts;
  int place = 0;
  for (const JobRecord::Host& host : record.hosts) {
    hosts.push_back({.name = host.name,
                     .own = false,
                     .first_rank = place,
                     .ranks = host.slots,
                     .address = host.address,
                     .id = host.id});
    place += host.slots;
  }
  return hosts;
}

/// Whoever goes on with a job has its options.
Status check_places(const JobRecord& record, int places) {
  for (const JobRecord::Member& member : record.members) {
    if (std::cmp_less(member.place, places)) continue;
    return {Code::kInvalidArgument,
            fmt::format("the job has a rank {}, and this one may have {} ranks: give the -np and "
                        "--max-np with which it has begun",
                        member.place, places)};
  }
  return {};
}

/// Where the ranks of a host run, and with how many threads, for people.
std::string describe_host(const LaunchPlan& plan, size_t host) {
  const JobHost& one = plan.job.hosts[host];
  std::string text =
      one.slots() == 0 ? "servers"
      : one.ranks == 0 ? "no rank yet"
      : one.ranks == 1 ? fmt::format("rank {}", one.first_rank)
                       : fmt::format("ranks {}-{}", one.first_rank, one.first_rank + one.ranks - 1);
  text += fmt::format(" on {}", one.name);
  if (!one.address.empty()) text += fmt::format(", reached at {}", one.address);
  return text;
}

std::string describe_binding(const Binding& binding) {
  return binding.ranks.empty() ? fmt::format("none, {}", binding.reason) : binding.reason;
}

/// In an elastic job a rank that others wait for is the launcher's matter, where --hang-timeout says
/// so: the others do not give up before.
void set_elastic_timeouts(const RunOptions& options, Variables& environment) {
  const auto seconds = [](Duration span) {
    return fmt::format("{:g}", std::chrono::duration<double>(span).count());
  };
  if (options.elastic_timeout)
    environment["CORRO_ELASTIC_TIMEOUT"] = seconds(*options.elastic_timeout);
  if (options.waits_for_hosts) environment["CORRO_ELASTIC_TIMEOUT"] = seconds(kEndless);
  const Duration hang = options.hang_timeout.value_or(Duration::zero());
  environment.try_emplace("CORRO_TIMEOUT", seconds(std::max(kElasticDeadline, 2 * hang)));
}

}  // namespace

Result<LaunchPlan> make_plan(const RunOptions& options, const PlanInputs& inputs) {
  CORRO_TRY(check_options(options, inputs));
  LaunchPlan plan;
  plan.options = options;
  plan.machine = inputs.machine;
  if (!inputs.hosts_have_program) {
    CORRO_ASSIGN(plan.command,
                 resolve_command(options, inputs.environment, inputs.own_directory, inputs.files));
  }
  plan.inherited = inputs.environment;
  CORRO_ASSIGN(plan.base, apply_env_options(inputs.environment, options.env));
  if (options.elastic()) set_elastic_timeouts(options, plan.base);
  plan.resumed = inputs.record != nullptr;
  plan.dialled = plan.resumed || !inputs.dialled.empty();
  std::optional<NamedHosts> named;
  if (!plan.resumed) {
    CORRO_ASSIGN(named, find_hosts(options, inputs));
  }
  if (plan.resumed) {
    plan.job.hosts = hosts_of(*inputs.record);
    plan.job.ranks = inputs.record->ranks;
    plan.hosts_source = "the job's record";
  } else if (named) {
    CORRO_ASSIGN(plan.job.hosts, spread_ranks(*named, options, inputs));
    plan.hosts_source = named->source;
    for (plan.job.ranks = 0; const JobHost& host : plan.job.hosts) plan.job.ranks += host.ranks;
  } else {
    if (!options.allow_single_node)
      plan.unknown_hosts = describe_unknown_hosts(inputs.environment, io::read_small_file);
    const RankChoice choice = choose_ranks(inputs.machine.facts);
    plan.job.ranks = options.ranks.value_or(choice.ranks);
    if (!options.ranks) plan.ranks_reason = choice.reason;
    if (options.most && !options.ranks) plan.job.ranks = std::min(plan.job.ranks, *options.most);
    plan.job.hosts = {{.name = inputs.machine.host,
                       .ranks = plan.job.ranks,
                       .spare = std::max(0, options.most.value_or(0) - plan.job.ranks),
                       .address = ""}};
  }
  const bool refills = plan.hosts_come() && options.elastic();
  plan.job.most = options.most.value_or(refills ? options.ranks.value_or(0) : 0);
  CORRO_TRY(check_shown_ranks(options.show, plan.job.places()));
  if (plan.resumed) CORRO_TRY(check_places(*inputs.record, plan.job.places()));
  CORRO_TRY(check_elastic(options, plan.job.ranks));
  plan.bindings.resize(plan.job.hosts.size());
  if (plan.job.hosts.size() == 1 && plan.job.hosts[0].own)
    CORRO_TRY(settle_host(plan, 0, inputs.machine));
  plan.corro = inputs.own_directory + "/corro";
  plan.job.servers = options.servers;
  plan.job.ranks_serve = options.ranks_serve;
  if (options.servers > 0) {
    CORRO_ASSIGN(plan.server, find_server_program(inputs));
  }
  plan.directory = inputs.files.directory;
  if (!options.sync.empty())
    plan.sync = options.sync.starts_with('/') ? options.sync : plan.directory + "/" + options.sync;
  plan.job.job_id = inputs.job_id;
  plan.job.agent = "corro-" + inputs.job_id;
  plan.job.master_port = inputs.master_port;
  plan.job.log_dir =
      options.log_dir.empty() ? new_log_dir(inputs, plan.command.name) : options.log_dir;
  const bool absolute = plan.job.log_dir.starts_with('/');
  plan.job.error_dir = (absolute ? "" : inputs.files.directory + "/") + plan.job.log_dir;
  CORRO_ASSIGN(const auto known, check_variables(environment_of(plan, plan.job.seat_of(0))));
  plan.misspelt = find_misspelt(plan.base, known);
  return plan;
}

std::optional<LaunchPlan> plan_without(const LaunchPlan& plan,
                                       const std::map<size_t, std::string>& unusable) {
  if (unusable.empty() || plan.options.discovery.empty()) return std::nullopt;
  LaunchPlan others = plan;
  JobFacts& job = others.job;
  job.hosts.clear();
  int slots = 0;
  for (size_t host = 0; host < plan.job.hosts.size(); ++host) {
    const JobHost& one = plan.job.hosts[host];
    if (unusable.contains(host)) {
      if (one.own) return std::nullopt;
      others.put_off.push_back(one.name);
      continue;
    }
    job.hosts.push_back({.name = one.name, .own = one.own, .ranks = one.slots(), .address = ""});
    slots += one.slots();
  }
  if (job.hosts.empty() || slots < slots_needed(plan.options)) return std::nullopt;
  give_places(job.hosts, plan.options);
  for (job.ranks = 0; const JobHost& host : job.hosts) job.ranks += host.ranks;
  others.bindings.assign(job.hosts.size(), {});
  const bool here = job.hosts.size() == 1 && job.hosts[0].own;
  const bool fits = check_shown_ranks(plan.options.show, job.places()).ok() &&
                    (!here || settle_host(others, 0, plan.machine).ok());
  return fits ? std::optional(std::move(others)) : std::nullopt;
}

Status settle_host(LaunchPlan& plan, size_t host, const agent::Machine& machine) {
  JobHost& settled = plan.job.hosts[host];
  settled.threads = std::max(1, usable_cores(machine.facts) / std::max(1, settled.slots()));
  CORRO_ASSIGN(plan.bindings[host],
               decide_binding(plan.options.bind, settled.slots(), machine.processors));
  return {};
}

Variables environment_of(const LaunchPlan& plan, const Seat& seat) {
  Variables variables = worker_variables(plan.job, seat, plan.base);
  for (const std::string& option : plan.options.env) {
    // What the user sets on the command line wins, MASTER_PORT for example.
    if (option.find('=') != std::string::npos) variables.erase(option.substr(0, option.find('=')));
  }
  const bool own = plan.job.hosts[seat.host].own;
  Variables environment = own ? plan.base : for_other_hosts(plan.base);
  for (const char* name : {"CORRO_SERVER", "CORRO_SERVERS"}) environment.erase(name);
  for (auto& [name, value] : variables) environment[name] = value;
  return environment;
}

Variables environment_of_server(const LaunchPlan& plan, int server, size_t host) {
  const bool own = plan.job.hosts[host].own;
  Variables environment = own ? plan.base : for_other_hosts(plan.base);
  forget_place(environment);
  for (auto& [name, value] : server_variables(plan.job, server, host)) environment[name] = value;
  return environment;
}

std::string announce_plan(const LaunchPlan& plan) {
  const JobFacts& job = plan.job;
  std::string text = describe_remarks(plan);
  if (!plan.ranks_reason.empty() && !plan.options.quiet) {
    text += fmt::format("corro: {} {}, {}; logs in {}\n", job.ranks,
                        job.ranks == 1 ? "rank" : "ranks", plan.ranks_reason, job.log_dir);
  }
  if (!plan.options.verbose) return text;
  text += fmt::format(
      "corro: job {}, {} ranks on {}, logs in {}\n", job.job_id, job.ranks,
      job.hosts.size() == 1 ? job.hosts[0].name : fmt::format("{} hosts", job.hosts.size()),
      job.log_dir);
  if (!plan.hosts_source.empty()) text += fmt::format("corro: hosts from {}\n", plan.hosts_source);
  for (size_t host = 0; job.hosts.size() > 1 && host < job.hosts.size(); ++host)
    text += fmt::format("corro: {}\n", describe_host(plan, host));
  text += fmt::format("corro: running {}\n", plan.command.program);
  if (job.servers > 0)
    text += fmt::format("corro: table servers: {}, running {}\n", job.servers, plan.server);
  if (job.ranks_serve) text += "corro: table servers: the ranks\n";
  const bool theirs = plan.base.contains("OMP_NUM_THREADS");
  text += fmt::format("corro: OMP_NUM_THREADS={} ({})\n",
                      environment_of(plan, plan.job.seat_of(0)).at("OMP_NUM_THREADS"),
                      theirs ? "set by you" : "cores / ranks; set it yourself to change it");
  for (size_t host = 0; host < plan.bindings.size(); ++host) {
    const std::string where = plan.bindings.size() == 1 ? "" : " on " + job.hosts[host].name;
    text += fmt::format("corro: binding{}: {}\n", where, describe_binding(plan.bindings[host]));
  }
  return text;
}

std::string describe_plan(const LaunchPlan& plan) {
  const JobFacts& job = plan.job;
  std::string text = describe_remarks(plan);
  if (!plan.hosts_source.empty()) text += fmt::format("hosts from {}\n", plan.hosts_source);
  for (const JobHost& host : job.hosts) {
    text += fmt::format("host {}: {} {}{}{}\n", host.name, host.ranks,
                        host.ranks == 1 ? "rank" : "ranks",
                        host.spare == 0 ? "" : fmt::format(", {} more may join", host.spare),
                        plan.ranks_reason.empty() ? "" : ", " + plan.ranks_reason);
  }
  for (int server = 0; server < job.servers; ++server) {
    text +=
        fmt::format("server {} on {}: {}, log {}/server-{}.log\n", server,
                    job.hosts[job.host_of_server(server)].name, plan.server, job.log_dir, server);
  }
  if (job.ranks_serve) text += "servers: the ranks\n";
  text += "command:";
  for (const std::string& word : plan.command.arguments) text += " " + quoted(word);
  text += fmt::format("\nprogram: {}\nlogs: {}/rank-N.log\n", plan.command.program, job.log_dir);
  const bool one_host = job.hosts.size() == 1 && job.hosts[0].own;
  const Binding& binding = plan.bindings[0];
  text += fmt::format("binding: {}\n", !one_host ? "decided when the hosts say what they have"
                                       : binding.ranks.empty() ? "none (" + binding.reason + ")"
                                                               : binding.reason);
  std::vector<Variables> added;
  added.reserve(static_cast<size_t>(job.ranks));
  for (int rank = 0; rank < job.ranks; ++rank) added.push_back(added_variables(plan, rank));
  const Variables shared = common_to(added);
  text += "variables of every rank:\n";
  for (const auto& [name, value] : shared) text += fmt::format("  {}={}\n", name, quoted(value));
  for (size_t rank = 0; rank < added.size(); ++rank) {
    const JobHost& host = job.hosts[job.host_of(static_cast<int>(rank))];
    text += fmt::format("rank {} on {}, processors {}:\n", rank, host.name,
                        binding.ranks.empty() ? "any" : format_ranges(binding.ranks[rank]));
    for (const auto& [name, value] : added[rank]) {
      if (!shared.contains(name)) text += fmt::format("  {}={}\n", name, quoted(value));
    }
  }
  return text;
}

}  // namespace corro::launch
