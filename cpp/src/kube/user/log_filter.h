// LogFilter: the log of a job's head, as the screen of `corro run` has it. A pod's log has what
// came on both streams; lines of corro itself belong on stderr, and those of the head alone are for
// whoever asks for them.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "io/output.h"

namespace corro::kube {

/// Loop-confined.
class LogFilter {
 public:
  using Show = std::function<void(io::Output, std::string_view)>;
  LogFilter(bool shows_head, Show show) : shows_head_(shows_head), show_(std::move(show)) {}

  /// A line that may still turn out to be one of corro's waits for its next bytes.
  void feed(std::string_view bytes);
  /// Nothing more comes.
  void finish();

 private:
  enum class Kind : uint8_t { kUnknown, kRanks, kCorro, kHead };
  void pass(std::string_view piece);

  const bool shows_head_;
  const Show show_;
  Kind kind_ = Kind::kUnknown;  ///< Of the line that goes on.
  std::string begun_;           ///< Of a line of unknown kind.
};

}  // namespace corro::kube
