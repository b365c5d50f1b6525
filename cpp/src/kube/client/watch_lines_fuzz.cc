// The stream of a watch and the pages of a list, with any bytes. However the stream is cut, the
// same events come out of it.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "kube/client/watch_lines.h"

namespace {

using namespace corro;

std::string events_of(std::string_view text, size_t piece_bytes) {
  kube::WatchLines lines(200, "name");
  std::string seen;
  for (size_t i = 0; i < text.size(); i += piece_bytes) {
    const Status status =
        lines.feed(text.substr(i, piece_bytes), [&](const kube::WatchEvent& line) {
          seen += std::to_string(static_cast<int>(line.kind)) + line.resource_version + line.name +
                  kube::text_of(line.object) + "\n";
          return Status();
        });
    if (!status.ok()) {
      CORRO_CHECK(status.message().find('\n') == std::string::npos, status.message());
      return seen + status.message();
    }
  }
  return seen + lines.finish().message();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string whole = events_of(text, std::max<size_t>(size, 1));
  CORRO_CHECK(events_of(text, 1) == whole);
  CORRO_CHECK(events_of(text, 7) == whole);
  const auto list = kube::cut_list(text, "name");
  if (list.ok()) {
    for (const std::string_view item : list->items) {
      CORRO_CHECK(item.starts_with('{') && (item.ends_with('}') || item.ends_with(']')), item);
    }
  }
  return 0;
}
