// The identity of a client: a bearer token, a certificate, or both, and where they come from.
//
//   UserCredentials credentials(access.user, access.cluster);
//   CORRO_ASSIGN(const Credential now, credentials.current(stop));
//   request.set("Authorization", "Bearer " + now.token);
#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>

#include "base/guarded.h"
#include "base/status.h"
#include "base/unix_time.h"
#include "base/variables.h"
#include "kube/client/kubeconfig.h"

namespace corro::kube {

/// Immutable value. Its texts are secret: they never stand in a message.
struct Credential {
  std::string token = {};            ///< Empty: no Authorization header.
  std::string certificate_pem = {};  ///< Empty: no client certificate.
  std::string key_pem = {};          ///< Set with the certificate.
  std::optional<UnixTime> expires = {};
  friend bool operator==(const Credential&, const Credential&) = default;
};

/// Where credentials come from. Implementations are thread-safe.
class Credentials {
 public:
  virtual ~Credentials() = default;
  /// The credential to show now. May block to read files or to run a plug-in, never beyond its own
  /// limits; CANCELLED once `stop` is requested. UNAUTHENTICATED with the reason if there is none.
  [[nodiscard]] virtual Result<Credential> current(const std::stop_token& stop) = 0;
  /// The server answered 401 to `shown`: current() asks its source again before it answers next.
  virtual void refused(const Credential& shown) = 0;
};

/// Those of a kubeconfig's user. Texts in the file never change. Files (tokens, certificates) are
/// read again once a minute and after a 401, so rotation by the kubelet or by an administrator is
/// seen. A plug-in runs when there is no credential yet, ten seconds before the last one expires,
/// and after a 401. Thread-safe; one thread at a time runs the plug-in and the others wait for it.
class UserCredentials final : public Credentials {
 public:
  /// `cluster` is told to a plug-in that asks for it. `clock` is called from any thread.
  UserCredentials(KubeUser user, KubeCluster cluster, std::function<UnixTime()> clock = wall_now);

  [[nodiscard]] Result<Credential> current(const std::stop_token& stop) override;
  void refused(const Credential& shown) override;

 private:
  struct State {
    std::optional<Credential> last = {};
    UnixTime read_at = {};
    bool is_asking = false;  ///< A thread is at the source; it alone.
  };
  [[nodiscard]] bool is_fresh(const State& state) const;
  [[nodiscard]] Result<Credential> ask(const std::stop_token& stop) const;
  [[nodiscard]] Result<Credential> read_texts_and_files() const;

  const KubeUser user_;
  const KubeCluster cluster_;
  const std::function<UnixTime()> clock_;
  Guarded<State> state_;
};

/// Adds the files that the kubelet mounts into a pod: token and ca.crt in `folder`. `host` and
/// `port` are KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT. Reads the CA; blocks. NOT_FOUND
/// outside of a cluster.
[[nodiscard]] Result<KubeAccess> in_cluster_access(
    const std::string& host, const std::string& port,
    const std::string& folder = "/var/run/secrets/kubernetes.io/serviceaccount");

/// Reads a kubeconfig file and the files of its CA. `context`: "" for the current one. Blocks.
/// INVALID_ARGUMENT "FILE: place: what"; NOT_FOUND if a file is missing.
[[nodiscard]] Result<KubeAccess> load_kubeconfig(const std::string& path,
                                                 const std::string& context = "");

/// Finds the server and the user as kubectl does, a pod's service account first: `kubeconfig` if
/// that names a file, else what in_cluster_access() finds, else the file that KUBECONFIG names, else
/// ~/.kube/config. `context` is one of the file. Blocks.
[[nodiscard]] Result<KubeAccess> find_access(const Variables& environment,
                                             const std::string& kubeconfig = "",
                                             const std::string& context = "");

}  // namespace corro::kube
