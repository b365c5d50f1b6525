#include "kube/reconcile/head_rights.h"

#include <fmt/format.h>

#include "kube/reconcile/objects.h"

namespace corro::kube {
namespace {

constexpr const char* kRbacGroup = "rbac.authorization.k8s.io";
constexpr const char* kRbacVersion = "rbac.authorization.k8s.io/v1";

std::string lease_name(const JobSpec& spec) { return head_rights_name(spec) + "-head"; }
std::string record_name(const JobSpec& spec) { return head_rights_name(spec) + "-record"; }

Json named(const JobSpec& spec, const char* api_version, const char* kind,
           const std::string& name) {
  return Json::object({{"apiVersion", api_version},
                       {"kind", kind},
                       {"metadata", metadata_of(spec, name, object_labels(spec))}});
}

Json account(const JobSpec& spec) {
  Json account = named(spec, "v1", "ServiceAccount", head_rights_name(spec));
  account["automountServiceAccountToken"] = false;
  return account;
}

Json rule(const char* group, const char* resource, const Json& names, const Json& verbs) {
  return Json::object({{"apiGroups", Json::array({group})},
                       {"resources", Json::array({resource})},
                       {"resourceNames", names},
                       {"verbs", verbs}});
}

Json role(const JobSpec& spec) {
  Json role = named(spec, kRbacVersion, "Role", head_rights_name(spec));
  role["rules"] =
      Json::array({rule("coordination.k8s.io", "leases", Json::array({lease_name(spec)}),
                        Json::array({"get", "update"})),
                   rule("", "configmaps", Json::array({record_name(spec), progress_name(spec)}),
                        Json::array({"get", "update", "patch"}))});
  return role;
}

Json role_binding(const JobSpec& spec) {
  const std::string name = head_rights_name(spec);
  Json binding = named(spec, kRbacVersion, "RoleBinding", name);
  binding["roleRef"] = Json::object({{"apiGroup", kRbacGroup}, {"kind", "Role"}, {"name", name}});
  const Json head =
      Json::object({{"kind", "ServiceAccount"}, {"name", name}, {"namespace", spec.space}});
  binding["subjects"] = Json::array({head});
  return binding;
}

}  // namespace

std::string head_rights_name(const JobSpec& spec) {
  return fmt::format("{}-{}", spec.name, spec.uid);
}

std::string record_store(const JobSpec& spec) {
  return fmt::format("kubernetes:{}/{}", spec.space, head_rights_name(spec));
}

std::string progress_name(const JobSpec& spec) { return head_rights_name(spec) + "-progress"; }

std::vector<Json> head_rights(const JobSpec& spec) {
  return {account(spec),
          role(spec),
          role_binding(spec),
          named(spec, "coordination.k8s.io/v1", "Lease", lease_name(spec)),
          named(spec, "v1", "ConfigMap", record_name(spec)),
          named(spec, "v1", "ConfigMap", progress_name(spec))};
}

}  // namespace corro::kube
