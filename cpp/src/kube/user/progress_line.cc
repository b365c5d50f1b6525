#include "kube/user/progress_line.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <utility>

namespace corro::kube {
namespace {

bool begins_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) != 0x80U; }

size_t width_of(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

std::string cut(const std::string& text, size_t columns) {
  constexpr size_t kDots = 3;
  size_t left = columns > kDots ? columns - kDots : 0;
  const auto end = std::ranges::find_if(
      text, [&left](char byte) { return begins_character(byte) && left-- == 0; });
  return std::string(text.begin(), end) + "...";
}

std::string without_numbers(std::string text) {
  std::erase_if(text, [](char byte) { return byte >= '0' && byte <= '9'; });
  return text;
}

}  // namespace

ProgressLine::Fitted ProgressLine::fit(const std::string& line, size_t columns) {
  // In the last column some terminals begin a new line.
  if (width_of(line) < columns) return {line, ""};
  std::string told = without_numbers(line);
  const bool is_new = std::exchange(said_, told) != told;
  return {cut(line, columns - 1), is_new ? line : ""};
}

size_t columns_of_terminal(int file) {
  constexpr size_t kColumns = 100;
  winsize size{};
  return ioctl(file, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col : kColumns;
}

}  // namespace corro::kube
