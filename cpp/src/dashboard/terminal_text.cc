#include "dashboard/terminal_text.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace corro::dashboard {
namespace {

constexpr std::string_view kMore = "…";
constexpr char32_t kNone = 0xFFFFFFFF;  ///< No character: the bytes are no UTF-8.

struct Range {
  char32_t first;
  char32_t last;
};

/// What changes more than its own cell: controls, and marks of direction and of format.
constexpr std::array<Range, 9> kHarmful = {{{0x00, 0x1F},
                                            {0x7F, 0x9F},
                                            {0xAD, 0xAD},
                                            {0x61C, 0x61C},
                                            {0x200B, 0x200F},
                                            {0x2028, 0x202E},
                                            {0x2060, 0x206F},
                                            {0xFEFF, 0xFEFF},
                                            {0xFFF9, 0xFFFB}}};
/// Unicode's East Asian Width W and F, in blocks.
constexpr std::array<Range, 13> kWide = {{{0x1100, 0x115F},
                                          {0x2E80, 0x303E},
                                          {0x3041, 0xA4CF},
                                          {0xA960, 0xA97F},
                                          {0xAC00, 0xD7A3},
                                          {0xF900, 0xFAFF},
                                          {0xFE30, 0xFE6F},
                                          {0xFF00, 0xFF60},
                                          {0xFFE0, 0xFFE6},
                                          {0x1F300, 0x1F64F},
                                          {0x1F680, 0x1F6FF},
                                          {0x1F900, 0x1FAFF},
                                          {0x20000, 0x3FFFD}}};
constexpr std::array<Range, 5> kCombining = {
    {{0x300, 0x36F}, {0x1AB0, 0x1AFF}, {0x1DC0, 0x1DFF}, {0x20D0, 0x20FF}, {0xFE00, 0xFE0F}}};

template <size_t Count>
bool is_in(const std::array<Range, Count>& ranges, char32_t character) {
  return std::ranges::any_of(ranges, [character](const Range& range) {
    return character >= range.first && character <= range.last;
  });
}

struct Character {
  char32_t code = kNone;
  size_t bytes = 1;
};

/// The first one of a text that is not empty.
Character first_of(std::string_view text) {
  constexpr std::array<char32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};  ///< By length.
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  char32_t code = lead & (0xFFU >> (bytes + 1));
  for (const char next : text.substr(1, bytes - 1)) {
    const auto byte = static_cast<uint8_t>(next);
    if ((byte & 0xC0U) != 0x80U) return {};
    code = code << 6U | (byte & 0x3FU);
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) return {};
  return {code, bytes};
}

size_t width_of(char32_t code) {
  if (is_in(kCombining, code)) return 0;
  return is_in(kWide, code) ? 2 : 1;
}

/// As many leading bytes as `width` columns have room for.
size_t bytes_within(std::string_view text, size_t width) {
  size_t at = 0;
  for (size_t taken = 0; at < text.size();) {
    const Character next = first_of(text.substr(at));
    taken += width_of(next.code);
    if (taken > width) break;
    at += next.bytes;
  }
  return at;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string shown;
  while (!text.empty()) {
    const Character next = first_of(text);
    if (next.code == kNone || is_in(kHarmful, next.code))
      shown += '?';
    else
      shown += text.substr(0, next.bytes);
    text.remove_prefix(next.bytes);
  }
  return shown;
}

size_t width_of(std::string_view text) {
  size_t width = 0;
  while (!text.empty()) {
    const Character next = first_of(text);
    width += width_of(next.code);
    text.remove_prefix(next.bytes);
  }
  return width;
}

std::string cut(std::string_view text, size_t width) {
  if (width_of(text) <= width) return std::string(text);
  if (width == 0) return "";
  return std::string(text.substr(0, bytes_within(text, width - 1))).append(kMore);
}

std::string padded(std::string_view text, size_t width) {
  std::string shown = cut(text, width);
  return shown.append(width - width_of(shown), ' ');
}

std::vector<std::string> wrapped(std::string_view text, size_t width, size_t most) {
  std::vector<std::string> lines;
  while (lines.size() + 1 < most && width_of(text) > width) {
    const size_t room = bytes_within(text, width);
    if (room == 0) break;  // Not even one character.
    const size_t blank = text.rfind(' ', room);
    const bool has_blank = blank != std::string_view::npos && blank > 0;
    const size_t end = has_blank ? blank : room;
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(has_blank ? end + 1 : end);
  }
  lines.push_back(cut(text, width));
  return lines;
}

}  // namespace corro::dashboard
