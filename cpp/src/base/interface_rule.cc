#include "base/interface_rule.h"

#include <algorithm>
#include <string_view>

namespace corro {
namespace {

constexpr std::string_view kNccl = "NCCL_SOCKET_IFNAME";

/// Whether a name is in the list, or one of the list is its beginning.
bool is_listed(std::string_view list, std::string_view name, bool exactly) {
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    const std::string_view one = list.substr(0, end);
    if (!one.empty() && (exactly ? name == one : name.starts_with(one))) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

bool take(std::string_view& text, char sign) {
  const bool there = text.starts_with(sign);
  if (there) text.remove_prefix(1);
  return there;
}

}  // namespace

bool InterfaceRule::admits(const std::string& interface) const {
  std::string_view list = value;
  if (variable != kNccl) return is_listed(list, interface, true);
  const bool others = take(list, '^');
  const bool exactly = take(list, '=');
  return is_listed(list, interface, exactly) != others;
}

std::optional<InterfaceRule> find_interface_rule(
    const std::function<std::optional<std::string>(const char* name)>& lookup) {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE", kNccl.data()}) {
    auto value = lookup(name);
    if (value && !value->empty())
      return InterfaceRule{.variable = name, .value = std::move(*value)};
  }
  return std::nullopt;
}

}  // namespace corro
