// KubernetesObject: one object of the Kubernetes API that several processes write, each over the
// version that it has read.
//
//   KubernetesObject lease(client, kube::kLeases, "Lease", {"default", "job7-head"});
//   CORRO_ASSIGN(kube::Json object, lease.get(deadline));
//   object["spec"]["holderIdentity"] = "me";
//   CORRO_ASSIGN(object, lease.put(object, deadline));    // ABORTED: somebody else was faster
//
// Fields that a caller does not change stay as they are, those of others too: labels, owners.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "kube/client/client.h"

namespace corro::coordinator {

/// Blocks in each call until its deadline at most. A failure that may pass by itself is UNAVAILABLE
/// or DEADLINE_EXCEEDED, also if the server is in trouble (500) or has too much to do (429); then an
/// object may have been written or not. PERMISSION_DENIED names the right that is missing.
/// Externally synchronized.
class KubernetesObject {
 public:
  /// `client` outlives this. `kind` is a literal, as `type` is.
  KubernetesObject(kube::Client& client, const kube::ResourceType& type, std::string_view kind,
                   kube::ObjectKey key);

  /// The object; if there is none, one that put() makes.
  [[nodiscard]] Result<kube::Json> get(Time deadline);
  /// Writes the object over the version that it was read as, or makes it. Returns it as it is now.
  /// ABORTED if it has another version by now, was made, or was removed: nothing has changed then.
  [[nodiscard]] Result<kube::Json> put(const kube::Json& object, Time deadline);

 private:
  kube::Client& client_;
  const kube::ResourceType type_;
  const std::string_view kind_;
  const kube::ObjectKey key_;
};

}  // namespace corro::coordinator
