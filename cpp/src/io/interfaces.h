// This host's addresses, and those of others by their names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "io/socket.h"

namespace corro::io {

/// A numeric address of this host, without a port.
struct OwnAddress {
  std::string interface;  ///< "eth0".
  std::string address;
};

/// The name that this host has itself.
[[nodiscard]] std::string host_name();

/// Addresses of this host's interfaces that are up, IPv4 first; loopback and link-local ones, which
/// lead nowhere from elsewhere, are left out.
[[nodiscard]] std::vector<OwnAddress> own_addresses();

/// All addresses of a name, or the numeric address itself; blocks as long as the resolver does.
/// NOT_FOUND if there is none.
[[nodiscard]] Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port);

/// The own address from which packets to another one leave, as text without a port; "" if none
/// leads there. Sends nothing.
[[nodiscard]] std::string own_address_towards(const SocketAddress& other);

}  // namespace corro::io
