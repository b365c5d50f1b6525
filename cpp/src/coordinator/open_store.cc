#include "coordinator/open_store.h"

#include <fmt/format.h>

#include <filesystem>

#include <utility>
#include <vector>

#include "coord/file_store.h"
#include "coordinator/etcd_store.h"
#include "coordinator/kubernetes_store.h"
#include "io/files.h"
#include "kube/client/client.h"
#include "kube/client/credentials.h"
#include "kube/client/https_transport.h"
#include "kube/client/kubeconfig.h"

namespace corro::coordinator {
namespace {

constexpr std::string_view kFile = "file:";
constexpr std::string_view kEtcd = "etcd://";
constexpr std::string_view kKubernetes = "kubernetes:";
constexpr std::string_view kEtcdPort = ":2379";
constexpr size_t kMostAuthorityBytes = size_t{1} << 20U;

using Store = std::unique_ptr<coord::RecordStore>;
using Endpoint = std::unique_ptr<kube::Transport>;

/// The files that etcdctl is told by the environment.
struct EtcdFiles {
  std::string authorities;
  std::string certificate;
  std::string key;
  [[nodiscard]] bool has_any() const {
    return !authorities.empty() || !certificate.empty() || !key.empty();
  }
};

/// This side's certificate, and the authorities that etcd's is checked against.
struct EtcdTrust {
  bool has_files = false;
  std::string ca_pem = {};
  kube::KubeUser user = {};
};

Result<EtcdTrust> read_trust(const EtcdFiles& files) {
  if (files.certificate.empty() != files.key.empty()) {
    return Status(Code::kInvalidArgument,
                  "ETCDCTL_CERT and ETCDCTL_KEY belong together: set both or none");
  }
  EtcdTrust trust;
  trust.has_files = files.has_any();
  trust.user.certificate_file = files.certificate;
  trust.user.key_file = files.key;
  if (!files.authorities.empty()) {
    Result<std::string> text = io::read_file(files.authorities, kMostAuthorityBytes);
    if (!text.ok()) {
      return Status(Code::kUnauthenticated, fmt::format("ETCDCTL_CACERT: {}: {}", files.authorities,
                                                        text.status().message()));
    }
    trust.ca_pem = std::move(*text);
  }
  // Files that cannot be read are told now, and not by the first call.
  CORRO_TRY(kube::UserCredentials(trust.user, {}).current({}).status());
  return trust;
}

Result<Endpoint> make_endpoint(const std::string& address, const EtcdTrust& trust) {
  const size_t bracket = address.rfind(']');  // Of an IPv6 address, which has colons of its own.
  const size_t port = address.find(':', bracket == std::string::npos ? 0 : bracket);
  kube::KubeCluster cluster;
  CORRO_TRY(kube::read_server_url(
      fmt::format("https://{}{}", address, port == std::string::npos ? kEtcdPort : ""), cluster));
  if (!trust.has_files) {
    const std::string host = cluster.host == "localhost" ? "127.0.0.1" : cluster.host;
    Result<Endpoint> plain = kube::make_loopback_transport(host, cluster.port, {});
    if (plain.ok()) return plain;
  }
  cluster.ca_pem = trust.ca_pem;
  return kube::make_https_transport(
      cluster, std::make_shared<kube::UserCredentials>(trust.user, cluster), {});
}

Result<Store> open_etcd(std::string_view text, const Variables& variables) {
  const size_t slash = text.find('/');
  std::string_view prefix = slash == std::string_view::npos ? "" : text.substr(slash);
  while (prefix.ends_with('/')) prefix.remove_suffix(1);
  if (slash == 0 || prefix.empty()) {
    return Status(Code::kInvalidArgument, "must be etcd://HOST:PORT[,HOST:PORT...]/PREFIX");
  }
  CORRO_ASSIGN(const EtcdTrust trust, read_trust({value_of(variables, "ETCDCTL_CACERT"),
                                                  value_of(variables, "ETCDCTL_CERT"),
                                                  value_of(variables, "ETCDCTL_KEY")}));
  std::vector<Endpoint> endpoints;
  for (std::string_view rest = text.substr(0, slash); !rest.empty() || endpoints.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    CORRO_ASSIGN(Endpoint endpoint, make_endpoint(std::string(rest.substr(0, comma)), trust));
    endpoints.push_back(std::move(endpoint));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return Store(std::make_unique<EtcdStore>(EtcdClient(std::move(endpoints)), std::string(prefix)));
}

Result<Store> open_kubernetes(const std::string& text, const Variables& variables) {
  const size_t slash = text.find('/');
  const bool has_space = slash != std::string::npos;
  kube::ObjectKey job{text.substr(0, has_space ? slash : 0),
                      text.substr(has_space ? slash + 1 : 0)};
  if (job.name.empty() || (has_space && job.space.empty())) {
    return Status(Code::kInvalidArgument, "must be kubernetes:[NAMESPACE/]NAME");
  }
  CORRO_ASSIGN(const kube::KubeAccess access, kube::find_access(variables));
  if (!has_space) job.space = access.space;
  CORRO_TRY(kube::path_of(kube::kConfigMaps, {job.space, job.name + "-record"}).status());
  CORRO_ASSIGN(auto client, kube::Client::connect(access, {}));
  return Store(std::make_unique<KubernetesStore>(std::move(client), job));
}

Result<Store> open_file(const std::string& path) {
  if (path.empty()) return Status(Code::kInvalidArgument, "a store's path is empty");
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) {
    return Status(Code::kNotFound, fmt::format("'{}' is no folder; make it first, where all "
                                               "coordinators see it",
                                               path));
  }
  CORRO_ASSIGN(auto store, coord::FileStore::open(path));
  return Store(std::move(store));
}

}  // namespace

Result<Store> open_store(const std::string& text, const Variables& variables) {
  if (text.starts_with(kFile)) return open_file(text.substr(kFile.size()));
  if (text.starts_with(kEtcd)) {
    Result<Store> store = open_etcd(std::string_view(text).substr(kEtcd.size()), variables);
    return store.ok() ? std::move(store) : store.status().with_context(text);
  }
  if (text.starts_with(kKubernetes)) {
    Result<Store> store = open_kubernetes(text.substr(kKubernetes.size()), variables);
    return store.ok() ? std::move(store) : store.status().with_context(text);
  }
  if (text.find("://") != std::string::npos) {
    return Status(Code::kInvalidArgument, text +
                                              ": a store is a PATH, file:PATH, "
                                              "etcd://HOST:PORT/PREFIX, or "
                                              "kubernetes:[NAMESPACE/]NAME");
  }
  return open_file(text);
}

}  // namespace corro::coordinator
