// InterfaceRule: which network interfaces the variables of others allow.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace corro {

/// Immutable value.
struct InterfaceRule {
  std::string variable;  ///< GLOO_SOCKET_IFNAME, HOROVOD_GLOO_IFACE or NCCL_SOCKET_IFNAME.
  std::string value;     ///< As it was set.

  /// Gloo's and Horovod's are names: "eth0,eth1". NCCL's are beginnings of names, "eth", unless a
  /// "=" stands in front, "=eth0,eth1"; with "^" it is all others: "^docker,lo", "^=eth3".
  [[nodiscard]] bool admits(const std::string& interface) const;
  /// "NAME=VALUE".
  [[nodiscard]] std::string text() const { return variable + "=" + value; }
};

/// The first of these variables that is set and not empty, in the order above.
[[nodiscard]] std::optional<InterfaceRule> find_interface_rule(
    const std::function<std::optional<std::string>(const char* name)>& lookup);

}  // namespace corro
