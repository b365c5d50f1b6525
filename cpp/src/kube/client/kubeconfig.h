// A kubeconfig file, read into what one client needs. Pure: files that it names are read by
// credentials.h.
//
//   CORRO_ASSIGN(const KubeAccess access, read_kubeconfig(text, "/home/me/.kube/config"));
//   connect(access.cluster.host, access.cluster.port, access.user.token);   // access.space
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace corro::kube {

inline constexpr size_t kMostKubeconfigBytes = size_t{4} << 20U;

/// An API server, always reached by TLS with its certificate verified.
struct KubeCluster {
  std::string host = {};       ///< A name or an address, IPv6 without brackets.
  uint16_t port = 443;         ///< 1 to 65535.
  std::string base_path = {};  ///< What stands before "/api": "" or "/k8s/clusters/c-1".
  std::string server_name =
      {};                   ///< Asked for (SNI) and verified; the host unless the file says so.
  std::string ca_pem = {};  ///< Empty with an empty ca_file: the system's authorities.
  std::string ca_file = {};
  std::string url = {};  ///< As the file says: for plug-ins.
};

/// A program that prints credentials (client.authentication.k8s.io).
struct ExecPlugin {
  std::string api_version = {};  ///< ".../v1" or ".../v1beta1".
  std::string command = {};      ///< With a slash: a path; else looked for on PATH.
  std::vector<std::string> arguments = {};
  std::map<std::string, std::string> variables = {};  ///< Added to the environment.
  std::string install_hint = {};                      ///< Said if the command is missing.
  bool wants_cluster = false;                         ///< provideClusterInfo.
};

/// Any of these may be set; a token counts before token_file before the plug-in's.
struct KubeUser {
  std::string token = {};
  std::string token_file = {};
  std::string certificate_pem = {};
  std::string certificate_file = {};
  std::string key_pem = {};
  std::string key_file = {};
  std::optional<ExecPlugin> exec = {};
};

struct KubeAccess {
  KubeCluster cluster = {};
  KubeUser user = {};
  std::string space = "default";  ///< The context's namespace.
};

/// Reads YAML or JSON of at most kMostKubeconfigBytes. Relative file names become relative to the
/// folder of `name`, which is the file's path and begins each message. `context`: "" for
/// current-context. Fields that are not known are passed over, as kubectl does. INVALID_ARGUMENT
/// "name: place: what" for a file that cannot be used; FAILED_PRECONDITION for what corro refuses
/// on purpose: insecure-skip-tls-verify, http://, a password, auth-provider, impersonation,
/// proxy-url.
[[nodiscard]] Result<KubeAccess> read_kubeconfig(std::string_view text, std::string_view name,
                                                 std::string_view context = "");

/// Reads "https://host:port/path" into host, port, base_path, server_name and url. INVALID_ARGUMENT
/// without a place.
[[nodiscard]] Status read_server_url(std::string_view url, KubeCluster& cluster);

/// Decodes base64 (RFC 4648, section 4) with padding; line ends are passed over. Nothing for other
/// text.
[[nodiscard]] std::optional<std::string> decode_base64(std::string_view text);

}  // namespace corro::kube
