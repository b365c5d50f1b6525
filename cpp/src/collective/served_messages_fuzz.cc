// What ranks say to an aggregator beside their data: what is read is what is written.
#include "collective/served_messages.h"

#include <algorithm>
#include <span>

#include "base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto group = corro::collective::decode_served_group(bytes);
  if (group.ok()) CORRO_CHECK(std::ranges::equal(bytes, corro::collective::encode(*group)));
  const auto call = corro::collective::decode_served_call(bytes);
  if (call.ok()) {
    CORRO_CHECK(std::ranges::equal(bytes, corro::collective::encode(*call)));
    (void)corro::collective::request_of(*call, 1);
  }
  return 0;
}
