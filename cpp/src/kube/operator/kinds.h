// The kinds of objects that the operator handles, and where the API server keeps them. Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kube/client/resource.h"
#include "kube/reconcile/observed.h"

namespace corro::kube {

struct Kind {
  std::string_view api_version;  ///< "batch/v1"; literal.
  std::string_view name;         ///< "Job".
  ResourceType type;
  bool is_watched = true;  ///< False for what the operator only creates.
  bool is_job = false;     ///< MPIJob, CorroJob: watched without a selector.
};

inline constexpr Kind kMpiJobKind{
    "kubeflow.org/v2beta1", "MPIJob", {"kubeflow.org", "v2beta1", "mpijobs"}, true, true};
inline constexpr Kind kCorroJobKind{"training.corro.dev/v1", "CorroJob", kCorroJobs, true, true};

/// What a cluster with these ways to start gangs has of them: the jobs first.
[[nodiscard]] std::vector<Kind> kinds_of(const Served& served);

/// The one of an object, or nothing if the operator has nothing to do with it. Any version of
/// MPIJob is the stored one.
[[nodiscard]] const Kind* find_kind(const std::vector<Kind>& kinds, std::string_view api_version,
                                    std::string_view name);

/// The PodGroups that a cluster may serve.
[[nodiscard]] std::span<const Kind> gang_kinds();

/// True if the answer to GET /apis has the kind's group in its version. Others' kinds may be all
/// that is in it.
[[nodiscard]] bool has_group(const Json& api_groups, const Kind& kind);

/// True if the answer to GET /apis/GROUP/VERSION has the kind.
[[nodiscard]] bool has_resource(const Json& resources, const Kind& kind);

/// Notes that a cluster serves one of `gang_kinds`.
void add_gang(const Kind& kind, Served& served);

}  // namespace corro::kube
