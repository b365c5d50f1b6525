#include "screen/prefixed_lines.h"

#include <fmt/format.h>

#include <array>
#include <ctime>
#include <utility>

#include "screen/lines.h"

namespace corro::screen {

std::string local_time() {
  const time_t now = time(nullptr);
  tm parts{};
  localtime_r(&now, &parts);
  std::array<char, 32> text{};
  strftime(text.data(), text.size(), "%a %b %e %H:%M:%S %Y", &parts);
  return text.data();
}

std::string stream_prefix(int rank, io::Output stream) {
  return fmt::format("[{}]<{}>:", rank, stream == io::Output::kOut ? "stdout" : "stderr");
}

std::string PrefixedLines::feed(std::string_view bytes, const Prefix& prefix) {
  std::string lines;
  if (!bytes.empty() && std::exchange(after_return_, false) && bytes[0] == '\n') {
    lines = "\n";
    bytes.remove_prefix(1);
  }
  while (!bytes.empty()) {
    size_t end = bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) {
      rest_ += bytes;
      break;
    }
    after_return_ = bytes[end] == '\r' && end + 1 == bytes.size();
    if (bytes.substr(end, 2) == "\r\n") ++end;
    take(lines, bytes.substr(0, end + 1), prefix);
    goes_on_ = false;
    bytes.remove_prefix(end + 1);
  }
  if (rest_.size() > kMaxLineBytes) {
    take(lines, "", prefix);
    goes_on_ = true;
  }
  return lines;
}

std::string PrefixedLines::finish(const Prefix& prefix) {
  std::string line;
  if (!rest_.empty()) take(line, "", prefix);
  return line;
}

/// Appends what has waited and `piece` to `to`.
void PrefixedLines::take(std::string& to, std::string_view piece, const Prefix& prefix) {
  if (!goes_on_) to += prefix();
  to += std::exchange(rest_, {});
  to += piece;
}

}  // namespace corro::screen
