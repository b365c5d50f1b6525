// FullScreen: the whole terminal for one picture that is drawn again and again, as of `corro top`.
// What was on the screen before is there again afterwards, and the terminal is as it was.
//
//   FullScreen screen;             // takes the terminal
//   screen.draw(lines, height);
//   screen.leave();                // gives it back; enter() takes it again
#pragma once

#include <termios.h>

#include <string>
#include <vector>

namespace corro::app {

/// Of the terminal behind stdin and stdout; at most one at a time. Externally synchronized.
class FullScreen {
 public:
  FullScreen() { enter(); }
  ~FullScreen() { leave(); }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  /// Takes the terminal: its alternate screen, without a cursor; keys come as they are typed, and
  /// are not shown. Ctrl-C and Ctrl-Z stay signals.
  void enter();
  /// Gives it back. Calls but the first one do nothing.
  void leave();
  /// `height`: lines of the terminal; those below `lines` are empty. Blocks while the terminal
  /// takes nothing. False: it is gone.
  [[nodiscard]] bool draw(const std::vector<std::string>& lines, size_t height);

 private:
  bool is_entered_ = false;
  termios before_{};
};

}  // namespace corro::app
