// JobOutput: where all goes that a job has to say: what its ranks print, lines of corro's own, and
// what happens.
//
//   screen    what ranks print (screen/screen.h) and corro's lines; a thread writes it
//   files     rank-N.log, server-N.log and failure.json in the folder of the logs; those of
//             --output-dir
//   events    --events
//   caller    what the ranks of corro.run() return, and how the job ended
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agent/messages.h"
#include "launch/caller.h"
#include "launch/events.h"
#include "launch/log_files.h"
#include "launch/output_files.h"
#include "launch/plan.h"
#include "launch/server_lines.h"
#include "screen/screen.h"
#include "screen/screen_writer.h"

namespace corro::launch {

/// Of the block and of what goes on.
[[nodiscard]] size_t screen_width();

/// Loop-confined.
class JobOutput {
 public:
  struct Files {
    LogFiles logs;
    std::optional<OutputFiles> streams;
    std::optional<EventFile> events;
  };
  /// Makes them. The failure names the file, and says what to do.
  static Result<Files> open_files(const LaunchPlan& plan);

  /// `caller`: the descriptor of whoever has called corro.run(); -1: somebody has typed `corro run`.
  JobOutput(const LaunchPlan& plan, Files files, std::unique_ptr<screen::ScreenWriter> writer,
            int caller);

  /// What the rank in this place has printed or returned, and the end of a stream of it.
  void take(size_t place, const agent::Output& output, Time now);
  void take(size_t place, const agent::OutputEnd& end, Time now);
  /// The same of a table server. Its stderr goes to the screen, with --verbose its stdout, too.
  void take_server(size_t server, const agent::Output& output);
  void take_server(size_t server, const agent::OutputEnd& end);
  /// Ranks have to wait: nobody reads the screen.
  [[nodiscard]] bool full() const { return writer_->full(); }
  /// Readable when that has changed.
  [[nodiscard]] const io::EventFd& room() const { return writer_->room(); }

  /// A line of corro's own, or several.
  void note(const std::string& lines) { screen_.note(lines); }
  /// What goes on for a while, and that it does not any more.
  void set_status(const std::string& line);
  void end_status(const std::string& over) { screen_.end_status(over); }
  /// How far the job is: a line below all others, on a terminal alone.
  void set_progress(const std::string& line);
  [[nodiscard]] bool shows_progress() const { return shows_progress_; }
  void emit(const Event& event);
  /// A file could not be written; said to the user, and the job goes on.
  void note_incomplete(const Status& status);

  /// Shows what has waited long enough.
  void tick(Time now) { screen_.tick(now); }
  /// When tick() has something to do.
  [[nodiscard]] Time next_tick() const { return screen_.next_tick(); }
  /// A rank has failed: most of what others print on stderr only says so, and waits for settle().
  void hold_errors() { screen_.suspend_errors(); }
  /// Shows all that waits, but of stderr only the culprit's; -1: all of it.
  void settle(int culprit, Time now);
  /// How the job ended, for the caller, or for the screen.
  void say_end(const CallEnd& end);
  /// All is written.
  [[nodiscard]] bool empty() const { return writer_->empty(); }
  /// Whoever should read the screen does not: the rest is not waited for.
  void abandon() { (void)writer_.release(); }

  [[nodiscard]] const std::string& log_directory() const { return files_.logs.directory(); }

 private:
  void show_server(io::Output stream, const std::string& lines);

  const std::string error_file_;  ///< TORCHELASTIC_ERROR_FILE of the job; "": none.
  Files files_;
  std::unique_ptr<screen::ScreenWriter> writer_;
  const int caller_;
  const bool verbose_;
  const bool shows_progress_;
  screen::Screen screen_;
  ServerLines server_lines_;
};

}  // namespace corro::launch
