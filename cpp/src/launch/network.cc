#include "launch/network.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <charconv>

namespace corro::launch {
namespace {

/// Bits of an address; 0 if the text is none of that family.
int read_address(int family, const std::string& text, std::array<std::byte, 16>& bytes) {
  constexpr int kBitsOf4 = 32;
  constexpr int kBitsOf6 = 128;
  if (inet_pton(family, text.c_str(), bytes.data()) != 1) return 0;
  return family == AF_INET ? kBitsOf4 : kBitsOf6;
}

}  // namespace

Result<Network> Network::parse(std::string_view text) {
  const Status wrong(Code::kInvalidArgument,
                     fmt::format("--network {}: write it as 10.0.0.0/8 or fd00::/8", text));
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos) return wrong;
  Network network;
  const std::string address(text.substr(0, slash));
  network.family_ = address.find(':') == std::string::npos ? AF_INET : AF_INET6;
  const int most = read_address(network.family_, address, network.prefix_);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data() + slash + 1, end, network.bits_);
  const bool fits = network.bits_ >= 0 && network.bits_ <= most;
  if (most == 0 || error != std::errc() || stop != end || !fits) return wrong;
  return network;
}

bool Network::has(const std::string& address) const {
  std::array<std::byte, 16> bytes{};
  if (read_address(family_, address, bytes) == 0) return false;
  for (int bit = 0; bit < bits_; ++bit) {
    const auto mask = static_cast<std::byte>(0x80U >> (static_cast<unsigned>(bit) % 8));
    const auto at = static_cast<size_t>(bit) / 8;
    if ((bytes[at] & mask) != (prefix_[at] & mask)) return false;
  }
  return true;
}

}  // namespace corro::launch
