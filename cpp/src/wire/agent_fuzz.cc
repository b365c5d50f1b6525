// decode_agent_message() with any packet: what it accepts encodes to the same bytes, and says
// itself how long it is.
#include <algorithm>

#include "base/check.h"
#include "wire/agent_protocol.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto packet = std::as_bytes(std::span(data, size));
  const auto message = corro::wire::decode_agent_message(packet);
  if (message.ok()) {
    CORRO_CHECK(std::ranges::equal(packet, corro::wire::encode_agent_message(*message)));
    CORRO_CHECK(corro::wire::agent_packet_bytes(packet).value() == size);
  }
  return 0;
}
