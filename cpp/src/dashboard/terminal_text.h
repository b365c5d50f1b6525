// Text of others on a terminal: harmless, and as wide as it is meant to be. Pure.
//
//   const std::string name = printable(host);   // no escape sequence, no newline
//   const std::string cell = padded(name, 12);  // a column of a table; "…" where it was cut
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace corro::dashboard {

/// The text with "?" for each character that moves the cursor, begins an escape sequence or turns the
/// direction of what follows, and for bytes that are no UTF-8.
[[nodiscard]] std::string printable(std::string_view text);

// The rest is for printable text.

/// Columns that it takes: East Asian characters and emoji take two, accents that combine none.
[[nodiscard]] size_t width_of(std::string_view text);
/// The text, or as much of it as `width` columns have room for with "…" behind.
[[nodiscard]] std::string cut(std::string_view text, size_t width);
/// The same with blanks behind, so that it takes exactly `width` columns.
[[nodiscard]] std::string padded(std::string_view text, size_t width);
/// Lines of at most `width` columns, cut at blanks where there are some; `most` lines, of which the
/// last one ends with "…" if there is more.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, size_t width, size_t most);

}  // namespace corro::dashboard
