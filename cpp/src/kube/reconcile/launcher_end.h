// How MPIJob's launcher stands: a batch Job, of v1 a Pod.
#pragma once

#include <optional>
#include <string>

#include "kube/reconcile/job_view.h"

namespace corro::kube {

struct LauncherEnd {
  enum class Kind : uint8_t { kNone, kSucceeded, kFailed };
  Kind kind = Kind::kNone;
  std::string reason = {};
  std::string message = {};
  std::optional<KubeTime> at = {};  ///< When it completed, as the Job says.
};

[[nodiscard]] LauncherEnd launcher_end(const JobView& view);

/// Launcher pods in phase Running.
[[nodiscard]] int running_launchers(const JobView& view);

/// Makes the launcher unless it is there, or has to wait for workers; lets a suspended one go on.
void make_launcher(JobView& view, const PodContext& context, int ready_workers);

void suspend_launcher(JobView& view);

}  // namespace corro::kube
