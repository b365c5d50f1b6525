// Client: calls to one API server as one user.
//
//   CORRO_ASSIGN(const KubeAccess access, load_kubeconfig("/home/me/.kube/config"));
//   CORRO_ASSIGN(auto client, Client::connect(access, {}));
//   std::stop_source source;
//   const std::stop_token stop = source.get_token();
//   CORRO_ASSIGN(const Json pod, client->get(kPods, {"default", "job-worker-0"}, stop));
//
// A call is one attempt or several:
//
//   permit    it waits for the rate limit that all calls share, in the order in which they came. If
//             its turn is behind its deadline, it fails at once
//   attempt   the transport sends the request and collects the answer. A success ends the call. An
//             answer over the cap is dropped, and the call fails, although a write is done
//   again     next_delay() (retry.h) says after how long a failed attempt is made again. POST, PUT
//             and a DELETE without uid may do harm twice. They are made again only if the server
//             has refused them, asks for it, or cannot have got them
//   failure   the last attempt's, if it is not to be made again or the deadline is too close
//
// list() makes a call for each page. stream() makes one attempt, and its caller decides what is
// next (watch.h, pod_log.h). upgrade() makes one, and another one with fresh credentials after a
// 401 (websocket.h).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/guarded.h"
#include "base/status.h"
#include "kube/client/credentials.h"
#include "kube/client/json.h"
#include "kube/client/resource.h"
#include "kube/client/retry.h"
#include "kube/client/transport.h"

namespace corro::kube {

struct ClientOptions {
  double qps = 200;    ///< Calls a second, of all threads together, watches' starts included. > 0.
  double burst = 400;  ///< Calls that may be made at once after a pause. >= 1.
  Duration call_timeout = std::chrono::seconds(30);  ///< Of one call with all its attempts.
  size_t most_object_bytes = size_t{2} << 20U;  ///< Larger objects are refused with their name.
  size_t most_page_bytes = size_t{64} << 20U;   ///< Of one page of a list, as text.
  uint32_t page_objects = 500;                  ///< Objects asked for at once, 1 to 10 000.
  std::string field_manager = "corro";          ///< Owner of what is applied; 1 to 128 bytes.
};

/// Time and chance, as the client knows them; tests give their own. Called from any thread.
struct Surroundings {
  std::function<Time()> now = monotonic_now;
  std::function<UnixTime()> wall = wall_now;
  /// In [0, 1).
  std::function<double()> random;
  /// Blocks for so long or until the stop; returns whether it was requested.
  std::function<bool(Duration, const std::stop_token&)> wait;
};
/// The machine's clocks and the kernel's randomness.
[[nodiscard]] Surroundings real_surroundings();

/// When a call ends at the latest: at once when `stop` is requested, at `deadline` of the client's
/// clock, and after options().call_timeout. A stop token alone is one.
struct Until {
  Until(std::stop_token with_stop,  // NOLINT(google-explicit-constructor)
        Time at_deadline = Time::never())
      : stop(std::move(with_stop)), deadline(at_deadline) {}
  std::stop_token stop;
  Time deadline;
};

struct Selector {
  std::string labels = {};  ///< As in kubectl's -l: "app=x,role!=y"; "" selects all.
  std::string fields = {};  ///< "metadata.name=x".
};

struct ObjectList {
  std::vector<Json> objects = {};  ///< Built-in types' items lack kind and apiVersion.
  std::string resource_version = {};
  std::vector<std::string> refused = {};  ///< Names of objects over most_object_bytes.
};

/// A connection that is no longer spoken HTTP on.
struct Upgraded {
  Headers headers = {};  ///< Of the answer 101.
  std::unique_ptr<io::ByteStream> stream = {};
};

struct DeleteOptions {
  std::string uid = {};  ///< Only the object with this uid; 409 (ABORTED) for another.
  std::optional<uint32_t> grace_seconds = {};
  std::string propagation = "Background";  ///< Or "Foreground", "Orphan".
};

/// Thread-safe: any thread may make any call at any time. Every call blocks until its answer, at
/// most call_timeout, and ends with CANCELLED as soon as its stop is requested.
///
/// Failures begin with "PLURAL NAMESPACE/NAME: " and carry the server's reason and message. Codes:
/// NOT_FOUND 404, ALREADY_EXISTS and ABORTED 409, OUT_OF_RANGE 410, INVALID_ARGUMENT 400 and 422,
/// PERMISSION_DENIED 403 (a quota too), UNAUTHENTICATED 401, RESOURCE_EXHAUSTED 429 and objects
/// over the cap, UNAVAILABLE 503 and no answer, DEADLINE_EXCEEDED, CANCELLED. After UNAVAILABLE,
/// DEADLINE_EXCEEDED and CANCELLED the server may have done what create() and replace() asked for:
/// read before the next decision.
class Client {
 public:
  Client(std::unique_ptr<Transport> transport, ClientOptions options, Surroundings surroundings);
  /// A client over TLS. Does not connect yet. INVALID_ARGUMENT for options out of their ranges.
  [[nodiscard]] static Result<std::unique_ptr<Client>> connect(const KubeAccess& access,
                                                               ClientOptions options);

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  [[nodiscard]] const Surroundings& surroundings() const { return surroundings_; }

  [[nodiscard]] Result<Json> get(const ResourceType& type, const ObjectKey& key,
                                 const Until& until);
  /// Lists all objects of a namespace, or of all with "", page by page, all of one moment. A list
  /// whose continuation has expired is begun again once.
  [[nodiscard]] Result<ObjectList> list(const ResourceType& type, const std::string& space,
                                        const Selector& selector, const Until& until);
  /// `key.name` is for messages; the object's own metadata.name counts. `validation` "Strict":
  /// unknown fields are refused, INVALID_ARGUMENT, and not dropped.
  [[nodiscard]] Result<Json> create(const ResourceType& type, const ObjectKey& key,
                                    const Json& object, const Until& until,
                                    std::string validation = "");
  /// Replaces an object; with metadata.resourceVersion only that version, else ABORTED.
  [[nodiscard]] Result<Json> replace(const ResourceType& type, const ObjectKey& key,
                                     const Json& object, const Until& until);
  /// Applies a JSON merge patch (RFC 7396), with subresource "status" to the status.
  [[nodiscard]] Result<Json> merge_patch(const ResourceType& type, const ObjectKey& key,
                                         const Json& patch, std::string_view subresource,
                                         const Until& until);
  /// Server-side apply as options().field_manager, taking over fields of other managers. `object`
  /// has kind, apiVersion and metadata.name, and no managedFields.
  [[nodiscard]] Result<Json> apply(const ResourceType& type, const ObjectKey& key,
                                   const Json& object, std::string_view subresource,
                                   const Until& until);
  /// Deletes one object. NOT_FOUND is a failure here too.
  [[nodiscard]] Status remove(const ResourceType& type, const ObjectKey& key,
                              const DeleteOptions& options, const Until& until);
  /// GET of any path, such as "/version" or "/apis": one JSON object.
  [[nodiscard]] Result<Json> get_path(const std::string& target, const Until& until);

  /// Waits for the rate limit and makes one attempt whose answer comes in pieces: for watches. A
  /// status other than 200 is a failure with the server's words; `retry` then holds Retry-After.
  [[nodiscard]] Status stream(const Request& request, const std::string& name,
                              const ExchangeLimits& limits, const std::stop_token& stop,
                              const std::function<Status(std::string_view)>& receive,
                              std::optional<Duration>& retry);
  /// Waits for the rate limit and asks for another protocol. An answer other than 101 is a failure
  /// with the server's words. The connection must not outlive this client.
  [[nodiscard]] Result<Upgraded> upgrade(const Request& request, const std::string& name,
                                         const Until& until);

 private:
  struct Call {
    Request request;
    std::string name;  ///< Begins each message.
    size_t most_bytes;
    bool may_repeat;
  };
  struct Answer {
    Head head = {};
    std::string body = {};
    bool is_too_long = false;
  };
  [[nodiscard]] Result<std::string> call(const Call& call, const Until& until);
  [[nodiscard]] Result<Json> write(std::string method, std::string path, std::string name,
                                   const Json& body, std::string content_type, const Until& until);
  [[nodiscard]] Result<Json> call_for_object(const Call& call, const Until& until);
  [[nodiscard]] Status wait_for_permit(Time deadline, const std::string& name,
                                       const std::stop_token& stop);
  [[nodiscard]] Exchanged attempt_upgrade(const Request& request, Time deadline,
                                          const std::stop_token& stop, Answer& answer,
                                          Upgraded& upgraded);
  [[nodiscard]] Exchanged attempt(const Call& call, Time deadline, const std::stop_token& stop,
                                  Answer& answer);
  [[nodiscard]] Result<std::string> list_page(const ResourceType& type, const std::string& space,
                                              const Selector& selector, const std::string& next,
                                              const Until& until);

  const std::unique_ptr<Transport> transport_;
  const ClientOptions options_;
  const Surroundings surroundings_;
  Guarded<TokenBucket> bucket_;
};

}  // namespace corro::kube
