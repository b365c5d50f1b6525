// What an agent and its commander say to each other.
#include <algorithm>

#include "agent/messages.h"
#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto message = corro::agent::decode_message(bytes);
  if (!message.ok()) return 0;
  const corro::Bytes again = corro::agent::encode_message(*message);
  CORRO_CHECK(std::ranges::equal(bytes, std::span(again).subspan(sizeof(uint32_t))));
  return 0;
}
