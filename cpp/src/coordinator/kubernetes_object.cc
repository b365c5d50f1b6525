#include "coordinator/kubernetes_object.h"

#include <fmt/format.h>

#include <stop_token>
#include <utility>

namespace corro::coordinator {
namespace {

using kube::Json;

/// A failure of a call as callers of this class know it. `verb` is RBAC's word for the call.
Status failure_of_call(const Status& failed, std::string_view verb) {
  switch (failed.code()) {
    case Code::kPermissionDenied:
      return {failed.code(), fmt::format("no right to {} {}", verb, failed.message())};
    case Code::kInternal:           // 500: such as while etcd's leader changes.
    case Code::kResourceExhausted:  // 429
      return {Code::kUnavailable, failed.message()};
    default:
      return failed;
  }
}

std::string version_of(const Json& object) {
  return kube::text_at(object, {"metadata", "resourceVersion"});
}

kube::Until until_only(Time deadline) { return {std::stop_token(), deadline}; }

}  // namespace

KubernetesObject::KubernetesObject(kube::Client& client, const kube::ResourceType& type,
                                   std::string_view kind, kube::ObjectKey key)
    : client_(client), type_(type), kind_(kind), key_(std::move(key)) {}

Result<Json> KubernetesObject::get(Time deadline) {
  Result<Json> object = client_.get(type_, key_, until_only(deadline));
  if (object.ok()) return object;
  if (object.status().code() != Code::kNotFound) return failure_of_call(object.status(), "get");
  const std::string api = type_.group.empty() ? std::string(type_.version)
                                              : fmt::format("{}/{}", type_.group, type_.version);
  return Json{{"apiVersion", api},
              {"kind", kind_},
              {"metadata", {{"name", key_.name}, {"namespace", key_.space}}}};
}

Result<Json> KubernetesObject::put(const Json& object, Time deadline) {
  const bool is_new = version_of(object).empty();
  Result<Json> written = is_new ? client_.create(type_, key_, object, until_only(deadline))
                                : client_.replace(type_, key_, object, until_only(deadline));
  if (written.ok()) return written;
  const Status refused = failure_of_call(written.status(), is_new ? "create" : "update");
  const bool is_other = refused.code() == (is_new ? Code::kAlreadyExists : Code::kNotFound);
  return is_other ? Status(Code::kAborted, refused.message()) : refused;
}

}  // namespace corro::coordinator
