#include "app/cluster_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "app/command_line.h"

namespace corro::app {
namespace {

constexpr const char* kGroup = "Kubernetes";

/// Options that make no sense without --on...
constexpr std::array<std::string_view, 8> kOfClusters = {"--image",      "--name",   "--volume",
                                                         "--resource",   "--slots",  "--namespace",
                                                         "--kubeconfig", "--context"};
/// ...and those that do with it, too.
constexpr std::array<std::string_view, 12> kOfBoth = {
    "--on",      "--np",      "--min-np", "--max-np", "--module",  "--env",
    "--timeout", "--verbose", "--quiet",  "--sync",   "--dry-run", "--help"};

void describe_place(CLI::App& app, ClusterPlace& place, const char* group) {
  app.add_option("--namespace", place.space, "Namespace of the job; default: the context's")
      ->type_name("NAME")
      ->group(group);
  app.add_option("--kubeconfig", place.kubeconfig, "How to reach the cluster; default: as kubectl")
      ->type_name("FILE")
      ->group(group);
  app.add_option("--context", place.context, "Context of that file; default: its current one")
      ->type_name("NAME")
      ->group(group);
}

CLI::App& add_command(CLI::App& program, JobsCommand& command, const char* verb, const char* what) {
  CLI::App& app = *program.add_subcommand(verb, what);
  app.callback([&command, verb] { command.verb = verb; });
  describe_place(app, command.place, "Options");
  return app;
}

void add_job(CLI::App& app, JobsCommand& command) {
  app.add_option("job", command.job, "Its name")->type_name("JOB")->required();
}

}  // namespace

void describe_cluster_run(CLI::App& run, ClusterRunOptions& options) {
  run.add_option("--on", options.on,
                 "Run in pods of a Kubernetes cluster that has corro's operator: kubernetes")
      ->type_name("WHERE")
      ->check(CLI::IsMember({"kubernetes"}))
      ->group(kGroup);
  run.add_option("--image", options.image, "Image of the pods; default: corro-python:VERSION")
      ->type_name("IMAGE")
      ->group(kGroup);
  run.add_option("--slots", options.slots, "Ranks of a pod; default: 1")
      ->type_name("N")
      ->check(number_in(1, 1024))
      ->group(kGroup);
  run.add_option("--volume", options.volumes, "Mount a PersistentVolumeClaim in the pods")
      ->type_name("CLAIM:/PATH[:ro]")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kGroup);
  run.add_option("--resource", options.resources,
                 "What a pod asks for: cpu=4, memory=8Gi, nvidia.com/gpu=1")
      ->type_name("NAME=AMOUNT")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(kGroup);
  run.add_option("--name", options.name, "Name of the job; default: made of the program's")
      ->type_name("NAME")
      ->group(kGroup);
  describe_place(run, options.place, kGroup);
}

Status check_cluster_run(const CLI::App& run, const ClusterRunOptions& options) {
  const auto is_in = [](const auto& names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  for (const CLI::Option* option : run.get_options()) {
    if (option->count() == 0) continue;
    std::string name = option->get_name(false, true);  // All of its names, with commas.
    const size_t longest = name.find("--");
    name = name.substr(longest == std::string::npos ? 0 : longest);
    name = name.substr(0, name.find(','));
    const bool is_of_clusters = is_in(kOfClusters, name);
    if (options.on.empty() && is_of_clusters)
      return {Code::kInvalidArgument, name + " is for --on kubernetes"};
    if (!options.on.empty() && !is_of_clusters && !is_in(kOfBoth, name))
      return {Code::kInvalidArgument,
              name + " means nothing with --on kubernetes, where the cluster has the machines"};
  }
  return {};
}

void describe_jobs(CLI::App& program, JobsCommand& command) {
  CLI::App& jobs = add_command(program, command, "jobs", "List the jobs of a Kubernetes cluster");
  jobs.add_flag("-A,--all-namespaces", command.all_spaces, "Of all namespaces");
  CLI::App& logs = add_command(program, command, "logs",
                               "Show what a job on Kubernetes prints, as corro run would");
  add_job(logs, command);
  logs.add_flag("-f,--follow", command.follows, "Go on until the job ends");
  logs.add_option("--tail", command.tail, "Begin with the last lines")->type_name("N");
  logs.add_flag("--verbose", command.verbose, "What the job's head says of itself, too");
  add_job(add_command(program, command, "stop", "End a job on Kubernetes, and delete it"), command);
  CLI::App& scale =
      add_command(program, command, "scale", "Change how many pods a job on Kubernetes has");
  add_job(scale, command);
  scale.add_option("workers", command.workers, "Pods, within the job's --min-np and --max-np")
      ->type_name("N")
      ->required()
      ->check(number_in(1, 10000));
  CLI::App& autoscale = add_command(
      program, command, "autoscale",
      "Give an elastic job on Kubernetes as many pods as are worth it, as long as this runs");
  add_job(autoscale, command);
  autoscale
      .add_option("--least-gain", command.least_gain,
                  "What a pod has to add, as a share of a lone one's throughput; 0: the fastest; "
                  "default: 0.5")
      ->type_name("SHARE")
      ->check(number_in(0.0, 1.0));
  autoscale.add_flag("--global-batch", command.has_global_batch,
                     "A step has as many samples with any number of ranks");
}

}  // namespace corro::app
