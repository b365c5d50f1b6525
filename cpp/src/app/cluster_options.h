// The command line of what a user does with jobs on a cluster: options of `corro run --on
// kubernetes`, and `corro jobs`, `logs`, `stop`, `scale` and `autoscale`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library calls itself so
class App;
}

namespace corro::app {

/// Which cluster, and which namespace of it.
struct ClusterPlace {
  std::string kubeconfig;  ///< File; "": as kubectl.
  std::string context;     ///< "": the file's current one.
  std::string space;       ///< "": the context's.
};

/// What `corro run` has beside its own options.
struct ClusterRunOptions {
  std::string on;     ///< "kubernetes"; "": this host and those of -H.
  std::string image;  ///< "": corro-python:VERSION.
  std::string name;   ///< Of the job; "": made of the program's.
  std::vector<std::string> volumes;
  std::vector<std::string> resources;
  int slots = 1;
  ClusterPlace place;
};

struct JobsCommand {
  std::string verb;  ///< "jobs", "logs", "stop", "scale" or "autoscale".
  ClusterPlace place;
  std::string job;
  bool all_spaces = false;
  bool follows = false;
  bool verbose = false;
  std::optional<uint32_t> tail;
  int workers = 0;
  double least_gain = 0.5;
  bool has_global_batch = false;
};

/// Adds the options to `corro run`. Borrows `options`.
void describe_cluster_run(CLI::App& run, ClusterRunOptions& options);

/// INVALID_ARGUMENT for an option of `corro run` that means nothing on a cluster, or nothing
/// elsewhere.
[[nodiscard]] Status check_cluster_run(const CLI::App& run, const ClusterRunOptions& options);

/// Adds the five commands to the program. Borrows `command`.
void describe_jobs(CLI::App& program, JobsCommand& command);

}  // namespace corro::app
