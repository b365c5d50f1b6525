#include "pod/elastic_job.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <optional>

#include "agent/machine.h"
#include "coordinator/coordinator.h"
#include "coordinator/dialling_agent.h"
#include "diagnosis/exit_status.h"
#include "io/signals.h"
#include "launch/command.h"
#include "pod/child.h"
#include "pod/head_keys.h"
#include "pod/head_link.h"

namespace corro::pod {
namespace {

constexpr Duration kFirstPause = std::chrono::seconds(1);  ///< After what leads was killed.
constexpr Duration kMostPause = std::chrono::minutes(1);
/// By what the operator knows a message of the head's (kube/reconcile/injection.h).
constexpr const char* kJobFailedMark = "corro: the job has failed: ";
constexpr const char* kLostWorkersMark = "corro: too few workers are left: ";

int fail(const char* who, const Status& status) {
  fmt::print(stderr, "corro {}: {}\n", who, status.message());
  return diagnosis::kUsageExit;
}

/// What the head has of its own, in a folder that its pod mounts.
std::string folder_of(const PodSettings& settings) {
  return fmt::format("{}/corro-{}", value_of(read_variables(), "TMPDIR", "/tmp"),
                     settings.identity.job_uid);
}

std::string log_dir_of(const PodSettings& settings) { return folder_of(settings) + "/logs"; }

coordinator::CoordinatorOptions options_of(const HeadOptions& options) {
  const PodSettings& settings = options.settings;
  launch::RunOptions run;
  run.command_name = "head";
  run.least = settings.least_workers * settings.slots;
  run.most = settings.most_workers * settings.slots;
  run.waits_for_hosts = true;  // They are made anew, and may wait in a queue.
  run.log_dir = log_dir_of(settings);
  if (options.has_folder) run.sync = settings.sync;
  return {.store = settings.store,
          .listen = options.listen,
          .run = std::move(run),
          .own_directory = options.program.substr(0, options.program.rfind('/')),
          .version = options.version,
          .round = settings.round,
          .has_rights = true,
          .expected = worker_names(settings.least_workers)};
}

/// Of the ranks' hosts nothing is to be seen here. They are started in the folder that was brought,
/// if there is one; else where their agents are.
launch::PlanInputs plan_inputs(const coordinator::CoordinatorOptions& options,
                               const std::string& folder) {
  const auto no = [](const std::string&) { return false; };
  return {.environment = {},
          .machine = agent::read_machine({}),
          .files = {.directory = folder,
                    .exists = [folder](const std::string& path) { return path == folder + "/."; },
                    .executable = no,
                    .same = [](const std::string&, const std::string&) { return false; }},
          .own_directory = options.own_directory,
          .read_hostfile = launch::read_hostfile,
          .hosts_have_program = true,
          .job_id = "",
          .time = "",
          .master_port = 0};
}

/// Why the job has not succeeded, where the kubelet finds it: the operator goes by it, and tells
/// people. Returns the head's exit status.
int say_last_word(const PodSettings& settings, const launch::Ending& ending) {
  if (ending.status == 0) return 0;
  const std::string why =
      ending.why.empty() ? fmt::format("it has ended with status {}", ending.status) : ending.why;
  std::ofstream(settings.termination_log)
      << (ending.by_hosts ? kLostWorkersMark : kJobFailedMark) << why << "\n";
  return ending.by_hosts ? diagnosis::kLeftExit : ending.status;
}

/// Leads whenever nobody else does, until the job is over.
int lead(const HeadOptions& options, const secure::Key& key) {
  const coordinator::CoordinatorOptions how = options_of(options);
  const coordinator::Trust trust{.find_key = keys_of_members(options.settings), .secret = key};
  coordinator::Outcome outcome{.status = coordinator::kStartAnew};
  while (outcome.status == coordinator::kStartAnew)
    outcome = coordinator::run_coordinator(how, plan_inputs(how, options.settings.sync), trust,
                                           read_variables());
  return outcome.job ? say_last_word(options.settings, *outcome.job) : outcome.status;
}

/// The process that leads, with the signal mask that this one had.
pid_t start_leader(const HeadOptions& options, const secure::Key& key, const sigset_t& before) {
  const pid_t head = getpid();
  const pid_t leader = fork();
  if (leader != 0) return leader;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != head) _exit(1);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  const int status = lead(options, key);
  std::fflush(nullptr);
  _exit(status);
}

/// How long until what was killed leads again: longer each time, but after a minute that went well.
Duration next_pause(Duration last, Duration lived) {
  if (last == Duration::zero() || lived >= kMostPause) return kFirstPause;
  return std::min(2 * last, kMostPause);
}

/// The processes that lead, one after another: the kernel may kill one for its memory, which is no
/// end of the job. Loop-confined.
class Leaders {
 public:
  Leaders(const HeadOptions& options, const secure::Key& key) : options_(options), key_(key) {
    sigemptyset(&heard_);
    for (const int signal : {SIGCHLD, SIGTERM, SIGINT}) sigaddset(&heard_, signal);
    sigprocmask(SIG_BLOCK, &heard_, &before_);
  }

  /// Returns the exit status of the one that ends by itself, or of this head if it is asked to go.
  int run() {
    for (Duration pause{};;) {
      const Time begun = monotonic_now();
      const pid_t leader = start_leader(options_, key_, before_);
      if (leader < 0) return fail("head", status_from_errno("starting a process", errno));
      const int status = wait_for(leader);
      if (asked_) return diagnosis::kSignalExit + *asked_;
      if (!WIFSIGNALED(status)) return shell_status(status);
      pause = next_pause(pause, monotonic_now() - begun);
      fmt::print(stderr, "corro head: what leads was killed by {}; it begins again in {} s\n",
                 io::signal_name(WTERMSIG(status)),
                 std::chrono::duration_cast<std::chrono::seconds>(pause).count());
      const Time until = monotonic_now() + pause;
      while (!asked_ && monotonic_now() < until) hear(until - monotonic_now());
      if (asked_) return diagnosis::kSignalExit + *asked_;
    }
  }

 private:
  /// As from waitpid. Whoever is asked to go kills it.
  int wait_for(pid_t leader) {
    int status = 0;
    while (waitpid(leader, &status, WNOHANG) != leader) {
      hear(kMostPause);
      if (asked_) kill(leader, SIGKILL);
    }
    return status;
  }
  /// Blocks until a signal comes, or so long.
  void hear(Duration patience) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience);
    const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(patience - seconds);
    const timespec time{.tv_sec = seconds.count(), .tv_nsec = rest.count()};
    const int signal = sigtimedwait(&heard_, nullptr, &time);
    if (signal == SIGTERM || signal == SIGINT) asked_ = signal;
  }

  const HeadOptions& options_;
  const secure::Key& key_;
  sigset_t heard_{}, before_{};
  std::optional<int> asked_;
};

Result<agent::Commander::Dialling> dialling_of(const PodAgentOptions& options) {
  const PodSettings& settings = options.settings;
  if (options.command.empty()) {
    return Status(Code::kInvalidArgument,
                  "the worker's first container has no command: ranks of an elastic job need one");
  }
  CORRO_ASSIGN(const WayToHead way, way_to_head(settings));
  return agent::Commander::Dialling{
      .addresses = {settings.head},
      .dial = [way](size_t) { return coordinator::dial_coordinator(way.address, way.tls); },
      .note = [](const std::string& line) { fmt::print(stderr, "corro agent: {}\n", line); },
      .host = settings.identity.member,
      .slots = settings.slots,
      .patience = settings.head_patience,
      .program = {.path = find_on_path(options.command[0]), .arguments = options.command},
      .called = "head",
      .on_give_up =
          [settings](const std::string& why) {
            write_last_word(settings, fmt::format("corro: {}", why));
          }};
}

}  // namespace

int run_elastic_head(const HeadOptions& options) {
  if (options.settings.store.empty())
    return fail("head", {Code::kInvalidArgument,
                         "CORRO_STORE is not set; corro's operator sets it in an elastic job"});
  const auto key = read_head_key(options.settings);
  if (!key.ok()) return fail("head", key.status());
  return Leaders(options, *key).run();
}

int run_elastic_agent(const PodAgentOptions& options) {
  auto dialling = dialling_of(options);
  if (!dialling.ok()) return fail("agent", dialling.status());
  return coordinator::follow_coordinators(std::move(*dialling), options.version);
}

}  // namespace corro::pod
