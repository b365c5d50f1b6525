#include "app/full_screen.h"

#include <unistd.h>

#include <cerrno>
#include <string_view>

namespace corro::app {
namespace {

// Sequences of xterm, which terminals of today know.
constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[H\x1b[2J";
constexpr std::string_view kLeave = "\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr std::string_view kHome = "\x1b[H";
constexpr std::string_view kClearLine = "\x1b[K";

bool write_all(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace

void FullScreen::enter() {
  if (is_entered_ || tcgetattr(STDIN_FILENO, &before_) != 0) return;
  is_entered_ = true;
  termios raw = before_;
  raw.c_lflag &= ~static_cast<tcflag_t>(ECHO | ICANON);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
  write_all(kEnter);
}

void FullScreen::leave() {
  if (!is_entered_) return;
  is_entered_ = false;
  write_all(kLeave);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &before_);
}

/// A line is cleared before it is written: behind one that is full, the cursor is still on it.
bool FullScreen::draw(const std::vector<std::string>& lines, size_t height) {
  std::string text(kHome);
  for (size_t i = 0; i < height; ++i) {
    text.append(i > 0 ? "\r\n" : "").append(kClearLine);
    if (i < lines.size()) text += lines[i];
  }
  return write_all(text);
}

}  // namespace corro::app
