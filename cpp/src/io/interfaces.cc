#include "io/interfaces.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>

namespace corro::io {
namespace {

/// Whether an address is worth a dial from elsewhere.
bool leads_here(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto host = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
    return (host >> 24U) != 127 && (host >> 16U) != 0xA9FE;
  }
  if (address->sa_family != AF_INET6) return false;
  const in6_addr& host = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  return !IN6_IS_ADDR_LOOPBACK(&host) && !IN6_IS_ADDR_LINKLOCAL(&host);
}

SocketAddress from(const sockaddr* address, socklen_t length) {
  sockaddr_storage storage{};
  std::memcpy(&storage, address, length);
  return SocketAddress::from(storage);
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::vector<OwnAddress> own_addresses() {
  std::vector<OwnAddress> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const int family : {AF_INET, AF_INET6}) {
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != family) continue;
      const bool up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
      if (up && leads_here(one->ifa_addr))
        found.push_back(
            {.interface = one->ifa_name, .address = from(one->ifa_addr, length).host()});
    }
  }
  freeifaddrs(all);
  return found;
}

Result<std::vector<SocketAddress>> resolve(const std::string& host, uint16_t port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &list);
  if (error != 0)
    return Status(Code::kNotFound, fmt::format("host {}: {}", host, gai_strerror(error)));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = list; one != nullptr; one = one->ai_next)
    addresses.push_back(from(one->ai_addr, one->ai_addrlen));
  return addresses;
}

std::string own_address_towards(const SocketAddress& other) {
  const Fd probe(socket(other.get()->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!probe.valid() || connect(probe.get(), other.get(), other.length()) != 0) return "";
  const auto here = local_address(probe.get());
  return here.ok() ? here->host() : "";
}

}  // namespace corro::io
