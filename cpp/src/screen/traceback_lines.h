// Joins the lines of a Python traceback into one passage, so that folding shows it whole or not at
// all.
//
// Each stream of each rank is read line by line:
//
//   frames    "Traceback ..." and what is indented below it
//   message   the error, and what belongs to its text
//   link      "During handling of the above exception ...": another traceback follows, as frames
//
// Blank lines belong to it if it goes on behind them. A line that fits nowhere ends the passage and
// is looked at anew. Nothing marks the end of a message, so a passage also ends kPatience after its
// first line, or at kMaxBytes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "screen/folding.h"

namespace corro::screen {

/// A line, or a whole traceback with newlines between its lines.
struct Passage {
  int rank = 0;
  io::Output stream = io::Output::kOut;
  std::string text;
};

/// Gives each stream's lines back in their order; those of a traceback (chained ones and groups
/// too) as one passage when its end is seen, or when it has waited too long. What stands right
/// behind an exception is taken for lines of its message: at most kMaxMessageLines that are not
/// indented. Empty lines outside of tracebacks are left out, and so is what torch writes in front
/// of a traceback's lines, "[rank1]: " once or several times. Loop-confined; time is injected.
class TracebackLines {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(500);
  static constexpr size_t kMaxBytes = 256U << 10U;

  [[nodiscard]] std::vector<Passage> add(int rank, io::Output stream, std::string_view line,
                                         Time now);
  /// False for most lines: add() would give this one back, and do nothing else.
  [[nodiscard]] bool concerns(int rank, io::Output stream, std::string_view line) const;
  /// The stream has ended, or is not expected to go on.
  [[nodiscard]] std::vector<Passage> end(int rank, io::Output stream);
  /// Returns what has waited too long.
  [[nodiscard]] std::vector<Passage> due(Time now);
  /// When due() has something; Time::never() if no traceback is going on.
  [[nodiscard]] Time next_due() const;

 private:
  /// What was read last.
  enum class State : uint8_t {
    kFrames,   ///< "Traceback", or what is indented below it.
    kGroup,    ///< The same of an exception group, where the exception is indented too.
    kMessage,  ///< The exception, or a line of its message below it.
    kLink,     ///< "During handling of the above exception ...": another one follows.
  };
  struct Open {
    std::string text;
    std::string gap;  ///< Empty lines behind it, part of it if it goes on.
    State state = State::kFrames;
    size_t message_lines = 0;  ///< Those that are not indented.
    Time due;
  };
  using Key = std::pair<int, io::Output>;

  [[nodiscard]] static bool goes_on(Open& open, std::string_view line);
  [[nodiscard]] static bool is_message(Open& open, std::string_view line);

  std::map<Key, Open> open_;
};

}  // namespace corro::screen
