// SocketAddress::parse() with any text: what it accepts reads back as itself.
#include <string_view>

#include "io/socket.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)corro::io::SocketAddress::parse_host(text, 80);
  const auto address = corro::io::SocketAddress::parse(text);
  if (!address.ok()) return 0;
  const auto again = corro::io::SocketAddress::parse(address->to_string());
  CORRO_CHECK(again.ok() && again->to_string() == address->to_string(), address->to_string());
  return 0;
}
