#include "screen/lines.h"

#include <utility>

namespace corro::screen {

void LineSplitter::feed(std::string_view bytes, const Visit& visit) {
  size_t newline = bytes.find('\n');
  for (size_t at = 0; at < bytes.size();) {
    if (std::exchange(after_return_, false) && bytes[at] != '\n' && !rest_.empty()) {
      progress_ = true;
      rest_.clear();
    }
    const std::string_view line = bytes.substr(at, newline - at);
    const size_t end = line.find('\r');
    if (end != std::string_view::npos) {
      take(line.substr(0, end), visit);
      after_return_ = true;
      at += end + 1;
    } else if (newline == std::string_view::npos) {
      return take(line, visit);
    } else {
      end_line(line, visit);
      at = newline + 1;
      newline = bytes.find('\n', at);
    }
  }
}

void LineSplitter::finish(const Visit& visit) {
  if (!rest_.empty()) cut(visit);
}

/// The end of a line; one that came as a whole is not copied.
void LineSplitter::end_line(std::string_view piece, const Visit& visit) {
  if (rest_.empty() && piece.size() <= kMaxLineBytes)
    return visit({.text = piece, .progress = std::exchange(progress_, false)});
  take(piece, visit);
  cut(visit);
}

void LineSplitter::take(std::string_view piece, const Visit& visit) {
  while (rest_.size() + piece.size() > kMaxLineBytes) {
    const size_t room = kMaxLineBytes - rest_.size();
    rest_.append(piece.substr(0, room));
    piece.remove_prefix(room);
    cut(visit);
  }
  rest_.append(piece);
}

void LineSplitter::cut(const Visit& visit) {
  visit({.text = rest_, .progress = std::exchange(progress_, false)});
  rest_.clear();
}

}  // namespace corro::screen
