// For tests: an API server with Leases and ConfigMaps, as far as a record store sees it, and what can
// happen on the way to it and back.
//
//   const auto server = std::make_shared<FakeApiServer>();
//   server->fate = [](const std::string& call) {
//     return call == "PUT leases/job7-head" ? FakeApiServer::Fate::kLate : FakeApiServer::Fate::kDone;
//   };
//   FakeApiTransport transport(server);
//   server->deliver();
#pragma once

#include <fmt/format.h>

#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "kube/client/json.h"
#include "kube/client/kubeconfig.h"
#include "kube/client/transport.h"

namespace corro::coordinator {

/// Objects have a resourceVersion, which each change of them raises, and a uid. A write that changes
/// nothing leaves the version as it is, as the real one does. Of validation there is what the store
/// could meet. Externally synchronized.
class FakeApiServer {
 public:
  enum class Fate : uint8_t {
    kDone,
    kLost,        ///< Never arrives; the sender cannot know.
    kUnanswered,  ///< Is carried out; the answer is lost.
    kLate,        ///< Is carried out by deliver(); there is no answer.
    kForbidden,   ///< 403
    kBroken,      ///< 500, and nothing is done.
    kBusy,        ///< 429
  };
  struct Answer {
    int status = 200;
    kube::Json body = {};
  };

  /// What happens to a call: "PUT leases/job7-head", "POST configmaps/job7-record". It may call others
  /// first.
  std::function<Fate(const std::string& call)> fate = [](const std::string& /*call*/) {
    return Fate::kDone;
  };
  /// By "leases/job7-head".
  std::map<std::string, kube::Json> objects = {};

  [[nodiscard]] Answer answer(const kube::Request& request) {
    const std::string place = place_of(request);
    if (request.method == "GET") return get(place);
    const kube::Json object = kube::Json::parse(request.body);
    return request.method == "POST" ? create(place, object) : replace(place, object);
  }
  [[nodiscard]] static std::string call_of(const kube::Request& request) {
    return request.method + " " + place_of(request);
  }
  /// Changes an object as an administrator does, whatever its version is.
  void edit(const std::string& place, const std::function<void(kube::Json&)>& change) {
    change(objects.at(place));
    number(objects.at(place));
  }
  /// The requests that come late come now.
  void deliver() {
    for (const kube::Request& request : std::exchange(late, {})) (void)answer(request);
  }
  std::vector<kube::Request> late = {};

  [[nodiscard]] static Answer refusal(int status, const std::string& reason,
                                      const std::string& message = "as it was told to") {
    return {status,
            {{"kind", "Status"}, {"code", status}, {"reason", reason}, {"message", message}}};
  }

 private:
  /// "leases/job7-head", of a POST too, whose path has no name.
  static std::string place_of(const kube::Request& request) {
    std::string path = request.target.substr(0, request.target.find('?'));
    if (request.method == "POST") {
      path += "/" + kube::text_at(kube::Json::parse(request.body), {"metadata", "name"});
    }
    const size_t name = path.rfind('/');
    return path.substr(path.rfind('/', name - 1) + 1);
  }
  static std::string version_of(const kube::Json& object) {
    return kube::text_at(object, {"metadata", "resourceVersion"});
  }
  void number(kube::Json& object) {
    object["metadata"]["resourceVersion"] = std::to_string(++version_);
  }
  static bool is_valid(const kube::Json& object) {
    size_t bytes = 0;
    const kube::Json data = object.value("data", kube::Json::object());
    for (const kube::Json& value : data) bytes += value.get<std::string>().size();
    const kube::Json binary = object.value("binaryData", kube::Json::object());
    for (const kube::Json& value : binary) {
      bytes += kube::decode_base64(value.get<std::string>()).value().size();
    }
    const kube::Json* duration = kube::value_at(object, {"spec", "leaseDurationSeconds"});
    return bytes <= size_t{1} << 20U && (duration == nullptr || duration->get<int>() > 0);
  }
  Answer get(const std::string& place) {
    const auto found = objects.find(place);
    return found != objects.end() ? Answer{200, found->second} : refusal(404, "NotFound", place);
  }
  Answer create(const std::string& place, kube::Json object) {
    if (objects.contains(place)) return refusal(409, "AlreadyExists", place);
    if (!is_valid(object)) return refusal(422, "Invalid", place);
    number(object);
    object["metadata"]["uid"] = fmt::format("uid-{}", version_);
    objects[place] = object;
    return {201, object};
  }
  Answer replace(const std::string& place, kube::Json object) {
    const auto found = objects.find(place);
    if (found == objects.end()) return refusal(404, "NotFound", place);
    if (version_of(object) != version_of(found->second)) return refusal(409, "Conflict", place);
    if (!is_valid(object)) return refusal(422, "Invalid", place);
    if (object != found->second) number(object);
    found->second = object;
    return {200, object};
  }

  uint64_t version_ = 100;
};

/// One client's way to the server.
class FakeApiTransport final : public kube::Transport {
 public:
  /// Shared by all clients and the test.
  explicit FakeApiTransport(std::shared_ptr<FakeApiServer> server) : server_(std::move(server)) {}

  [[nodiscard]] kube::Exchanged exchange(const kube::Request& request,
                                         const kube::ExchangeLimits& /*limits*/,
                                         const std::stop_token& /*stop*/,
                                         const kube::Receive& receive) override {
    using Fate = FakeApiServer::Fate;
    const kube::Exchanged silence{{Code::kDeadlineExceeded, "no answer in time"}, true};
    switch (server_->fate(FakeApiServer::call_of(request))) {
      case Fate::kDone:
        return tell(server_->answer(request), receive);
      case Fate::kLost:
        return silence;
      case Fate::kUnanswered:
        (void)server_->answer(request);
        return silence;
      case Fate::kLate:
        server_->late.push_back(request);
        return silence;
      case Fate::kForbidden:
        return tell(FakeApiServer::refusal(403, "Forbidden"), receive);
      case Fate::kBroken:
        return tell(FakeApiServer::refusal(500, "InternalError"), receive);
      case Fate::kBusy:
        return tell(FakeApiServer::refusal(429, "TooManyRequests"), receive);
    }
    return silence;
  }
  /// No record is in a stream.
  [[nodiscard]] kube::Exchanged upgrade(const kube::Request& /*request*/,
                                        const kube::ExchangeLimits& /*limits*/,
                                        const std::stop_token& /*stop*/,
                                        const kube::Receive& /*receive*/,
                                        std::unique_ptr<io::ByteStream>& /*stream*/) override {
    return {.status = {Code::kUnimplemented, "no streams"}};
  }

 private:
  static kube::Exchanged tell(const FakeApiServer::Answer& answer, const kube::Receive& receive) {
    const kube::Head head{answer.status, {}};
    Status status = receive(head, {});
    if (status.ok()) status = receive(head, kube::text_of(answer.body));
    return {status, true};
  }

  const std::shared_ptr<FakeApiServer> server_;
};

}  // namespace corro::coordinator
