#include "kube/reconcile/time_text.h"

#include "base/unix_time.h"

namespace corro::kube {

std::string time_text(KubeTime time) { return rfc3339_seconds(time); }

std::optional<KubeTime> parse_time(std::string_view text) {
  const auto time = parse_rfc3339(text);
  if (!time) return {};
  return std::chrono::floor<std::chrono::seconds>(*time);
}

std::optional<KubeTime> time_in(const Json& object, std::string_view field) {
  if (!object.is_object()) return {};
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) return {};
  return parse_time(found->get_ref<const std::string&>());
}

}  // namespace corro::kube
