#include "pod/ranks.h"

#include <fmt/format.h>
#include <cstdlib>

#include "agent/machine.h"
#include "diagnosis/exit_status.h"
#include "launch/caller.h"
#include "launch/plan.h"
#include "launch/run_job.h"
#include "pod/settings.h"
#include "wire/digest.h"

namespace corro::pod {
namespace {

constexpr size_t kJobIdBytes = 8;

/// What is in the pods cannot be looked at from here: their agents have done so.
launch::FileFacts files_of_pods(const std::string& directory) {
  const auto yes = [](const std::string&) { return true; };
  return {.directory = directory,
          .exists = yes,
          .executable = yes,
          .same = [](const std::string&, const std::string&) { return true; }};
}

}  // namespace

std::vector<std::string> words_for_ranks(const RanksOptions& options,
                                         const agent::Enlist& enlisted) {
  std::string hosts;
  for (int worker = 0; worker < options.workers; ++worker) {
    hosts +=
        fmt::format("{}{}:{}", worker == 0 ? "" : ",",
                    host_of_member(options.job, fmt::format("worker-{}", worker)), options.slots);
  }
  std::vector<std::string> words = {options.program, "ranks",          std::to_string(options.port),
                                    hosts,           enlisted.program, enlisted.directory};
  words.insert(words.end(), enlisted.command.begin(), enlisted.command.end());
  return words;
}

int run_ranks(const std::vector<std::string>& arguments, const std::string& program,
              const std::string& version) {
  constexpr size_t kFixed = 4;
  if (arguments.size() <= kFixed) return diagnosis::kUsageExit;
  // For the remote shells.
  setenv("CORRO_HEAD", ("127.0.0.1:" + arguments[0]).c_str(), 1);
  const std::string& corro = arguments[2];
  const std::string id = wire::random_hex(kJobIdBytes);
  // The head may write there: the operator mounts it.
  const std::string folder = value_of(read_variables(), "TMPDIR", "/tmp");
  const std::string sync = value_of(read_variables(), "CORRO_SYNC");
  launch::RunOptions options;
  options.command.assign(arguments.begin() + kFixed, arguments.end());
  options.hosts = arguments[1];
  options.rsh = program + " rsh";
  options.sync = sync;
  options.log_dir = fmt::format("{}/corro-{}", folder, id);
  const launch::PlanInputs inputs{.environment = {},
                                  .machine = agent::read_machine({}),
                                  .files = files_of_pods(sync.empty() ? arguments[3] : sync),
                                  .own_directory = corro.substr(0, corro.rfind('/')),
                                  .read_hostfile = launch::read_hostfile,
                                  .job_id = id,
                                  .time = "",
                                  .master_port = 0};
  const auto plan = launch::make_plan(options, inputs);
  if (!plan.ok()) return launch::refuse_job(options, plan.status());
  return launch::run_job(*plan, version);
}

}  // namespace corro::pod
