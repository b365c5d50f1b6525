// open_store(): the record store that a user names.
//
//   CORRO_ASSIGN(auto store, open_store("etcd://host1:2379,host2:2379/corro/job7", variables));
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "base/variables.h"
#include "coord/record_store.h"

namespace corro::coordinator {

/// Opens a store:
///
///   PATH, file:PATH                        a folder that is there (coord/file_store.h)
///   etcd://HOST[:PORT][,HOST[:PORT]...]/PREFIX   an etcd v3 cluster; port 2379 if none is given
///   kubernetes:[NAMESPACE/]NAME   the Lease NAME-head and the ConfigMap NAME-record of a cluster;
///                                 without NAMESPACE in that of the service account or the context
///
/// etcd is spoken to with TLS, as etcdctl does it: ETCDCTL_CACERT is a file with the authorities
/// (else the system's count), ETCDCTL_CERT and ETCDCTL_KEY are this side's certificate and its key.
/// Only where none of them is set, loopback addresses and localhost are spoken to without TLS.
///
/// A Kubernetes cluster is found as `corro operator` finds it (kube/client/credentials.h).
///
/// Reads those files, and looks at a folder; does not connect to etcd or Kubernetes. Addresses are
/// better than names there: a call may last as long as the system's resolver, when it has to connect
/// again. INVALID_ARGUMENT for a text that names no store, UNAUTHENTICATED for files of etcd that
/// cannot be read, and what FileStore::open() and kube::find_access() say: in one line.
[[nodiscard]] Result<std::unique_ptr<coord::RecordStore>> open_store(const std::string& text,
                                                                     const Variables& variables);

}  // namespace corro::coordinator
