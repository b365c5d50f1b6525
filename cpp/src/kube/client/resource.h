// What an API server calls things, and under which path it keeps them. Pure.
//
//   constexpr ResourceType kPods{.group = "", .version = "v1", .plural = "pods"};
//   path_of(kPods, {"default", "job-worker-0"});    // /api/v1/namespaces/default/pods/job-worker-0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace corro::kube {

/// One kind of objects. Borrows its texts: literals.
struct ResourceType {
  std::string_view group;    ///< "" for the core: pods, services, secrets.
  std::string_view version;  ///< "v1".
  std::string_view plural;   ///< "pods".
  bool is_namespaced = true;
};

inline constexpr ResourceType kPods{"", "v1", "pods"};
inline constexpr ResourceType kServices{"", "v1", "services"};
inline constexpr ResourceType kConfigMaps{"", "v1", "configmaps"};
inline constexpr ResourceType kSecrets{"", "v1", "secrets"};
inline constexpr ResourceType kNodes{"", "v1", "nodes", false};
inline constexpr ResourceType kEvents{"events.k8s.io", "v1", "events"};
inline constexpr ResourceType kJobs{"batch", "v1", "jobs"};
inline constexpr ResourceType kCorroJobs{"training.corro.dev", "v1", "corrojobs"};
inline constexpr ResourceType kLeases{"coordination.k8s.io", "v1", "leases"};

/// One object, or with an empty name all of one namespace, or with an empty namespace of all.
struct ObjectKey {
  std::string space = {};  ///< Namespace; unused for types that have none.
  std::string name = {};
  friend auto operator<=>(const ObjectKey&, const ObjectKey&) = default;
};

/// "pods default/job-worker-0": begins the messages of calls.
[[nodiscard]] std::string describe(const ResourceType& type, const ObjectKey& key);

/// Returns "/api/v1/..." or "/apis/GROUP/...", for a subresource with "/status" behind it.
/// INVALID_ARGUMENT for a name or namespace that would be another path: empty where it must not be,
/// longer than 253 bytes, or with bytes other than letters, digits, '-', '.', '_' and ':'.
[[nodiscard]] Result<std::string> path_of(const ResourceType& type, const ObjectKey& key,
                                          std::string_view subresource = "");

/// Encodes "?a=b&c=d", leaving out pairs without a value; "" if none is left.
[[nodiscard]] std::string query_of(
    const std::vector<std::pair<std::string_view, std::string>>& pairs);

}  // namespace corro::kube
