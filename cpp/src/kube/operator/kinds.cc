#include "kube/operator/kinds.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kube/client/json.h"

namespace corro::kube {
namespace {

constexpr Kind kNativeGroup{
    "scheduling.k8s.io/v1alpha2", "PodGroup", {"scheduling.k8s.io", "v1alpha2", "podgroups"}};
constexpr Kind kVolcanoGroup{
    "scheduling.volcano.sh/v1beta1", "PodGroup", {"scheduling.volcano.sh", "v1beta1", "podgroups"}};
constexpr Kind kPluginsGroup{
    "scheduling.x-k8s.io/v1alpha1", "PodGroup", {"scheduling.x-k8s.io", "v1alpha1", "podgroups"}};

template <typename Fits>
bool any_of(const Json& object, std::string_view list, Fits&& fits) {
  const Json* items = value_at(object, {list});
  return items != nullptr && items->is_array() &&
         std::any_of(items->begin(), items->end(), std::forward<Fits>(fits));
}

std::string_view group_of(std::string_view api_version) {
  const size_t slash = api_version.find('/');
  return slash == std::string_view::npos ? "" : api_version.substr(0, slash);
}

}  // namespace

std::vector<Kind> kinds_of(const Served& served) {
  std::vector<Kind> kinds = {
      kMpiJobKind,
      kCorroJobKind,
      {"v1", "Pod", kPods},
      {"v1", "Service", kServices},
      {"v1", "ConfigMap", kConfigMaps},
      {"batch/v1", "Job", kJobs},
      {"networking.k8s.io/v1", "NetworkPolicy", {"networking.k8s.io", "v1", "networkpolicies"}},
      {"v1", "Secret", kSecrets, false},
      {"v1", "ServiceAccount", {"", "v1", "serviceaccounts"}, false},
      {"rbac.authorization.k8s.io/v1", "Role", {"rbac.authorization.k8s.io", "v1", "roles"}, false},
      {"rbac.authorization.k8s.io/v1",
       "RoleBinding",
       {"rbac.authorization.k8s.io", "v1", "rolebindings"},
       false},
      {"coordination.k8s.io/v1", "Lease", {"coordination.k8s.io", "v1", "leases"}, false},
  };
  if (!served.native_gang.empty()) kinds.push_back(kNativeGroup);
  if (served.volcano) kinds.push_back(kVolcanoGroup);
  if (served.scheduler_plugins) kinds.push_back(kPluginsGroup);
  return kinds;
}

const Kind* find_kind(const std::vector<Kind>& kinds, std::string_view api_version,
                      std::string_view name) {
  for (const Kind& kind : kinds) {
    if (kind.name == name && group_of(kind.api_version) == group_of(api_version)) return &kind;
  }
  return nullptr;
}

std::span<const Kind> gang_kinds() {
  static constexpr std::array kKinds = {kNativeGroup, kVolcanoGroup, kPluginsGroup};
  return kKinds;
}

bool has_group(const Json& api_groups, const Kind& kind) {
  return any_of(api_groups, "groups", [&](const Json& group) {
    return text_at(group, {"name"}) == kind.type.group &&
           any_of(group, "versions", [&](const Json& version) {
             return text_at(version, {"version"}) == kind.type.version;
           });
  });
}

bool has_resource(const Json& resources, const Kind& kind) {
  return any_of(resources, "resources", [&](const Json& resource) {
    return text_at(resource, {"name"}) == kind.type.plural;
  });
}

void add_gang(const Kind& kind, Served& served) {
  if (kind.api_version == kNativeGroup.api_version) served.native_gang = kind.type.version;
  served.volcano |= kind.api_version == kVolcanoGroup.api_version;
  served.scheduler_plugins |= kind.api_version == kPluginsGroup.api_version;
}

}  // namespace corro::kube
