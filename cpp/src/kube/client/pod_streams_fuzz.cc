// The frames of a WebSocket and the lines of a container's log, with any bytes. However the stream
// is cut, the same comes out of it. The first byte says which.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "kube/client/log_lines.h"
#include "kube/client/pod_exec.h"
#include "kube/client/websocket_frames.h"

namespace {

using namespace corro;

constexpr size_t kMostFuzzed = 300;

std::string frames_of(std::string_view bytes, size_t piece_bytes) {
  kube::WebSocketReader reader(kMostFuzzed, "name");
  std::string seen;
  const auto visit = [&](kube::WebSocketOp op, std::string_view payload) {
    CORRO_CHECK(payload.size() <= kMostFuzzed, payload.size());
    seen += std::to_string(static_cast<int>(op)) + " ";
    seen.append(payload).append("\n");
    return Status();
  };
  for (size_t i = 0; i < bytes.size(); i += piece_bytes) {
    const Status status = reader.feed(bytes.substr(i, piece_bytes), visit);
    if (!status.ok()) return seen + status.message();
  }
  return seen;
}

void fuzz_frames(std::string_view bytes) {
  const std::string whole = frames_of(bytes, std::max<size_t>(bytes.size(), 1));
  CORRO_CHECK(frames_of(bytes, 1) == whole);
  CORRO_CHECK(frames_of(bytes, 7) == whole);
  // A server may not mask.
  const std::string own = kube::websocket_frame(kube::WebSocketOp::kBinary, bytes, {1, 2, 3, 4});
  CORRO_CHECK(frames_of(own, own.size()).ends_with("masked"));
}

/// Two streams of the same bytes: lines that have a time come once.
std::string texts_of(std::string_view bytes, size_t piece_bytes, bool has_tail) {
  kube::LogLines lines(has_tail);
  std::string texts;
  for (int stream = 0; stream < 2; ++stream) {
    lines.begin();
    for (size_t i = 0; i < bytes.size(); i += piece_bytes) {
      const Status status = lines.feed(bytes.substr(i, piece_bytes), [&](std::string_view text) {
        texts += text;
        return Status();
      });
      CORRO_CHECK(status.ok(), status.message());
    }
  }
  CORRO_CHECK(texts.size() <= 2 * bytes.size() + 1, texts.size());
  return texts;
}

void fuzz_lines(std::string_view bytes, bool has_tail) {
  const std::string whole = texts_of(bytes, std::max<size_t>(bytes.size(), 1), has_tail);
  CORRO_CHECK(texts_of(bytes, 1, has_tail) == whole);
  CORRO_CHECK(texts_of(bytes, 7, has_tail) == whole);
}

void fuzz_status(std::string_view text) {
  const auto object = kube::parse_object(text, "name", size_t{1} << 20U);
  if (!object.ok()) return;
  const auto code = kube::exit_code_of(*object, "name");
  if (code.ok()) return;
  CORRO_CHECK(code.status().message().starts_with("name:"), code.status().message());
  CORRO_CHECK(code.status().message().find('\n') == std::string::npos, code.status().message());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 4) {
    case 0:
      fuzz_frames(bytes);
      break;
    case 1:
      fuzz_status(bytes);
      break;
    default:
      fuzz_lines(bytes, data[0] % 2 == 0);
  }
  return 0;
}
