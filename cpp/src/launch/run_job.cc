#include "launch/run_job.h"

#include <fmt/format.h>

#include <utility>

#include "agent/agent_process.h"
#include "launch/job.h"
#include "launch/job_signals.h"
#include "launch/launcher.h"
#include "launch/showroom.h"

namespace corro::launch {
namespace {

/// None: somebody has typed `corro run`.
Result<std::optional<Caller>> take_caller(const RunOptions& options) {
  std::optional<Caller> caller;
  if (options.call >= 0) {
    CORRO_ASSIGN(caller, Caller::create(options.call));
  }
  return caller;
}

/// Null: the user names no program.
Result<std::shared_ptr<PolicyCommand>> start_policy(const std::string& command,
                                                    const sigset_t& mask) {
  if (command.empty()) return std::shared_ptr<PolicyCommand>();
  auto policy = PolicyCommand::start(command, mask);
  if (!policy.ok()) return policy.status().with_context("--policy");
  return policy;
}

/// What is the same for a job that begins anew.
struct Surroundings {
  JobSignals signals;
  std::string version;
  Standalone* standalone = nullptr;
  Showroom room;
};

/// Opens what the job needs, and runs it. `caller` is taken once nothing can fail any more: it is
/// told of a failure. None: the job is to begin anew, with what `plan` is then.
Result<std::optional<int>> open_and_run(std::optional<Caller>& caller, LaunchPlan& plan,
                                        Surroundings& around) {
  CORRO_ASSIGN(JobOutput::Files files, JobOutput::open_files(plan));
  CORRO_ASSIGN(JobDisplay::Opened display, JobDisplay::open(plan, around.room));
  CORRO_ASSIGN(Agents agents,
               Agents::create(plan.job.hosts, {.job = wire::digest_of(plan.job.job_id),
                                               .shell = agent::remote_shell(plan.options.rsh),
                                               .corro = plan.corro,
                                               .version = around.version,
                                               .fan_out = plan.options.fan_out,
                                               .mask = around.signals.before,
                                               .dialled = plan.dialled}));
  CORRO_ASSIGN(io::Loop loop, io::Loop::create());
  CORRO_ASSIGN(auto writer, screen::ScreenWriter::create());  // A thread: after the fork.
  CORRO_ASSIGN(auto policy, start_policy(plan.options.policy, around.signals.before));
  // Has a thread, too.
  auto page = around.room.open(*display.board, plan);
  // Ranks that run already need somebody who leads more than a page.
  if (!page.ok() && !plan.resumed) return page.status();
  if (page.ok()) display.dashboard = std::move(*page);
  Job job({.plan = plan,
           .version = around.version,
           .loop = std::move(loop),
           .agents = std::move(agents),
           .caller = std::move(caller),
           .files = std::move(files),
           .writer = std::move(writer),
           .policy = std::move(policy),
           .display = std::move(display)});
  if (!page.ok()) {
    job.output.note(
        fmt::format("corro: the job goes on without a page: {}\n", page.status().message()));
  } else if (const std::string address = around.room.take_news(plan.machine.host);
             !address.empty()) {
    job.output.note(fmt::format("dashboard  {}\n", address));
  }
  const std::optional<int> exit = Launcher(job, around.standalone).run(around.signals.heard);
  if (exit) return exit;
  plan = std::move(*job.others);
  caller = std::move(job.caller);
  return exit;
}

/// Until the job has begun, and is over: hosts that cannot be used are left out.
Result<int> run_on_usable_hosts(std::optional<Caller>& caller, LaunchPlan plan,
                                const std::string& version, Standalone* standalone) {
  CORRO_ASSIGN(Showroom room, Showroom::create("--dashboard", plan.options.dashboard));
  Surroundings around{.signals = block_signals(),
                      .version = version,
                      .standalone = standalone,
                      .room = std::move(room)};
  plan.mask = around.signals.before;
  while (true) {
    CORRO_ASSIGN(const auto exit, open_and_run(caller, plan, around));
    if (exit) return *exit;
  }
}

}  // namespace

int run_job(const LaunchPlan& plan, const std::string& version, Standalone* standalone) {
  auto caller = take_caller(plan.options);
  if (!caller.ok()) return refuse_job(plan.options, caller.status());
  const auto exit = run_on_usable_hosts(*caller, plan, version, standalone);
  return exit.ok() ? *exit : refuse_job(plan.options, exit.status());
}

}  // namespace corro::launch
