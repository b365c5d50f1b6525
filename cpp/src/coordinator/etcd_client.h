// EtcdClient: calls to the JSON gateway of an etcd v3 cluster.
//
//   CORRO_ASSIGN(const kube::Json answer, client.call("kv/range", {{"key", key}}, deadline));
//   const std::string revision = kube::text_at(answer, {"header", "revision"});
//
// The gateway writes 64-bit numbers as texts, leaves out what is zero, empty or false, and has keys
// and values in base64.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "kube/client/json.h"
#include "kube/client/transport.h"

namespace corro::coordinator {

/// Blocks in each call until its deadline at most. Externally synchronized.
class EtcdClient {
 public:
  /// A transport for each endpoint of the cluster, one at least. Their failures name the endpoint.
  explicit EtcdClient(std::vector<std::unique_ptr<kube::Transport>> endpoints,
                      std::function<Time()> now = monotonic_now);

  /// Calls a method of version 3, such as "kv/txn", of the endpoint that answered last. An endpoint
  /// that cannot be reached, or does not know the cluster's leader, has its share of the time, and
  /// then the next one is called: a method may be called twice, and has to bear it. A refusal by
  /// etcd has etcd's code and words. If no endpoint answers, UNAVAILABLE with the reasons of all, or
  /// the one code that all agree in.
  [[nodiscard]] Result<kube::Json> call(const std::string& method, const kube::Json& body,
                                        Time deadline);

 private:
  struct Attempt {
    Status status = {};
    kube::Json answer = {};
    bool may_go_on = false;  ///< The next endpoint may know better.
  };
  [[nodiscard]] static Attempt attempt(kube::Transport& endpoint, const kube::Request& request,
                                       Time deadline);

  std::vector<std::unique_ptr<kube::Transport>> endpoints_;
  std::function<Time()> now_;
  size_t first_ = 0;  ///< The endpoint that answered last.
};

}  // namespace corro::coordinator
