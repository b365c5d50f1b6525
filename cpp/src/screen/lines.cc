#include "screen/lines.h"

#include <algorithm>
#include <utility>

namespace corro::screen {

std::vector<Line> LineSplitter::feed(std::string_view bytes) {
  std::vector<Line> lines;
  while (!bytes.empty()) {
    if (std::exchange(after_return_, false) && bytes[0] != '\n' && !rest_.empty()) {
      progress_ = true;
      rest_.clear();
    }
    const size_t end = bytes.find_first_of("\r\n");
    take(bytes.substr(0, end), lines);
    if (end == std::string_view::npos) break;
    if (bytes[end] == '\n') {
      lines.push_back(cut());
    } else {
      after_return_ = true;
    }
    bytes.remove_prefix(end + 1);
  }
  return lines;
}

std::vector<Line> LineSplitter::finish() {
  std::vector<Line> lines;
  if (!rest_.empty()) lines.push_back(cut());
  return lines;
}

void LineSplitter::take(std::string_view piece, std::vector<Line>& lines) {
  while (rest_.size() + piece.size() > kMaxLineBytes) {
    const size_t room = kMaxLineBytes - rest_.size();
    rest_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    lines.push_back(cut());
  }
  rest_.append(piece);
}

Line LineSplitter::cut() {
  return {.text = std::exchange(rest_, {}), .progress = std::exchange(progress_, false)};
}

}  // namespace corro::screen
