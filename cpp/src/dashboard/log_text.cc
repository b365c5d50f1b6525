#include "dashboard/log_text.h"

#include <algorithm>

namespace corro::dashboard {
namespace {

constexpr char kEscape = '\x1b';
constexpr char kDelete = '\x7f';
constexpr std::string_view kPictures = "\xE2\x90";  ///< Of U+2400 to U+2421, without the last byte.
constexpr std::string_view kCutSign = " \xE2\x80\xA6";
constexpr size_t kBeforeFound =
    200;  ///< Bytes of a long line that are shown before what was found.

bool is_between(char byte, char least, char most) { return byte >= least && byte <= most; }

/// Where the sequence that begins with the escape at `at` is over.
size_t end_of_sequence(std::string_view text, size_t at) {
  size_t end = at + 1;
  if (end == text.size()) return end;
  const char kind = text[end++];
  if (kind == '[') {  // CSI: parameters, and a letter.
    while (end < text.size() && is_between(text[end], ' ', '?')) ++end;
    return std::min(end + 1, text.size());
  }
  if (kind == ']') {  // OSC: a text that ends with BEL or ESC \.
    end = std::min(text.find_first_of("\a\x1b", end), text.size());
    const bool is_long = end + 1 < text.size() && text[end] == kEscape && text[end + 1] == '\\';
    return std::min(end + (is_long ? 2 : 1), text.size());
  }
  while (is_between(kind, ' ', '/') && end < text.size() && is_between(text[end], ' ', '/')) ++end;
  return is_between(kind, ' ', '/') ? std::min(end + 1, text.size()) : end;
}

void add_picture(std::string& to, char control) {
  to += kPictures;
  to += static_cast<char>(control == kDelete ? 0xA1 : 0x80 + control);
}

/// As clean(), of a text that may be long.
std::string clean_piece(std::string_view piece) {
  const bool is_long = piece.size() > kMostLineBytes;
  return clean(piece.substr(0, kMostLineBytes)) + std::string(is_long ? kCutSign : "");
}

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& byte : made)
    if (is_between(byte, 'A', 'Z')) byte = static_cast<char>(byte - 'A' + 'a');
  return made;
}

size_t begin_of(std::string_view text, size_t at, char end) {
  return at == 0 ? 0 : text.rfind(end, at - 1) + 1;  // npos + 1 is 0.
}

uint64_t count_lines(std::string_view text) {
  return static_cast<uint64_t>(std::ranges::count(text, '\n'));
}

}  // namespace

std::string clean(std::string_view text) {
  std::string made;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == kEscape) {
      i = end_of_sequence(text, i);
      continue;
    }
    const bool is_control =
        (is_between(text[i], 0, '\x1f') && text[i] != '\t') || text[i] == kDelete;
    if (is_control)
      add_picture(made, text[i]);
    else
      made += text[i];
    ++i;
  }
  return made;
}

std::string shown_line(std::string_view line) {
  const size_t end = line.find_last_not_of('\r') + 1;
  line = line.substr(0, end);
  return clean_piece(line.substr(begin_of(line, line.size(), '\r')));
}

std::vector<std::string_view> cut_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

void find_lines(std::string_view text, std::string_view wanted,
                const std::function<void(const Found&)>& visit) {
  if (wanted.empty()) return;
  const std::string lowered = lower(text);
  const std::string needle = lower(wanted);
  Found found;
  size_t counted = 0;
  for (size_t at = lowered.find(needle); at != std::string::npos;) {
    found.at = begin_of(text, at, '\n');
    found.before += count_lines(text.substr(counted, found.at - counted));
    counted = found.at;
    const size_t end = std::min(text.find_first_of("\r\n", at), text.size());
    const size_t begin = std::max(found.at, begin_of(text, at, '\r'));
    const size_t first = at - begin > kMostLineBytes / 2 ? at - kBeforeFound : begin;
    found.piece = text.substr(first, end - first);
    visit(found);
    const size_t next = text.find('\n', at);
    at = next == std::string::npos ? next : lowered.find(needle, next + 1);
  }
}

void LineIndex::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t part = std::min<size_t>(bytes.size(), kMarkBytes - end_.at % kMarkBytes);
    end_.lines += count_lines(bytes.substr(0, part));
    end_.at += part;
    bytes.remove_prefix(part);
    if (end_.at % kMarkBytes == 0) marks_.push_back(end_.lines);
  }
}

LineIndex::Mark LineIndex::mark_before(uint64_t at) const {
  const uint64_t number = at / kMarkBytes;
  return {.at = number * kMarkBytes, .lines = marks_[number]};
}

}  // namespace corro::dashboard
