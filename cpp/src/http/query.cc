#include "http/query.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace corro::http {
namespace {

constexpr size_t kEscapeDigits = 2;

/// The byte of two hexadecimal digits; -1: they are none.
int byte_of(std::string_view digits) {
  if (digits.size() != kEscapeDigits) return -1;
  int byte = -1;
  const auto [stop, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), byte, 16);
  return error == std::errc() && stop == digits.data() + digits.size() ? byte : -1;
}

std::string decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const int byte = text[i] == '%' ? byte_of(text.substr(i + 1, kEscapeDigits)) : -1;
    if (byte >= 0) {
      decoded += static_cast<char>(byte);
      i += kEscapeDigits;
    } else {
      decoded += text[i] == '+' ? ' ' : text[i];
    }
  }
  return decoded;
}

}  // namespace

Query parse_query(std::string_view text) {
  Query query;
  while (!text.empty()) {
    const size_t end = std::min(text.find('&'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t sign = std::min(part.find('='), part.size());
    const std::string_view value = part.substr(std::min(sign + 1, part.size()));
    if (!part.empty()) query.emplace(decode(part.substr(0, sign)), decode(value));
  }
  return query;
}

std::string_view value_of(const Query& query, std::string_view name) {
  const auto found = query.find(name);
  return found == query.end() ? std::string_view() : std::string_view(found->second);
}

Result<std::optional<uint64_t>> number_of(const Query& query, std::string_view name, uint64_t least,
                                          uint64_t most) {
  const std::string_view text = value_of(query, name);
  if (text.empty()) return std::optional<uint64_t>();
  uint64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && stop == text.data() + text.size();
  if (is_number && least <= number && number <= most) return std::optional(number);
  return Status(Code::kInvalidArgument,
                fmt::format("{}: give a number from {} to {}", name, least, most));
}

}  // namespace corro::http
