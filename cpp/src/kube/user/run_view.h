// What people see of `corro run --on kubernetes`: the output of the ranks, and corro's lines.
#pragma once

#include <unistd.h>

#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/clock.h"
#include "io/output.h"
#include "kube/user/progress_line.h"
#include "screen/screen.h"
#include "screen/screen_writer.h"

namespace corro::kube {

struct RunManner {
  bool verbose = false;  ///< What the head says of itself, too.
  bool quiet = false;    ///< Failures alone.
};

/// Thread-safe.
class RunView {
 public:
  explicit RunView(const RunManner& manner)
      : manner_(manner),
        has_terminal_(isatty(STDERR_FILENO) != 0),
        screen_(screen::Screen::Options{.out_is_terminal = isatty(STDOUT_FILENO) != 0,
                                        .err_is_terminal = has_terminal_},
                [](io::Output stream, const std::string& bytes) {
                  const bool is_out = stream == io::Output::kOut;
                  (void)screen::write_all(is_out ? STDOUT_FILENO : STDERR_FILENO, bytes);
                }) {}

  void feed(io::Output stream, std::string_view bytes) {
    const std::scoped_lock lock(mutex_);
    screen_.end_status("");
    screen_.feed(0, stream, bytes, monotonic_now());
    screen_.flush(monotonic_now());
  }
  /// One line, for whoever has not asked for quiet.
  void say(const std::string& line) {
    if (!manner_.quiet) complain(line);
  }
  void complain(const std::string& line) {
    const std::scoped_lock lock(mutex_);
    screen_.end_status("");
    screen_.note("corro: " + line + "\n");
  }
  /// What goes on for a while: on a terminal one line that changes, else a line for each change.
  void progress(const std::string& line) {
    const std::scoped_lock lock(mutex_);
    if (manner_.quiet || std::exchange(last_, line) == line) return;
    if (has_terminal_) {
      const auto shown = progress_line_.fit("corro: " + line, columns_of_terminal(STDERR_FILENO));
      if (!shown.whole.empty()) {
        screen_.end_status("");
        screen_.note(shown.whole + "\n");
      }
      screen_.set_status(shown.status);
    } else {
      screen_.note("corro: " + line + "\n");
    }
  }
  [[nodiscard]] const RunManner& manner() const { return manner_; }

 private:
  const RunManner manner_;
  const bool has_terminal_;
  std::mutex mutex_;  ///< Of what follows; held while something is written.
  screen::Screen screen_;
  std::string last_;  ///< Of progress().
  ProgressLine progress_line_;
};

}  // namespace corro::kube
