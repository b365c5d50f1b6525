// Cuts a byte stream into lines, for comparing and prefixing.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

namespace corro::screen {

/// Longer lines are cut into pieces of this size, each treated as a line.
inline constexpr size_t kMaxLineBytes = 64U << 10U;

struct Line {
  std::string_view text;  ///< Without its end; of a progress line what stands after the last \r.
  /// The line was overwritten in place (\r) before its end: a progress bar.
  bool progress = false;
};

/// Loop-confined. A line ends with \n or \r\n; a lone \r starts the line anew, as on a terminal.
class LineSplitter {
 public:
  /// A line's text lasts as long as the call.
  using Visit = std::function<void(const Line&)>;

  /// Takes bytes as they come; `visit` gets the lines that they complete.
  void feed(std::string_view bytes, const Visit& visit);
  /// `visit` gets the rest without an end, if there is any: at the end of the stream.
  void finish(const Visit& visit);

 private:
  void take(std::string_view piece, const Visit& visit);
  void end_line(std::string_view piece, const Visit& visit);
  void cut(const Visit& visit);

  std::string rest_;
  bool progress_ = false;
  bool after_return_ = false;  ///< The last byte was \r: what comes next says what it meant.
};

}  // namespace corro::screen
