// Both sides of the handshake, and the local hello, with any bytes in pieces of any size: nobody
// who does not know the secret gets in, and never is more read than wanted.
#include <algorithm>

#include "base/check.h"
#include "wire/handshake.h"

namespace {

using corro::BytesView;

template <typename Side>
void feed_all(Side& side, BytesView bytes, size_t piece) {
  while (!bytes.empty() && side.wanted() > 0) {
    const size_t count = std::min({piece, bytes.size(), side.wanted()});
    if (!side.feed(bytes.first(count)).ok()) return;
    (void)side.take_output();
    bytes = bytes.subspan(count);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const size_t piece = 1 + data[0] % 80;
  const auto bytes = std::as_bytes(std::span(data, size)).subspan(1);
  const corro::wire::Secret secret{};
  const corro::wire::HandshakeIdentity identity{.rank = 1, .size = 4};
  corro::wire::ServerHandshake server(identity, secret);
  feed_all(server, bytes, piece);
  CORRO_CHECK(!server.done());  // The nonce is new each time: no input can hold its proof.
  corro::wire::ClientHandshake client(identity, 0, secret);
  (void)client.take_output();
  feed_all(client, bytes, piece);
  CORRO_CHECK(!client.done());
  const auto hello = corro::wire::decode_local_hello(bytes);
  if (hello.ok()) CORRO_CHECK(std::ranges::equal(bytes, corro::wire::encode_local_hello(*hello)));
  return 0;
}
