// decode_frame() with any header: what it accepts encodes to the same bytes, and keeps within its
// caps.
#include <algorithm>
#include <array>

#include "base/check.h"
#include "wire/frame_codec.h"

using namespace corro::wire;  // NOLINT(google-build-using-namespace): one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < kFrameHeaderBytes) return 0;
  const auto raw = std::as_bytes(std::span(data, size)).first<kFrameHeaderBytes>();
  constexpr uint64_t kCap = 1U << 30U;
  const auto header = decode_frame(raw, kCap);
  if (!header.ok()) return 0;
  const bool is_control = header->kind == FrameKind::kControl;
  CORRO_CHECK(header->length <= (is_control ? kMaxControlText : kCap), header->length);
  CORRO_CHECK(header->offset <= header->length && header->piece <= header->length - header->offset);
  std::array<std::byte, kFrameHeaderBytes> again{};
  encode_frame(*header, again);
  CORRO_CHECK(std::ranges::equal(raw, again));
  if (is_control) {
    const Control control = control_from(*header, std::string(header->length, 'x'));
    CORRO_CHECK(encode_control(control).size() == kFrameHeaderBytes + header->length);
  }
  return 0;
}
