// Puts a prefix in front of each line of a stream, as Horovod prints what its ranks print.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "io/output.h"

namespace corro::screen {

/// Returns the local time as asctime writes it: "Fri Nov 27 08:15:00 2026".
[[nodiscard]] std::string local_time();

/// Returns "[0]<stdout>:".
[[nodiscard]] std::string stream_prefix(int rank, io::Output stream);

/// Loop-confined. A line ends with \n, or with \r, where a progress bar starts it anew: bars stay
/// bars. A \n right behind a \r belongs to the line before it. What has no end yet waits; more than
/// kMaxLineBytes of it goes on without one, and its rest has no prefix.
class PrefixedLines {
 public:
  /// Asked once for each line, when the line is complete.
  using Prefix = std::function<std::string()>;

  /// Takes bytes as they come; returns the lines that they complete, with their ends.
  [[nodiscard]] std::string feed(std::string_view bytes, const Prefix& prefix);
  /// Returns what has waited without an end; "" if nothing has.
  [[nodiscard]] std::string finish(const Prefix& prefix);

 private:
  void take(std::string& to, std::string_view piece, const Prefix& prefix);

  std::string rest_;
  bool goes_on_ = false;       ///< The line's beginning was returned, with its prefix.
  bool after_return_ = false;  ///< The last byte was \r.
};

}  // namespace corro::screen
