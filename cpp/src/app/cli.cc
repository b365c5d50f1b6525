// How `corro` reads its command line. parse_command_line() looks at the first word:
//
//   plan, probe, operator,  another program reads them (subprograms.h): all words go on unread
//   checkpoint, jobs, ...
//   run                     the words are cut in two first. Options come in front. The user's
//                           program begins at the first word that is no option or its value, or
//                           behind "--". CLI11 sees the options alone, so it cannot take those of
//                           the program. Options of `corro run` behind the program are noted, for a
//                           hint if the program fails on them
//   none, help              the help of the program, or of the command that is named
//   any other command       CLI11 reads all words, those of `corro --version` too
//   an unknown word         one line says which command was probably meant. An option of `corro
//                           run` without `run` gets one, too
//
// `corro run --on kubernetes` is read here, and once more by the program that carries it out.
//
// CLI11 fills Raw. finish_run() and finish_doctor() check that and move it into the Request.
// Commands of other programs are described here as well, for help and for completion.
#include "app/cli.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <utility>

#include "app/checkpoint_options.h"
#include "app/cluster_options.h"
#include "app/command_line.h"
#include "app/completion.h"
#include "app/operator_options.h"
#include "app/plan_options.h"
#include "app/server_options.h"
#include "app/subprograms.h"
#include "base/nearest_name.h"

namespace corro::app {
namespace {

constexpr const char* kRunExamples = R"(
Examples:
  corro run train.py                     as many ranks as this machine is good for
  corro run -np 4 train.py --lr 0.1      four ranks; what follows the program is the program's
  corro run -np 2 --show all python -m my.train
  corro run --dry-run -np 2 train.py     shows what would be started
  corro run --on kubernetes --sync . -np 8 python train.py
                                         the same on a cluster, with the files of this folder

Rank 0's output goes to the screen, other ranks' where it differs; everything is in
corro-runs/<time>-<name>/rank-N.log. One Ctrl-C asks the ranks to stop, two stop them, three kill.
)";

constexpr const char* kDoctorExamples = R"(
Examples:
  corro doctor                   what the ranks on this host are doing
  corro doctor 4711              the same of one process, or of the ranks below a launcher
  corro doctor --metrics         what the ranks count, for Prometheus
  corro doctor --frameworks      which front ends work here, and why others do not
  corro doctor -H node1,node2    checks hosts in some seconds: can they be reached, and both ways;
                                 clocks, versions, memory, round trips and bandwidths. Status 1 if
                                 something is wrong
)";

constexpr const char* kDashExamples = R"(
Examples:
  corro dash                     where the job that runs here is shown, with --dashboard or without
  corro dash corro-runs/20260101-120000-train
                                 shows a job that is over in a browser, at any time of it
  corro dash --address 127.0.0.1:8080 logs/history.jsonl
                                 the same of a file, at this port
)";

constexpr const char* kCoordinatorExamples = R"(
Examples:
  corro coordinator --store /shared/job7 --listen 10.0.0.1:7078 -np 8 --min-np 4 train.py
                                 a job of eight ranks on hosts whose agents dial in; the job goes
                                 on when the coordinator dies, and without some of the hosts
  corro coordinator --store etcd://10.0.0.7,10.0.0.8/job7 --listen 10.0.0.2:7078 -np 8 train.py
                                 the same line on a second machine stands by, and takes over
  corro coordinator --store kubernetes:training/job7 --listen 10.0.0.3:7078 -np 8 train.py
                                 the record is in a Kubernetes cluster, as that of KUBECONFIG
  corro agent --coordinator 10.0.0.1:7078,10.0.0.2:7078
                                 on each host that is to take part

Coordinators and agents share a secret: CORRO_SECRET_FILE, else the user's own in ~/.config/corro.
)";

constexpr const char* kAgentExamples = R"(
Examples:
  corro agent --coordinator 10.0.0.1:7078,10.0.0.2:7078
                                 runs ranks of a job here, for whichever of these coordinators leads

Without --coordinator it serves `corro run` on another host, which starts it.
)";

/// Options as CLI11 fills them, before they are checked.
struct Raw {
  launch::RunOptions run;
  std::string ranks;
  std::string servers;
  std::string show = "different";
  std::string bind = "auto";
  std::string log_to;
  std::string timeout;
  bool timestamps = false;
  std::string long_wait;
  std::string elastic_timeout;
  std::string replace_wait;
  std::string hang_timeout;
  std::string back_off;
  std::string shell;
  LookCommand look;
  launch::PastJobOptions dash{.path = {}, .address = "127.0.0.1:0"};
  std::vector<int> pids;
  launch::PreflightOptions preflight;
  bool json = false;
  bool metrics = false;
  bool frameworks = false;
  RawPlan plan;
  ClusterRunOptions cluster;
  JobsCommand jobs;
  CoordinatorCommand coordinator;
  AgentCommand agent;
  std::string patience;
  OperatorCommand cluster_operator;
  CheckpointCommand checkpoint;
};

/// Seconds, or a number with s, m or h: "90", "1.5h".
std::optional<Duration> parse_duration(const std::string& text) {
  char* unit = nullptr;
  double seconds = std::strtod(text.c_str(), &unit);  // libc++ has no from_chars for it
  if (unit == text.c_str()) return std::nullopt;
  switch (*unit) {
    case 'h':
      seconds *= 60;
      [[fallthrough]];
    case 'm':
      seconds *= 60;
      [[fallthrough]];
    case 's':
      ++unit;
      break;
    default:
      break;
  }
  constexpr double kMaxSeconds = 10.0 * 365 * 24 * 3600;
  const bool sensible = seconds >= 0 && seconds <= kMaxSeconds;  // false for "nan"
  if (*unit != '\0' || !sensible) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

/// Of an option that is a time; none: it was not given.
Result<std::optional<Duration>> parse_time(const CLI::App& run, const char* option,
                                           const std::string& text, const char* or_what = "") {
  if (run.count(option) == 0) return std::optional<Duration>();
  const auto time = parse_duration(text);
  if (time) return time;
  return Status(Code::kInvalidArgument,
                fmt::format("{} {}: give a time such as 90, 30m or 2h{}", option, text, or_what));
}

/// None: --back-off was not given.
Result<std::optional<std::pair<Duration, Duration>>> parse_back_off(const CLI::App& run,
                                                                    const std::string& text) {
  using Range = std::optional<std::pair<Duration, Duration>>;
  if (run.count("--back-off") == 0) return Range();
  const size_t comma = text.find(',');
  const auto first = parse_duration(text.substr(0, comma));
  const auto most =
      comma == std::string::npos ? std::nullopt : parse_duration(text.substr(comma + 1));
  if (first && most && *first <= *most) return Range({*first, *most});
  return Status(Code::kInvalidArgument,
                fmt::format("--back-off {}: give two times, the longer one last: 1s,5m", text));
}

/// The program and its arguments are not CLI11's business, but belong into the usage line.
class RunFormatter final : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App* app, std::string /*name*/) const override {
    return fmt::format("Usage: corro {} [options] [--] program [arguments]\n", app->get_name());
  }
};

/// A variable of a script that was never set would mean this host.
CLI::Validator some_host() {
  return {[](const std::string& hosts) {
            return hosts.empty() ? std::string("no host; give some, as in: -H node1:4,node2:4")
                                 : "";
          },
          ""};
}

/// The same would mean that nobody is shown the job.
CLI::Validator some_address() {
  return {[](const std::string& address) {
            return address.empty() ? std::string("no address; give one, such as 127.0.0.1:0") : "";
          },
          ""};
}

/// Ranks would say it at their first step.
CLI::Validator known_tools() {
  return {[](const std::string& tools) {
            std::istringstream parts(tools);
            bool all_known = !tools.empty();
            for (std::string part; std::getline(parts, part, ',');) {
              const std::string name = part.substr(0, part.find(':'));
              all_known =
                  all_known && (name == "tensorboard" || name == "mlflow" || name == "wandb");
            }
            return all_known ? std::string()
                             : "give some of tensorboard[:FOLDER], mlflow[:EXPERIMENT], "
                               "wandb[:PROJECT], with commas";
          },
          ""};
}

/// What a job is, wherever it runs.
void describe_job(CLI::App& run, Raw& raw) {
  run.formatter(std::make_shared<RunFormatter>());
  run.add_option("-n,--np,--nproc-per-node,--nproc_per_node", raw.ranks,
                 "Ranks to start (also -np N); default: as many as the machine is good for")
      ->type_name("N");
  run.add_option("--min-np,--min-num-proc", raw.run.least,
                 "Elastic: go on without ranks that are lost, as long as so many are left")
      ->type_name("N");
  run.add_option("--max-np,--max-num-proc", raw.run.most,
                 "Elastic: start ranks until there are so many, and others for those that are lost")
      ->type_name("N");
  run.add_option("--elastic-timeout", raw.elastic_timeout,
                 "Elastic: wait so long for enough ranks; default: 10m")
      ->type_name("TIME");
  run.add_option("--replace-wait", raw.replace_wait,
                 "Elastic: after a loss wait so long for a replacement; default: go on at once")
      ->type_name("TIME");
  run.add_option("--policy", raw.run.policy,
                 "Elastic: a command that is asked how long to wait, and who goes; lines of JSON")
      ->type_name("CMD");
  run.add_option("--hang-timeout", raw.hang_timeout,
                 "Elastic: go on without a rank that others have waited for so long")
      ->type_name("TIME");
  run.add_option("--reset-limit", raw.run.reset_limit,
                 "Elastic: stop when ranks come or go more often than this")
      ->type_name("N")
      ->check(number_in(0));
  run.add_option("--back-off", raw.back_off,
                 "Elastic: when a place that fails again is used again: first, and at most; "
                 "default: 1s,5m")
      ->type_name("MIN,MAX");
  run.add_option("--network", raw.run.network, "Reach hosts by addresses in this range only")
      ->type_name("CIDR");
  run.add_flag("-m,--module", raw.run.module, "The program is a Python module");
  run.add_option("--show", raw.show,
                 "Whose output goes to the screen: different (rank 0, and others where they "
                 "differ), errors, all, streams (all, as Horovod prints it), or ranks such as 0,3")
      ->type_name("WHAT");
  run.add_flag("--timestamps", raw.timestamps,
               "Put the time in front of every line; with --show all, streams or ranks");
  run.add_option("--output-dir", raw.run.output_dir,
                 "Directory for what each rank prints, too: rank.N/stdout and rank.N/stderr")
      ->type_name("DIR");
  run.add_option("--log-dir", raw.run.log_dir,
                 "Directory of rank-N.log, history.jsonl and failure.json")
      ->type_name("DIR");
  run.add_option("--events", raw.run.events, "File for what happens, a line of JSON each")
      ->type_name("FILE");
  run.add_option(
         "--log-to", raw.log_to,
         "Tools that get what corro.log() is given, such as tensorboard:runs/a,mlflow,wandb")
      ->type_name("TOOL[:WHERE],...")
      ->check(known_tools());
  run.add_option("--env", raw.run.env, "Set a variable for the ranks (K=V), or insist on one (K)")
      ->type_name("K[=V]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  run.add_option("--bind", raw.bind, "Processors of each rank: auto, none or core")
      ->type_name("HOW")
      ->check(CLI::IsMember({"auto", "none", "core"}));
  run.add_option("--timeout", raw.timeout, "Stop the job after this time (90, 30m, 2h): status 124")
      ->type_name("TIME");
  run.add_option("--dashboard", raw.run.dashboard,
                 "Show the job to browsers here, such as 127.0.0.1:8080; port 0: any")
      ->type_name("ADDRESS:PORT")
      ->check(some_address());
  run.add_option("--long-wait", raw.long_wait, "Say who waits for whom after this time; 0: never")
      ->type_name("TIME");
  run.add_flag("--verbose", raw.run.verbose, "Say what is done and why");
  run.add_flag("--quiet", raw.run.quiet, "Say nothing but failures");
}

/// And on which hosts, whose agents are started.
void describe_hosts(CLI::App& run, Raw& raw) {
  run.add_option("--host-discovery", raw.run.discovery,
                 "Elastic: a command that prints the hosts, as a hostfile; asked each second")
      ->type_name("CMD");
  run.add_option("-H,--hosts", raw.run.hosts,
                 "Hosts with their slots for ranks, such as a:4,b:4; reached by ssh")
      ->type_name("HOST[:N],...")
      ->check(some_host());
  run.add_option("--hostfile", raw.run.hostfile, "File of hosts, a line each: node7 slots=4")
      ->type_name("FILE");
  run.add_option("--rsh", raw.run.rsh, "Another remote shell than ssh, with its options")
      ->type_name("CMD");
  run.add_option("--sync", raw.run.sync, "Bring this folder to the other hosts first")
      ->type_name("DIR");
  run.add_option("--servers", raw.servers,
                 "Start so many servers of tables and sums beside the ranks, on hosts without "
                 "ranks first; \"ranks\": each rank is one of tables; default: 0")
      ->type_name("N|ranks");
  run.add_option("--fan-out", raw.run.fan_out,
                 "Hosts that the launcher, and the agent of each host, starts itself")
      ->type_name("N")
      ->check(number_in(1, 1024));
  run.add_option("--corro-call", raw.run.call)->group("");  // corro.run() of Python
  run.add_flag("--allow-single-node", raw.run.allow_single_node,
               "Use this host alone although a scheduler announces more");
  run.add_flag("--dry-run", raw.run.dry_run, "Show what would be started, and start nothing");
}

void describe_run(CLI::App& run, Raw& raw) {
  describe_hosts(run, raw);
  describe_job(run, raw);
  describe_cluster_run(run, raw.cluster);
  run.footer(kRunExamples);
}

void describe_dash(CLI::App& dash, Raw& raw) {
  dash.add_option(
          "path", raw.dash.path,
          "The folder of a job's logs, or its history.jsonl; or one that runs, by its id or the "
          "pid of its corro run. Default: the one that runs")
      ->type_name("DIR");
  dash.add_option("--address", raw.dash.address,
                  "Where to show a job that is over; default: 127.0.0.1:0, which is any port")
      ->type_name("ADDRESS:PORT")
      ->check(some_address());
  dash.footer(kDashExamples);
}

void describe_coordinator(CLI::App& app, Raw& raw) {
  app.add_option("--store", raw.coordinator.store,
                 "Where the job's record is: a folder, etcd://HOST[:PORT],.../PREFIX, or "
                 "kubernetes:[NAMESPACE/]NAME")
      ->type_name("STORE");
  app.add_option("--listen", raw.coordinator.listen, "Where agents dial it, such as 10.0.0.1:7078")
      ->type_name("ADDRESS:PORT");
  describe_job(app, raw);
  app.footer(kCoordinatorExamples);
}

void describe_agent(CLI::App& app, Raw& raw) {
  app.add_option("--coordinator", raw.agent.addresses,
                 "Where coordinators listen, or will: ADDRESS:PORT, one or several")
      ->type_name("ADDRESS:PORT,...")
      ->delimiter(',');
  app.add_option("--slots", raw.agent.slots,
                 "Ranks that may run here; default: as many as the machine is good for")
      ->type_name("N")
      ->check(number_in(1, 1024));
  app.add_option("--host", raw.agent.host, "What this host is called; default: its own name")
      ->type_name("NAME");
  app.add_option("--patience", raw.patience,
                 "Go on so long without a coordinator, then end the ranks; default: 10m")
      ->type_name("TIME");
  app.footer(kAgentExamples);
}

void describe_doctor(CLI::App& doctor, Raw& raw) {
  doctor.footer(kDoctorExamples);
  CLI::Option* pids = doctor.add_option("pid", raw.pids,
                                        "Look at these processes only, or at the ranks below them");
  pids->type_name("PID");
  CLI::Option* hosts =
      doctor.add_option("-H,--hosts", raw.preflight.hosts, "Check these hosts before a job");
  hosts->type_name("HOST,...")->excludes(pids)->check(some_host());
  doctor.add_option("--hostfile", raw.preflight.hostfile, "Check the hosts of this file")
      ->type_name("FILE")
      ->excludes(pids)
      ->excludes(hosts);
  doctor
      .add_option("--network", raw.preflight.network, "Reach hosts by addresses in this range only")
      ->type_name("CIDR");
  doctor.add_option("--rsh", raw.preflight.rsh, "Another remote shell than ssh, with its options")
      ->type_name("CMD");
  CLI::Option* json = doctor.add_flag("--json", raw.json, "Print JSON");
  doctor.add_flag("--metrics", raw.metrics, "Print what ranks count, as Prometheus reads it")
      ->excludes(json)
      ->excludes(hosts)
      ->excludes(doctor.get_option("--hostfile"));
  CLI::Option* frameworks = doctor.add_flag("--frameworks", raw.frameworks,
                                            "Try torch, TensorFlow and so on: do they work here?");
  for (CLI::Option* other : doctor.get_options())
    if (other != frameworks && other != doctor.get_help_ptr()) frameworks->excludes(other);
}

std::unique_ptr<CLI::App> describe_program(Raw& raw) {
  auto program = std::make_unique<CLI::App>(
      "corro plans training jobs, starts their ranks and looks after them.", "corro");
  program->require_subcommand(0, 1);
  program->add_flag("--version")->description("Print the version");
  describe_run(*program->add_subcommand("run", "Start a program as several ranks on this host"),
               raw);
  describe_plan(*program, raw.plan);
  describe_doctor(*program->add_subcommand(
                      "doctor", "Show what ranks do, also in a hang; with -H, check hosts"),
                  raw);
  describe_looks(*program, raw.look);
  describe_dash(*program->add_subcommand(
                    "dash", "Show a job in a browser: one that runs, or one that is over"),
                raw);
  describe_checkpoint(*program, raw.checkpoint);
  describe_jobs(*program, raw.jobs);
  describe_operator(*program, raw.cluster_operator);
  describe_server(*program);
  describe_coordinator(
      *program->add_subcommand("coordinator",
                               "Run a job on hosts whose agents dial in; may die, and be replaced"),
      raw);
  describe_agent(
      *program->add_subcommand("agent", "Run ranks of a job on this host, for a coordinator"), raw);
  program->add_subcommand("completion", "Print completion for bash, zsh or fish")
      ->add_option("shell", raw.shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  program->add_subcommand("version", "Print the version");
  program->add_subcommand("help", "Print this help")
      ->add_option("command", raw.shell, "Whose help")
      ->type_name("");
  return program;
}

/// Turns mpirun's -np, -np=4 and -np4 into --np and --np=4.
void spell_out_np(std::string& word) {
  if (!word.starts_with("-np")) return;
  const std::string value = word.substr(3);
  if (value.empty() || value[0] == '=') word = "--np" + value;
  if (value.find_first_of("0123456789") == 0) word = "--np=" + value;
}

/// A mistake names the option -np, however it was spelt: that is how most people write it.
Result<int> parse_ranks(const std::string& text) {
  int ranks = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, ranks);
  if (error == std::errc() && stop == end) return ranks;
  return Status(Code::kInvalidArgument,
                fmt::format("-np {}: expected a number of ranks, as in: corro run -np 2 {}",
                            text.empty() ? "''" : text, text.ends_with(".py") ? text : "train.py"));
}

/// Reads --servers.
Status parse_servers(const std::string& text, launch::RunOptions& run) {
  run.ranks_serve = text == "ranks";
  if (run.ranks_serve || text.empty()) return {};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, run.servers);
  if (error == std::errc() && stop == end) return {};
  return {Code::kInvalidArgument,
          fmt::format("--servers {}: give a number of table servers, or \"ranks\"", text)};
}

/// How many of `arguments` are options of `app` with their values: the program begins behind them.
/// mpirun's -np becomes --np on the way.
size_t count_options(const CLI::App& app, std::vector<std::string>& arguments) {
  size_t i = 0;
  while (i < arguments.size() && arguments[i].starts_with('-') && arguments[i] != "--") {
    std::string& word = arguments[i];
    spell_out_np(word);
    const CLI::Option* option = app.get_option_no_throw(word);
    const bool takes_value = option != nullptr && option->get_items_expected_min() > 0;
    i += takes_value ? 2 : 1;
  }
  return std::min(i, arguments.size());
}

/// The program's arguments that are spelt like options of `app`, which is `corro run`.
std::vector<launch::MisplacedOption> find_misplaced(const CLI::App& app,
                                                    const std::vector<std::string>& command) {
  std::vector<launch::MisplacedOption> found;
  for (size_t i = 1; i < command.size() && command[i] != "--"; ++i) {
    std::string word = command[i];
    spell_out_np(word);
    const size_t equals = word.find('=');
    const CLI::Option* option = app.get_option_no_throw(word.substr(0, equals));
    if (!word.starts_with('-') || option == nullptr || option == app.get_help_ptr()) continue;
    launch::MisplacedOption misplaced{.name = command[i].substr(0, command[i].find('=')),
                                      .words = command[i],
                                      .is_ranks = option == app.get_option_no_throw("--np")};
    const bool takes_next = equals == std::string::npos && option->get_items_expected_min() > 0;
    if (takes_next && i + 1 < command.size()) misplaced.words += " " + command[i + 1];
    found.push_back(std::move(misplaced));
  }
  return found;
}

/// Moves the checked values into the request.
Status finish_run(Raw& raw, const CLI::App& run, Request& request) {
  request.action = Action::kRun;
  request.run = std::move(raw.run);
  request.run.command_name = run.get_name();
  if (run.count("--np") > 0) {
    CORRO_ASSIGN(request.run.ranks, parse_ranks(raw.ranks));
  }
  CORRO_TRY(parse_servers(raw.servers, request.run));
  CORRO_ASSIGN(request.run.show, screen::parse_show(raw.show));
  screen::Show& show = request.run.show;
  show.timestamps = raw.timestamps;
  const bool all_prefixed =
      show.mode == screen::ShowMode::kAll || show.mode == screen::ShowMode::kRanks;
  if (show.timestamps && !all_prefixed) {
    return {
        Code::kInvalidArgument,
        "--timestamps is for lines with a prefix: add --show all, streams or ranks such as 0,3"};
  }
  if (!raw.log_to.empty()) request.run.env.push_back("CORRO_LOG_TO=" + raw.log_to);
  request.run.bind = raw.bind == "core"   ? launch::Bind::kCore
                     : raw.bind == "none" ? launch::Bind::kNone
                                          : launch::Bind::kAuto;
  CORRO_ASSIGN(request.run.timeout, parse_time(run, "--timeout", raw.timeout));
  CORRO_ASSIGN(request.run.long_wait, parse_time(run, "--long-wait", raw.long_wait, ", or 0"));
  CORRO_ASSIGN(request.run.elastic_timeout,
               parse_time(run, "--elastic-timeout", raw.elastic_timeout));
  CORRO_ASSIGN(request.run.replace_wait, parse_time(run, "--replace-wait", raw.replace_wait));
  CORRO_ASSIGN(request.run.hang_timeout, parse_time(run, "--hang-timeout", raw.hang_timeout));
  CORRO_ASSIGN(request.run.back_off, parse_back_off(run, raw.back_off));
  return {};
}

Status parse_run(std::vector<std::string> arguments, CLI::App& run, Raw& raw, Request& request) {
  const size_t options = count_options(run, arguments);
  size_t program = options;
  if (program < arguments.size() && arguments[program] == "--") ++program;
  raw.run.command.assign(arguments.begin() + static_cast<std::ptrdiff_t>(program), arguments.end());
  raw.run.misplaced = find_misplaced(run, raw.run.command);
  for (const std::string& word : std::span(arguments).first(options)) {
    if (!word.starts_with("-np")) continue;  // as CLI11 reads it: -n p...
    return {Code::kInvalidArgument,
            fmt::format("corro {}: unknown option {}; the number of ranks is -np N", run.get_name(),
                        word)};
  }
  // CLI11 takes its arguments from the back.
  std::vector<std::string> own(arguments.rend() - static_cast<std::ptrdiff_t>(options),
                               arguments.rend());
  try {
    run.parse(own);
  } catch (const CLI::CallForHelp&) {
    request.text = run.help();
    return {};
  } catch (const CLI::ParseError& error) {
    return usage_error(run, {run, "corro " + run.get_name()}, error);
  }
  CORRO_TRY(finish_run(raw, run, request).with_context("corro " + run.get_name()));
  if (run.get_name() != "run") return {};
  request.cluster = std::move(raw.cluster);
  return check_cluster_run(run, request.cluster).with_context("corro run");
}

Status parse_coordinator(const std::vector<std::string>& arguments, CLI::App& app, Raw& raw,
                         Request& request) {
  CORRO_TRY(parse_run(arguments, app, raw, request));
  if (!request.text.empty()) return {};
  request.coordinator = raw.coordinator;
  const char* missing = raw.coordinator.store.empty()    ? "--store: where its record is kept"
                        : raw.coordinator.listen.empty() ? "--listen: where agents dial it"
                        : !request.run.ranks             ? "-np: so many ranks begin"
                                                         : nullptr;
  if (missing == nullptr) return {};
  return {Code::kInvalidArgument, fmt::format("corro coordinator: give {}", missing)};
}

Status parse_agent(std::vector<std::string> arguments, CLI::App& app, Raw& raw, Request& request) {
  std::ranges::reverse(arguments);  // CLI11 takes them from the back.
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    return usage_error(app, {app, "corro agent"}, error);
  }
  request.agent = raw.agent;
  if (raw.agent.addresses.empty())
    return {Code::kInvalidArgument, "corro agent: give --coordinator ADDRESS:PORT"};
  const auto patience = parse_time(app, "--patience", raw.patience);
  if (!patience.ok()) return patience.status().with_context("corro agent");
  request.agent.patience = *patience;
  return {};
}

Status finish_doctor(const Raw& raw, Request& request) {
  const launch::PreflightOptions& hosts = raw.preflight;
  const bool checks_hosts = !hosts.hosts.empty() || !hosts.hostfile.empty();
  if (!checks_hosts && !(hosts.network + hosts.rsh).empty()) {
    return {Code::kInvalidArgument,
            "corro doctor: --network and --rsh are for hosts: give them with -H or --hostfile"};
  }
  request.action = checks_hosts     ? Action::kPreflight
                   : raw.frameworks ? Action::kFrameworks
                                    : Action::kDoctor;
  request.doctor_pids.assign(raw.pids.begin(), raw.pids.end());
  request.preflight = hosts;
  request.doctor_json = raw.json;
  request.doctor_metrics = raw.metrics;
  return {};
}

/// Which of the commands about a running job was given; null: another one.
const std::pair<const char*, Action>* find_look(const CLI::App& program) {
  static constexpr std::array<std::pair<const char*, Action>, 5> kLooks = {
      {{"status", Action::kStatus},
       {"top", Action::kTop},
       {"stacks", Action::kStacks},
       {"servers", Action::kServers},
       {"trace", Action::kTrace}}};
  const auto* const found = std::ranges::find_if(
      kLooks, [&program](const auto& look) { return program.got_subcommand(look.first); });
  return found == kLooks.end() ? nullptr : found;
}

/// Everything but `run` and `help`.
Status parse_other(const std::vector<std::string>& arguments, CLI::App& program, const Raw& raw,
                   const std::string& version, Request& request) {
  CORRO_ASSIGN(const auto help, parse_words(program, arguments));
  if (help) {
    request.text = *help;
  } else if (program.got_subcommand("agent")) {
    request.action = Action::kAgent;
  } else if (program.got_subcommand("doctor")) {
    return finish_doctor(raw, request);
  } else if (const auto* look = find_look(program)) {
    request.action = look->second;
    request.look = raw.look;
  } else if (program.got_subcommand("dash")) {
    request.action = Action::kDash;
    request.dash = raw.dash;
  } else if (program.got_subcommand("completion")) {
    request.text = write_completion(program, raw.shell);
  } else {
    request.text = fmt::format("corro {}\n", version);
  }
  return {};
}

Status no_command(const CLI::App& program, const std::string& word) {
  std::set<std::string> commands;
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    commands.insert(command->get_name());
  }
  const std::string nearest = nearest_name(word, commands);
  const std::string question =
      nearest.empty() ? "" : fmt::format("did you mean corro {}? ", nearest);
  return {Code::kInvalidArgument,
          fmt::format("corro: no command '{}'; {}to start a program: corro run {}", word, question,
                      word)};
}

bool asks_for_help(const std::vector<std::string>& arguments) {
  return arguments.size() > 1 && (arguments[1] == "--help" || arguments[1] == "-h");
}

}  // namespace

Result<Request> parse_jobs_line(const std::vector<std::string>& arguments) {
  Raw raw;
  Request request;
  const auto program = describe_program(raw);
  if (arguments[0] == "run") {
    CORRO_TRY(parse_run({arguments.begin() + 1, arguments.end()}, *program->get_subcommand("run"),
                        raw, request));
    return request;
  }
  CORRO_ASSIGN(auto help, parse_words(*program, arguments));
  request.text = std::move(help).value_or("");
  request.jobs = std::move(raw.jobs);
  return request;
}

Result<Request> parse_coordinator_line(const std::vector<std::string>& arguments) {
  Raw raw;
  Request request;
  const auto program = describe_program(raw);
  const std::vector<std::string> own(arguments.begin() + 1, arguments.end());
  CORRO_TRY(arguments[0] == "agent"
                ? parse_agent(own, *program->get_subcommand("agent"), raw, request)
                : parse_coordinator(own, *program->get_subcommand("coordinator"), raw, request));
  return request;
}

Result<Request> parse_command_line(const std::vector<std::string>& arguments,
                                   const std::string& version) {
  Request request;
  request.subprogram = subprogram_of(arguments.empty() ? std::string_view() : arguments[0]);
  // One that a launcher has started has no options.
  if (!arguments.empty() && arguments[0] == "agent" && arguments.size() > 1 &&
      !asks_for_help(arguments))
    request.subprogram = kCoordinatorProgram;
  if (!request.subprogram.empty()) {
    request.action = Action::kSubprogram;
    return request;
  }
  Raw raw;
  const auto program = describe_program(raw);
  if (!arguments.empty() && arguments[0] == "run") {
    CORRO_TRY(parse_run({arguments.begin() + 1, arguments.end()}, *program->get_subcommand("run"),
                        raw, request));
    if (request.cluster.on.empty() || !request.text.empty()) return request;
    request.action = Action::kSubprogram;
    request.subprogram = kJobsProgram;
    return request;
  }
  if (arguments.empty() || arguments[0] == "help") {
    const CLI::App* shown = program.get();
    std::string before;  // the usage line begins with it
    for (size_t i = 1; i < arguments.size(); ++i) {
      before += (before.empty() ? "" : " ") + shown->get_name();
      shown = find_command(*shown, arguments[i]);
      if (shown != nullptr) continue;
      return Status(Code::kInvalidArgument, "corro help: no command '" + arguments[i] + "'");
    }
    request.text = shown->help(before);
    return request;
  }
  if (!arguments[0].starts_with('-') && find_command(*program, arguments[0]) == nullptr) {
    return no_command(*program, arguments[0]);
  }
  const CLI::App& run = *program->get_subcommand("run");
  const std::string option = arguments[0].substr(0, arguments[0].find('='));
  const bool own = program->get_option_no_throw(option) != nullptr;
  if (option.starts_with("-np") || (!own && run.get_option_no_throw(option) != nullptr)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("corro: {} is an option of `corro run`: corro run {}", option,
                              fmt::join(arguments, " ")));
  }
  CORRO_TRY(parse_other(arguments, *program, raw, version, request));
  return request;
}

}  // namespace corro::app
