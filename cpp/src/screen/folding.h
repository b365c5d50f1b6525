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
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "io/output.h"

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
    int ranks = 1;
    Duration hold = std::chrono::seconds(1);
    size_t max_pending_bytes = 4U << 20U;  ///< Above it, lines are shown before their time.
    size_t max_remembered = 4U << 20U;     ///< Counters kept, over all lines and ranks.
  };
  explicit Folder(Options options) : options_(options) {}

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

 private:
  struct Entry {
    uint32_t shown = 0;
    bool waiting = false;
    std::vector<uint32_t> printed;  ///< Per rank.
  };
  struct Pending {
    uint64_t key = 0;
    io::Output stream = io::Output::kOut;
    std::string text;
    Time due;
  };

  Entry& entry_of(uint64_t key);
  [[nodiscard]] FoldedLine release(Pending& pending);

  Options options_;
  std::unordered_map<uint64_t, Entry> entries_;
  std::deque<uint64_t> order_;  ///< Keys of entries_, oldest first.
  std::deque<Pending> pending_;
  size_t pending_bytes_ = 0;
};

}  // namespace corro::screen
