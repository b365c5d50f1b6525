// What a credential plug-in is told and what it prints (client.authentication.k8s.io). Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "kube/client/credentials.h"
#include "kube/client/kubeconfig.h"

namespace corro::kube {

inline constexpr size_t kMostExecOutputBytes = size_t{1} << 20U;

/// The value of KUBERNETES_EXEC_INFO: one line of JSON. With the cluster if the plug-in wants it.
[[nodiscard]] std::string exec_info(const ExecPlugin& plugin, const KubeCluster& cluster);

/// Reads an ExecCredential of at most kMostExecOutputBytes. `name` begins each message, which never
/// holds the output. INVALID_ARGUMENT for text that is no ExecCredential of plugin.api_version, for
/// one without token and certificate, and for a certificate without key.
[[nodiscard]] Result<Credential> read_exec_credential(std::string_view text, std::string_view name,
                                                      const ExecPlugin& plugin);

}  // namespace corro::kube
