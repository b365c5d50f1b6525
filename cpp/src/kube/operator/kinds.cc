#include "kube/operator/kinds.h"

#include "kube/client/json.h"

namespace corro::kube {
namespace {

constexpr Kind kNativeGroup{
    "scheduling.k8s.io/v1alpha2", "PodGroup", {"scheduling.k8s.io", "v1alpha2", "podgroups"}};
constexpr Kind kVolcanoGroup{
    "scheduling.volcano.sh/v1beta1", "PodGroup", {"scheduling.volcano.sh", "v1beta1", "podgroups"}};
constexpr Kind kPluginsGroup{
    "scheduling.x-k8s.io/v1alpha1", "PodGroup", {"scheduling.x-k8s.io", "v1alpha1", "podgroups"}};

bool has_version(const Json& group, std::string_view version) {
  const Json* versions = value_at(group, {"versions"});
  if (versions == nullptr || !versions->is_array()) return false;
  for (const Json& each : *versions) {
    if (text_at(each, {"version"}) == version) return true;
  }
  return false;
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

Served served_by(const Json& api_groups) {
  Served served;
  const Json* groups = value_at(api_groups, {"groups"});
  if (groups == nullptr || !groups->is_array()) return served;
  for (const Json& group : *groups) {
    const std::string name = text_at(group, {"name"});
    if (name == kNativeGroup.type.group && has_version(group, kNativeGroup.type.version))
      served.native_gang = kNativeGroup.type.version;
    served.volcano |= name == kVolcanoGroup.type.group;
    served.scheduler_plugins |= name == kPluginsGroup.type.group;
  }
  return served;
}

}  // namespace corro::kube
