// LogLines: the log of a container without loss and without anything twice, out of several streams
// that each may be cut anywhere.
//
//   LogLines lines(/*has_tail=*/false);
//   while (!over) {
//     lines.begin();
//     const Status end = stream_from(lines.since(), [&](std::string_view piece) {
//       return lines.feed(piece, receive);
//     });
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unix_time.h"

namespace corro::kube {

/// Takes lines "2026-11-24T20:15:04.123456789Z text\n", as a server sends a log with
/// timestamps=true, and hands the texts on. Pure, loop-confined.
///
/// A server is told from which second on it shall send. So a new stream begins with lines that have
/// been received before, and these are told by their times: as many lines of one time are left out
/// as there were. Writers of the standard output and error are not in the order of their times. So
/// a new stream begins a second earlier than the newest line. Up to 65 536 times of lines are kept;
/// of a container that writes more within two seconds, lines may come twice after a cut.
class LogLines {
 public:
  using Receive = std::function<Status(std::string_view bytes)>;

  /// `has_tail`: the first stream has the last lines alone, and older ones are left out of the
  /// others too.
  explicit LogLines(bool has_tail) : has_tail_(has_tail) {}

  /// A stream begins; the one before it may have been cut in the middle of a line, whose rest is
  /// handed on when it comes.
  void begin();
  /// From when on the stream has to send; nothing: no line has come yet. Whole seconds.
  [[nodiscard]] std::optional<std::chrono::sys_seconds> since() const;
  /// Takes bytes and hands their texts to `receive`, in one call at most. Returns what it returns.
  [[nodiscard]] Status feed(std::string_view piece, const Receive& receive);

 private:
  /// A line, and how much of its text was handed on.
  struct Line {
    std::optional<UnixTime> time = {};  ///< Nothing: the line has none.
    uint64_t bytes = 0;
  };
  void take_time(std::string_view& piece, std::string& out);
  void take_text(std::string_view& piece, std::string& out);
  void begin_line(std::optional<UnixTime> time);
  void end_line();
  [[nodiscard]] bool was_received(UnixTime time);

  const bool has_tail_;
  std::optional<UnixTime> newest_;
  std::optional<UnixTime> oldest_;
  std::map<UnixTime, uint32_t> seen_;  ///< Whole lines from since() on.

  // Of the stream.
  bool is_again_ = false;               ///< It may have lines that were received before.
  bool has_times_ = false;              ///< A line with a time has come.
  UnixTime first_wanted_ = {};          ///< With is_again_: older lines are left out.
  std::map<UnixTime, uint32_t> again_;  ///< Lines that were received before and have yet to come.
  std::optional<Line> cut_;             ///< The line in which a stream before was cut.

  // Of the line.
  bool in_text_ = false;
  std::string start_;  ///< The bytes before the text, as far as they have come.
  Line line_;
  uint64_t skip_ = 0;  ///< Bytes of the text that were handed on before the cut.
  bool is_left_out_ = false;
};

}  // namespace corro::kube
