// Bytes that a rank has printed, as lines for people. Pure.
//
// A line ends with \n. Where a program has overwritten it (\r, a progress bar), the line is what
// stands there at last, as on a terminal; a search finds what stood there before, too.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace corro::dashboard {

/// Of a longer line the rest is cut off.
inline constexpr size_t kMostLineBytes = 2048;

/// A text without the sequences by which terminals change colours, titles and positions; other
/// control characters but tabs are replaced by their pictures (U+2400). Bytes that are no UTF-8 stay.
[[nodiscard]] std::string clean(std::string_view text);

/// What a terminal shows of a line at last, cleaned, of at most kMostLineBytes and a sign that more
/// was cut off.
[[nodiscard]] std::string shown_line(std::string_view line);

/// The lines of a text, without their ends.
[[nodiscard]] std::vector<std::string_view> cut_lines(std::string_view text);

/// A line in which a text stands.
struct Found {
  size_t at = 0;        ///< Where the line begins.
  uint64_t before = 0;  ///< Lines before it.
  std::string_view
      piece;  ///< What has stood there at one time: between two \r, from near the text on.
};

/// Calls `visit` for each line of `text` that contains `wanted`, once. Small and capital letters of
/// ASCII are equal. `wanted`: "" is nowhere.
void find_lines(std::string_view text, std::string_view wanted,
                const std::function<void(const Found&)>& visit);

/// How many lines end in the first bytes of a file, so that a line in the midst of it has its number
/// without reading all before it again. Grows with what is fed.
class LineIndex {
 public:
  /// Between marks; so much has to be read again at most.
  static constexpr uint64_t kMarkBytes = 256U << 10U;
  struct Mark {
    uint64_t at = 0;
    uint64_t lines = 0;  ///< That end before `at`.
  };

  /// The bytes of the file that come next.
  void feed(std::string_view bytes);
  /// Bytes that were fed.
  [[nodiscard]] uint64_t counted() const { return end_.at; }
  /// The last mark that is not behind `at`, which is at most counted().
  [[nodiscard]] Mark mark_before(uint64_t at) const;

 private:
  std::vector<uint64_t> marks_ = {0};  ///< Lines before 0, kMarkBytes, 2 * kMarkBytes, ...
  Mark end_;
};

}  // namespace corro::dashboard
