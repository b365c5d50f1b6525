// What ranks print: nothing that a terminal would obey is left, each line is found where it stands,
// and lines are counted the same however the bytes come. The first byte: how long the wanted text is.
#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "dashboard/log_text.h"

namespace {

using namespace corro;

void check_clean(std::string_view text) {
  const bool is_tame = std::ranges::all_of(dashboard::clean(text), [](char byte) {
    return static_cast<unsigned char>(byte) >= ' ' || byte == '\t';
  });
  CORRO_CHECK(is_tame, text);
}

void check_search(std::string_view wanted, std::string_view text) {
  dashboard::find_lines(text, wanted, [&](const dashboard::Found& found) {
    const std::string_view before = text.substr(0, found.at);
    CORRO_CHECK(before.empty() || before.back() == '\n', found.at);
    CORRO_CHECK(static_cast<uint64_t>(std::ranges::count(before, '\n')) == found.before, found.at);
    CORRO_CHECK(dashboard::shown_line(found.piece).size() <= 4 * dashboard::kMostLineBytes,
                found.at);
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view wanted = text.substr(0, std::min<size_t>(data[0] % 16, text.size()));
  check_clean(text);
  check_search(wanted, text.substr(wanted.size()));
  size_t bytes = 0;
  for (const std::string_view line : dashboard::cut_lines(text)) bytes += line.size();
  CORRO_CHECK(bytes + static_cast<size_t>(std::ranges::count(text, '\n')) == text.size(), text);
  return 0;
}
