#include "kube/client/exec_credential.h"

#include <fmt/format.h>

#include "kube/client/json.h"

namespace corro::kube {

std::string exec_info(const ExecPlugin& plugin, const KubeCluster& cluster) {
  Json spec = {{"interactive", false}};
  if (plugin.wants_cluster) {
    spec["cluster"] = {{"server", cluster.url}, {"tls-server-name", cluster.server_name}};
    if (!cluster.ca_pem.empty()) {
      spec["cluster"]["certificate-authority-data"] = encode_base64(cluster.ca_pem);
    }
  }
  const Json info = {
      {"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", std::move(spec)}};
  return text_of(info);
}

Result<Credential> read_exec_credential(std::string_view text, std::string_view name,
                                        const ExecPlugin& plugin) {
  const auto refuse = [name](std::string_view what) {
    return Status(Code::kInvalidArgument, fmt::format("{}: {}", name, what));
  };
  CORRO_ASSIGN(const Json top, parse_object(text, name, kMostExecOutputBytes));
  if (text_at(top, {"kind"}) != "ExecCredential") return refuse("kind: must be ExecCredential");
  if (text_at(top, {"apiVersion"}) != plugin.api_version) {
    return refuse(
        fmt::format("apiVersion: must be {}, as the kubeconfig says", plugin.api_version));
  }
  Credential credential;
  credential.token = text_at(top, {"status", "token"});
  credential.certificate_pem = text_at(top, {"status", "clientCertificateData"});
  credential.key_pem = text_at(top, {"status", "clientKeyData"});
  if (credential.token.find_first_of("\r\n") != std::string::npos) {
    return refuse("status.token: must be one line");
  }
  if (credential.certificate_pem.empty() != credential.key_pem.empty()) {
    return refuse("status: clientCertificateData and clientKeyData come together");
  }
  if (credential.token.empty() && credential.certificate_pem.empty()) {
    return refuse("status: has neither token nor clientCertificateData");
  }
  const std::string expires = text_at(top, {"status", "expirationTimestamp"});
  if (!expires.empty()) {
    credential.expires = parse_rfc3339(expires);
    if (!credential.expires) return refuse("status.expirationTimestamp: is no RFC 3339 time");
  }
  return credential;
}

}  // namespace corro::kube
