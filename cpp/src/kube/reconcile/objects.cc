#include "kube/reconcile/objects.h"

#include <algorithm>

#include <fmt/format.h>

#include "kube/job/hosts.h"
#include "kube/reconcile/injection.h"

namespace corro::kube {
namespace {

Json object_of(const char* api_version, const char* kind, Json metadata) {
  return Json::object(
      {{"apiVersion", api_version}, {"kind", kind}, {"metadata", std::move(metadata)}});
}

}  // namespace

Json metadata_of(const JobSpec& spec, const std::string& name, const Labels& labels) {
  const Json owner = Json::object({{"apiVersion", spec.api_version},
                                   {"kind", spec.kind_name()},
                                   {"name", spec.name},
                                   {"uid", spec.uid},
                                   {"controller", true},
                                   {"blockOwnerDeletion", true}});
  return Json::object({{"name", name},
                       {"namespace", spec.space},
                       {"labels", labels},
                       {"ownerReferences", Json::array({owner})}});
}

Json head_service(const JobSpec& spec) {
  Json service =
      object_of("v1", "Service", metadata_of(spec, head_service_name(spec), object_labels(spec)));
  const Json port =
      Json::object({{"name", "corro"}, {"port", kHeadPort}, {"targetPort", kHeadPort}});
  service["spec"] = Json::object(
      {{"type", "ClusterIP"}, {"publishNotReadyAddresses", true}, {"ports", Json::array({port})}});
  service["spec"]["selector"] =
      Labels{{std::string(kUidLabel), spec.uid},
             {std::string(kRoleLabel), std::string(name_of(Member::kHead))}};
  return service;
}

Json host_service(const JobSpec& spec) {
  Json service = object_of("v1", "Service", metadata_of(spec, spec.name, object_labels(spec)));
  service["spec"] = Json::object({{"clusterIP", "None"}, {"selector", service_selector(spec)}});
  if (!spec.is_mpi() || spec.launcher_is_worker) service["spec"]["publishNotReadyAddresses"] = true;
  return service;
}

Json config_map(const JobSpec& spec, const std::vector<int>& running, const Options& options) {
  Json map =
      object_of("v1", "ConfigMap", metadata_of(spec, config_name(spec), object_labels(spec)));
  Json data = Json::object({{"hostfile", hostfile_text(spec, options.cluster_domain)}});
  data["discover_hosts.sh"] = discover_hosts_text(spec, running, options.cluster_domain);
  if (spec.is_old_mpi()) data["kubexec.sh"] = kubexec_text(kRemoteShell);
  map["data"] = std::move(data);
  return map;
}

Json credentials_secret(const JobSpec& spec, int part) {
  Json secret =
      object_of("v1", "Secret",
                metadata_of(spec, secret_name(spec, part * kMembersInSecret), object_labels(spec)));
  secret["type"] = "Opaque";
  secret["immutable"] = true;
  return secret;
}

Json ssh_secret(const JobSpec& spec) {
  Json secret =
      object_of("v1", "Secret", metadata_of(spec, ssh_secret_name(spec), object_labels(spec)));
  secret["type"] = "kubernetes.io/ssh-auth";
  return secret;
}

Json network_policy(const JobSpec& spec) {
  Json policy = object_of("networking.k8s.io/v1", "NetworkPolicy",
                          metadata_of(spec, spec.name, object_labels(spec)));
  const Json own = Json::object({{"matchLabels", Labels{{std::string(kUidLabel), spec.uid}}}});
  const Json from = Json::array({Json::object({{"podSelector", own}})});
  policy["spec"] = Json::object({{"podSelector", own},
                                 {"policyTypes", Json::array({"Ingress"})},
                                 {"ingress", Json::array({Json::object({{"from", from}})})}});
  return policy;
}

std::vector<std::string> members_of_secret(const JobSpec& spec, int part) {
  std::vector<std::string> members;
  if (part == 0) members.push_back(member_key(Member::kHead, 0));
  if (part == 0 && spec.launcher) members.push_back(member_key(Member::kLauncher, 0));
  for (int i = 0; i < kMembersInSecret; ++i)
    members.push_back(member_key(Member::kWorker, part * kMembersInSecret + i));
  return members;
}

std::string hash_of(const Json& value) {
  uint64_t hash = 0xcbf29ce484222325U;
  for (const char letter : value.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    hash ^= static_cast<unsigned char>(letter);
    hash *= 0x100000001b3U;
  }
  return fmt::format("{:016x}", hash);
}

}  // namespace corro::kube
