// Transport over TLS with connections that are kept (HTTP/1.1); without TLS only on this machine.
//
//   CORRO_ASSIGN(auto transport, make_https_transport(access.cluster, credentials, {}));
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "kube/client/credentials.h"
#include "kube/client/kubeconfig.h"
#include "kube/client/transport.h"

namespace corro::kube {

struct HttpsOptions {
  std::string user_agent = "corro";
  Duration most_idle = std::chrono::seconds(30);  ///< Older connections are not used again.
  size_t most_head_bytes = size_t{64} << 10U;     ///< Longer heads of answers are DATA_LOSS.
};

/// Makes the transport; connects with the first exchange. `cluster.ca_pem` holds the authorities
/// (ca_file has been read); empty: the system's. The server's certificate and name are verified
/// always: there is no option against it. Each thread inside of exchange() has a connection of its
/// own, and the threads wait on their sockets themselves: the transport has no thread, but a host
/// that is a name is looked up by the system's resolver, which may outlast a stop by its own
/// time-out. INVALID_ARGUMENT for authorities that are no PEM.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_https_transport(
    const KubeCluster& cluster, std::shared_ptr<Credentials> credentials, HttpsOptions options);

/// Makes a transport without TLS and without credentials to a server on this machine: an etcd that
/// nobody else reaches, as in tests. `address` is in 127.0.0.0/8 or ::1; INVALID_ARGUMENT for any
/// other, and for names. What is sent there never leaves the machine, so only its administrator can
/// read or change it on its way; anywhere else TLS alone keeps others from that.
[[nodiscard]] Result<std::unique_ptr<Transport>> make_loopback_transport(const std::string& address,
                                                                         uint16_t port,
                                                                         HttpsOptions options);

}  // namespace corro::kube
