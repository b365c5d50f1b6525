#include "wire/liveness_news.h"

#include <cstring>

namespace corro::wire {
namespace {

struct RawLayout {
  uint8_t magic = 0xC7;
  uint8_t kind = 1;  // A host is lost.
  uint16_t reserved = 0;
  int32_t host = -1;
  int32_t witness = -1;
};
static_assert(sizeof(RawLayout) == kLivenessNewsBytes);

}  // namespace

RawLivenessNews encode_liveness_news(const LivenessNews& news) {
  RawLayout layout;
  layout.host = news.host;
  layout.witness = news.witness;
  RawLivenessNews raw;
  std::memcpy(raw.data(), &layout, raw.size());
  return raw;
}

Result<LivenessNews> decode_liveness_news(BytesView bytes) {
  const RawLayout expected;
  RawLayout layout;
  if (bytes.size() == sizeof(layout)) std::memcpy(&layout, bytes.data(), sizeof(layout));
  if (bytes.size() != sizeof(layout) || layout.magic != expected.magic ||
      layout.kind != expected.kind || layout.reserved != expected.reserved) {
    return Status(Code::kInvalidArgument, "liveness: no news of corro's, or of another version");
  }
  return LivenessNews{.host = layout.host, .witness = layout.witness};
}

}  // namespace corro::wire
