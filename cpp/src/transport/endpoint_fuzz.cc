// A whole Endpoint that receives any bytes: it places, bounces, pauses or calls the stream broken,
// and stays in its limits. The first byte says how the bytes are cut into reads.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "transport/endpoint.h"
#include "transport/memory_stream.h"

using namespace corro::transport;  // NOLINT(google-build-using-namespace): one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  auto pair =
      make_memory_pair({.capacity = 4096, .short_moves = data[0] % 2 != 0, .seed = data[0]});
  const EndpointLimits limits{.bounce_bytes_per_lane = 1024, .max_message_bytes = 1U << 20U};
  std::array<std::byte, 64> into{};
  std::array<RecvRequest, 4> posted;
  size_t controls = 0;
  Endpoint endpoint(
      std::move(pair.first), [&controls](const corro::wire::Control&) { ++controls; }, limits);
  for (uint32_t i = 0; i < posted.size(); ++i) {
    posted[i].key = {.lane = {0, i % 2}, .op = i / 2, .step = 0};
    posted[i].into = std::span(into).subspan(16UL * i, 4UL * i);
    endpoint.post_recv(posted[i]);
  }
  std::vector<uint8_t> copy(data + 1, data + size);
  iovec piece{copy.data(), copy.size()};
  std::array<std::byte, 4096> answers{};
  const iovec answer{answers.data(), answers.size()};
  for (int turn = 0; turn < 10'000 && piece.iov_len > 0; ++turn) {
    const Moved moved = pair.second->write(std::span(&piece, 1));
    piece.iov_base = static_cast<uint8_t*>(piece.iov_base) + moved.bytes;
    piece.iov_len -= moved.bytes;
    const bool active = endpoint.progress();
    (void)pair.second->read(std::span(&answer, 1));
    if (moved.closed || (!active && moved.bytes == 0)) break;
  }
  endpoint.cancel({0, 0}, 0);
  endpoint.retire_below({0, 1}, 1);
  while (endpoint.progress()) {
  }
  CORRO_CHECK(endpoint.metrics().total("bytes_received") <= size);
  endpoint.close();
  return 0;
}
