// Decides which lines of the ranks beside the lead rank are worth the screen.
//
// The lead rank's lines are shown as they come. A line of another rank waits a moment: if the lead
// prints the same, it is not shown; if several ranks print the same, it is shown once and counted.
// A rank's n-th copy of a line equals the n-th copy on the screen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "io/output.h"
#include "screen/seen_lines.h"

namespace corro::screen {

/// One line for the screen.
struct FoldedLine {
  io::Output stream = io::Output::kOut;
  std::string text;
  std::vector<int> ranks;  ///< Who printed it; ascending.
  uint32_t times = 1;      ///< The most copies that one of them printed.
};

/// Loop-confined; time is injected.
class Folder {
 public:
  struct Options {
    Duration hold = std::chrono::seconds(1);
    /// Of lines that wait, with what they cost beside their text. Above it, lines are shown before
    /// their time.
    size_t max_pending_bytes = 8U << 20U;
    /// Of the counters of all lines that wait or were shown. Above it, the oldest lines that do not
    /// wait are forgotten.
    size_t max_remembered_bytes = 16U << 20U;
  };
  explicit Folder(Options options) : options_(options), seen_(options.max_remembered_bytes) {}

  /// The lead rank has printed (and shown) this line.
  void lead(int rank, io::Output stream, std::string_view text);
  /// Another rank has printed this line.
  void add(int rank, io::Output stream, std::string_view text, Time now);
  /// Returns the lines whose time has come, in the order in which they were first printed.
  [[nodiscard]] std::vector<FoldedLine> due(Time now);
  /// Returns all that is still waiting.
  [[nodiscard]] std::vector<FoldedLine> flush() { return due(Time::never()); }
  /// Forgets what waits and was printed to stderr by other ranks than `culprit`: after a failure
  /// they only say that it has failed.
  void drop_errors_but(int culprit);
  /// When due() has something next; Time::never() if nothing waits.
  [[nodiscard]] Time next_due() const;
  /// More waits than may, or so many times as much: due() has something at any time.
  [[nodiscard]] bool crowded(size_t times = 1) const {
    return pending_bytes_ > times * options_.max_pending_bytes;
  }

 private:
  struct Pending {
    uint32_t line = 0;  ///< In seen_.
    io::Output stream = io::Output::kOut;
    std::string text;
    Time due;
  };

  [[nodiscard]] FoldedLine release(Pending& pending);

  Options options_;
  SeenLines seen_;
  std::deque<Pending> pending_;
  size_t pending_bytes_ = 0;
};

}  // namespace corro::screen
