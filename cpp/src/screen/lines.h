// Cuts a byte stream into lines, for comparing and prefixing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace corro::screen {

/// Longer lines are cut into pieces of this size, each treated as a line.
inline constexpr size_t kMaxLineBytes = 64U << 10U;

struct Line {
  std::string text;  ///< Without its end; of a progress line what stands after the last \r.
  /// The line was overwritten in place (\r) before its end: a progress bar.
  bool progress = false;
};

/// Loop-confined. A line ends with \n or \r\n; a lone \r starts the line anew, as on a terminal.
class LineSplitter {
 public:
  /// Takes bytes as they come and returns the lines that they complete.
  [[nodiscard]] std::vector<Line> feed(std::string_view bytes);
  /// Returns the rest without an end, if there is any: at the end of the stream.
  [[nodiscard]] std::vector<Line> finish();

 private:
  void take(std::string_view piece, std::vector<Line>& lines);
  [[nodiscard]] Line cut();

  std::string rest_;
  bool progress_ = false;
  bool after_return_ = false;  ///< The last byte was \r: what comes next says what it meant.
};

}  // namespace corro::screen
