// What other ranks and the user leave in files and stores, and short records: peer records,
// secrets, news of lost hosts, introductions.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "wire/digest.h"
#include "wire/joining_packet.h"
#include "wire/liveness_news.h"
#include "wire/peer_record.h"
#include "wire/secret.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  const auto record = corro::wire::decode_peer_record(bytes);
  if (record.ok()) {
    CORRO_CHECK(std::ranges::equal(bytes, corro::wire::encode_peer_record(*record)));
  }
  const auto news = corro::wire::decode_liveness_news(bytes);
  if (news.ok()) CORRO_CHECK(std::ranges::equal(bytes, corro::wire::encode_liveness_news(*news)));
  const auto packet = corro::wire::decode_joining_packet(bytes);
  if (packet.ok())
    CORRO_CHECK(std::ranges::equal(bytes, corro::wire::encode_joining_packet(*packet)));
  if (size >= corro::wire::kJoiningHeaderBytes) {
    const auto whole =
        corro::wire::joining_packet_bytes(bytes.first<corro::wire::kJoiningHeaderBytes>());
    CORRO_CHECK(!packet.ok() || (whole.ok() && *whole == size));
    CORRO_CHECK(!whole.ok() || *whole <= corro::wire::kMaxJoiningPacket);
  }
  const auto failure = corro::wire::decode_joining_failure(bytes);
  if (failure.ok()) {
    CORRO_CHECK(std::ranges::equal(bytes, corro::wire::encode_joining_failure(*failure)));
  }
  const auto secret = corro::wire::parse_secret({reinterpret_cast<const char*>(data), size});
  if (secret.ok()) {
    const auto again = corro::wire::parse_secret(corro::wire::to_hex(*secret));
    CORRO_CHECK(again.ok() && *again == *secret);
  }
  return 0;
}
