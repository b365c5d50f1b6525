// corro-jobs: `corro run --on kubernetes`, and `corro jobs`, `logs`, `stop`, `scale` and `autoscale`.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "app/cli.h"
#include "app/program.h"
#include "base/variables.h"
#include "io/random.h"
#include "kube/client/credentials.h"
#include "kube/user/cluster_run.h"
#include "kube/user/job_commands.h"
#include "kube/user/log_filter.h"
#include "launch/python_line.h"

namespace corro::app {
namespace {

constexpr const char* kDefaultImage = "corro-python:" CORRO_VERSION;
constexpr const char* kPython = "python3";

struct Cluster {
  std::unique_ptr<kube::Client> client;
  std::string space;
};

Result<Cluster> reach(const ClusterPlace& place) {
  CORRO_ASSIGN(const kube::KubeAccess access,
               kube::find_access(read_variables(), place.kubeconfig, place.context));
  Cluster cluster{.client = nullptr, .space = place.space.empty() ? access.space : place.space};
  CORRO_ASSIGN(cluster.client, kube::Client::connect(access, {}));
  return cluster;
}

int fail(const std::string& command, const Status& status) {
  complain(fmt::format("corro {}: {}", command, status.message()));
  return diagnosis::kUsageExit;
}

// -- corro run ------------------------------------------------------------------------------------

/// What a pod starts for what `corro run` was given.
std::vector<std::string> command_of(const launch::RunOptions& options) {
  std::vector<std::string> command = options.command;
  if (options.module) {
    command.insert(command.begin(), {kPython, "-m"});
  } else if (command[0].ends_with(".py")) {
    command.insert(command.begin(), kPython);
  }
  return command;
}

/// What the job is named after: the script or module, or else the program.
std::string program_of(const launch::RunOptions& options) {
  if (options.module || !launch::is_python(options.command[0])) return options.command[0];
  const auto target = launch::python_target(options.command);
  return target ? target->name : options.command[0];
}

Status add_variables(const std::vector<std::string>& wanted, kube::ClusterRun& run) {
  const Variables own = read_variables();
  for (const std::string& word : wanted) {
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (equals == std::string::npos && !own.contains(name))
      return {Code::kInvalidArgument, fmt::format("--env {}: it is not set here", name)};
    run.env.emplace_back(name,
                         equals == std::string::npos ? own.at(name) : word.substr(equals + 1));
  }
  return {};
}

std::string chance() {
  uint32_t number = 0;
  io::fill_random(std::as_writable_bytes(std::span(&number, 1)));
  return fmt::format("{:05x}", number & 0xfffffU);
}

Result<kube::ClusterRun> run_of(const Request& request) {
  const launch::RunOptions& options = request.run;
  const ClusterRunOptions& cluster = request.cluster;
  if (options.command.empty())
    return Status(Code::kInvalidArgument, "give a program, as in: --on kubernetes -np 2 train.py");
  if (!options.ranks)
    return Status(Code::kInvalidArgument, "give -np: so many ranks run in the cluster");
  const std::string program = program_of(options);
  kube::ClusterRun run{
      .name = cluster.name.empty() ? kube::name_of_run(program, chance()) : cluster.name,
      .space = "",
      .image = cluster.image.empty() ? kDefaultImage : cluster.image,
      .command = command_of(options),
      .env = {},
      .ranks = *options.ranks,
      .least = options.least,
      .most = options.most,
      .slots = cluster.slots,
      .volumes = cluster.volumes,
      .resources = cluster.resources};
  CORRO_TRY(add_variables(options.env, run));
  if (options.timeout) run.timeout = std::chrono::ceil<std::chrono::seconds>(*options.timeout);
  if (options.sync.empty()) return run;
  std::error_code error;
  run.sync = std::filesystem::canonical(options.sync, error).string();
  if (error || !std::filesystem::is_directory(run.sync))
    return Status(Code::kNotFound, fmt::format("--sync {}: no such folder", options.sync));
  return run;
}

int run(const Request& request) {
  auto run = run_of(request);
  if (!run.ok()) return fail("run", run.status());
  run->space = request.cluster.place.space;
  // Before the cluster is asked: a mistake in the options needs no cluster.
  const auto job = kube::job_of(*run);
  if (!job.ok()) return fail("run", job.status());
  if (request.run.dry_run) {
    fmt::print("{}\n", job->dump(2));
    return 0;
  }
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals, signal);
  // Before the first thread: all of them inherit it.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  const auto cluster = reach(request.cluster.place);
  if (!cluster.ok()) return fail("run", cluster.status());
  run->space = cluster->space;
  return kube::run_on_cluster(*cluster->client, *run,
                              {.verbose = request.run.verbose, .quiet = request.run.quiet},
                              signals);
}

// -- the others -----------------------------------------------------------------------------------

Status show_jobs(const JobsCommand& command, const Cluster& cluster) {
  const std::string space = command.all_spaces ? "" : cluster.space;
  CORRO_ASSIGN(const auto jobs, kube::list_jobs(*cluster.client, space, {}));
  const auto now = std::chrono::time_point_cast<std::chrono::seconds>(wall_now());
  fmt::print("{}", kube::table_of_jobs(jobs, command.all_spaces, now));
  if (jobs.empty())
    complain(command.all_spaces ? "corro jobs: there are none"
                                : fmt::format("corro jobs: there are none in namespace {}", space));
  return {};
}

Status show_log(const JobsCommand& command, const Cluster& cluster) {
  kube::LogFilter filter(command.verbose, [](io::Output stream, std::string_view bytes) {
    std::FILE* file = stream == io::Output::kOut ? stdout : stderr;
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fflush(file);
  });
  const Status end =
      kube::show_job_log(*cluster.client, {cluster.space, command.job},
                         {.follows = command.follows, .tail_lines = command.tail},
                         [&filter](std::string_view bytes) { filter.feed(bytes); }, {});
  filter.finish();
  return end;
}

Status carry_out(const JobsCommand& command) {
  CORRO_ASSIGN(const Cluster cluster, reach(command.place));
  const kube::ObjectKey job{cluster.space, command.job};
  if (command.verb == "jobs") return show_jobs(command, cluster);
  if (command.verb == "logs") return show_log(command, cluster);
  if (command.verb == "scale") {
    CORRO_TRY(kube::scale_job(*cluster.client, job, command.workers, {}));
    fmt::print("job {} is to have {} pod{}\n", job.name, command.workers,
               command.workers == 1 ? "" : "s");
    return {};
  }
  if (command.verb == "autoscale") {
    const auto say = [](const std::string& line) {
      fmt::print("{}\n", line);
      std::fflush(stdout);
    };
    return kube::autoscale_job(
        *cluster.client, job,
        {.least_gain = command.least_gain, .has_global_batch = command.has_global_batch}, say, {});
  }
  CORRO_TRY(kube::stop_job(*cluster.client, job, {}));
  fmt::print("job {} is deleted; its ranks are asked to end\n", job.name);
  return {};
}

int run_program(const std::vector<std::string>& arguments) {
  signal(SIGPIPE, SIG_IGN);
  const auto request = parse_jobs_line(arguments);
  if (!request.ok()) {
    complain(request.status().message());
    return diagnosis::kUsageExit;
  }
  if (!request->text.empty()) {
    fmt::print("{}", request->text);
    return 0;
  }
  if (arguments[0] == "run") return run(*request);
  const Status status = carry_out(request->jobs);
  return status.ok() ? 0 : fail(request->jobs.verb, status);
}

}  // namespace
}  // namespace corro::app

int main(int argc, char** argv) {
  return corro::app::run_guarded(argc, argv, corro::app::run_program);
}
