// What goes to the screen: rank 0 as it is, other ranks' lines folded or prefixed, and progress
// bars that stay readable when a line of another rank comes in between.
//
// The lead's bytes are shown at once, but for its stderr from a "Traceback" on: the lead may turn
// out to be a victim. Lines of others are cut, joined to whole tracebacks, folded, and shown when
// they have waited long enough, and when the lead's line is at its end or has stood still for a
// moment; on a terminal the line that was going on is drawn again below. If every line was asked
// for, all are shown as they come, with their rank in front, and the time in front of it, if that
// was asked for. As Horovod prints them, progress bars of all ranks are shown, too.
//
//   showing     as above
//   suspended   from suspend_errors(), a rank has failed: only what is too much to keep is shown
//   settled     settle(culprit): held stderr of all others is forgotten, and showing goes on
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "screen/folding.h"
#include "screen/lines.h"
#include "screen/prefixed_lines.h"
#include "screen/show.h"
#include "screen/traceback_lines.h"

namespace corro::screen {

/// Loop-confined; time and output are injected.
class Screen {
 public:
  struct Options {
    Show show = {};
    int ranks = 1;
    bool out_is_terminal = false;
    bool err_is_terminal = false;
    bool colour = false;
    Duration hold = std::chrono::seconds(1);
    /// Stands in front of every prefix: the time, as text. Null: nothing does.
    std::function<std::string()> time = nullptr;
  };
  using Sink = std::function<void(io::Output, std::string)>;

  Screen(Options options, Sink sink);

  /// Bytes that a rank has printed.
  void feed(int rank, io::Output stream, std::string_view bytes, Time now);
  /// The rank's stream has ended: a last line without an end counts.
  void finish(int rank, io::Output stream, Time now);
  /// Shows what has waited long enough.
  void tick(Time now);
  /// When tick() has something to do; Time::never() if nothing waits.
  [[nodiscard]] Time next_tick() const;
  /// A rank has failed: until settle(), stderr waits, because most of it only says that the one to
  /// blame has failed. Where every line was asked for, neither does anything.
  void suspend_errors() { suspended_ = folds_; }
  /// Forgets what waits of stderr but the culprit's (-1: nothing is forgotten).
  void settle(int culprit);
  /// Shows everything that waits.
  void flush(Time now);
  /// A line of corro itself (or several), on stderr, never in the middle of another line.
  void note(const std::string& lines);
  /// What goes on for a while: on a terminal a line below all others, where it changes with each
  /// call; elsewhere, and where a rank's line has no end, the first such line is noted. Without a
  /// newline, and not wider than the terminal.
  void set_status(const std::string& line);
  /// It is over: the line is taken back. Where it was noted, `over` is noted too, unless it is "".
  void end_status(const std::string& over);
  /// How far all is: a line in the place of a status where there is none, on a terminal alone. "": there
  /// is nothing to say. Without a newline, and not wider than the terminal.
  void set_progress(const std::string& line);

 private:
  /// Where the cursor of a terminal or file stands.
  struct Cursor {
    std::string segment;    ///< What stands on the current line.
    bool returned = false;  ///< The last byte was \r.
    Time begun{};           ///< The line.
    Time last_write{};
    [[nodiscard]] bool at_start() const { return segment.empty(); }
  };
  template <typename Cutter>
  struct Streams {
    Cutter out, err;
    [[nodiscard]] Cutter& of(io::Output stream) { return stream == io::Output::kOut ? out : err; }
  };

  [[nodiscard]] bool shown(int rank, io::Output stream) const;
  [[nodiscard]] Cursor& cursor_of(io::Output stream);
  [[nodiscard]] bool is_terminal(io::Output stream) const;
  void emit(io::Output stream, std::string bytes);
  /// What stands below all others; "": nothing.
  [[nodiscard]] const std::string& bottom() const {
    return status_.empty() || status_noted_ ? progress_ : status_;
  }
  void draw_bottom();
  void clear_bottom();
  void write_raw(io::Output stream, std::string_view bytes, Time now);
  [[nodiscard]] std::string_view hold_errors(std::string_view bytes, Time now);
  void feed_streams(int rank, io::Output stream, std::string_view bytes, Time now);
  void finish_streams(int rank, io::Output stream, Time now);
  void feed_lead(io::Output stream, std::string_view bytes, Time now);
  void note_lead(io::Output stream, std::string_view bytes, Time now);
  void feed_line(int rank, io::Output stream, const Line& line, Time now);
  void compare(int rank, io::Output stream, std::string_view line, Time now);
  void fold(const std::vector<Passage>& passages, Time now);
  void fold(int rank, io::Output stream, std::string_view passage, Time now);
  void show_line(io::Output stream, std::string line);
  void show_folded(const std::vector<FoldedLine>& lines);
  void append_folded(std::string& text, const FoldedLine& line) const;
  void release_errors(Time now);
  [[nodiscard]] std::string whole_prefix_of(int rank) const;
  [[nodiscard]] std::string stream_prefix_of(int rank, io::Output stream) const;
  [[nodiscard]] std::string prefix_of(const std::vector<int>& ranks) const;
  [[nodiscard]] Time free_at() const;
  [[nodiscard]] bool between_lines() const {
    return out_cursor_.at_start() && err_cursor_.at_start();
  }

  Options options_;
  Sink sink_;
  int lead_ = 0;               ///< The rank whose bytes go through unchanged; -1: none.
  TracebackLines tracebacks_;  ///< What is folded goes through it, so that they stay whole.
  Folder folder_;
  std::vector<Streams<LineSplitter>> splitters_;
  std::vector<Streams<PrefixedLines>> streams_;  ///< Where lines are Horovod's.
  std::vector<std::string> prefixes_;            ///< By rank, of its own lines.
  Cursor out_cursor_, err_cursor_;
  /// The lead's stderr since "Traceback", or since a failure: it may turn out to be a victim's.
  std::string held_errors_;
  Time held_until_ = Time::never();
  bool folds_ = false;         ///< Lines of other ranks are shown only where they differ.
  bool suspended_ = false;     ///< Between a failure and settle().
  std::string status_;         ///< Of set_status(); "": none.
  bool status_noted_ = false;  ///< It was noted: no terminal, or in the middle of a line.
  std::string progress_;       ///< Of set_progress(); "": none.
  bool bottom_drawn_ = false;  ///< It stands on the terminal's last line.
};

}  // namespace corro::screen
