// The CorroJob of a `corro run --on kubernetes`.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "kube/client/json.h"

namespace corro::kube {

/// What the user asked for.
struct ClusterRun {
  std::string name;   ///< Of the job: a DNS label of at most 54 bytes.
  std::string space;  ///< Its namespace; "": that of whoever creates it.
  std::string image;
  std::vector<std::string> command;                      ///< Program and words, as a pod has them.
  std::vector<std::pair<std::string, std::string>> env;  ///< Of the ranks.
  int ranks = 1;
  std::optional<int> least = {};            ///< Makes the job elastic.
  std::optional<int> most = {};             ///< Also does; >= ranks.
  int slots = 1;                            ///< Ranks of a pod; divides those three.
  std::vector<std::string> volumes = {};    ///< "CLAIM:/path" or "CLAIM:/path:ro".
  std::vector<std::string> resources = {};  ///< "cpu=4": of each pod.
  std::string sync = {};                    ///< The folder to bring, absolute; "": none.
  std::optional<std::chrono::seconds> timeout = {};
};

/// Where the folder is in the pods: "/workspace/NAME". Pure.
[[nodiscard]] std::string folder_in_pods(const std::string& folder);

/// A name that nobody else has: "train-3fa9c" for ".../train.py". `chance`: five hex digits. Pure.
[[nodiscard]] std::string name_of_run(const std::string& program, const std::string& chance);

/// Returns the object to create. INVALID_ARGUMENT names the option that is wrong. Pure.
[[nodiscard]] Result<Json> job_of(const ClusterRun& run);

}  // namespace corro::kube
