// Characters of UTF-8 in bytes that may be anything. Pure.
#pragma once

#include <cstddef>
#include <string_view>

namespace corro::obs {

/// The length of the UTF-8 character that begins there, or 0. `at` is below the text's size.
[[nodiscard]] size_t character_at(std::string_view text, size_t at);
/// The text is UTF-8 without control characters of ASCII.
[[nodiscard]] bool is_shown(std::string_view text);

}  // namespace corro::obs
