// TimelineText::add() with events that are anything.
#include "base/check.h"
#include "obs/timeline_text.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const corro::BytesView bytes = std::as_bytes(std::span(data, size));
  corro::obs::TimelineText text;
  (void)text.add(0, bytes, 0);
  const std::string json = text.take();
  CORRO_CHECK(json.empty() || (json.starts_with(",\n{") && json.ends_with("}")));
  return 0;
}
