// UserInput: the standard input of the launcher, for a rank that cannot read it itself: from a
// terminal, since ranks are in the background, and on another host.
//
// A terminal is read only while the launcher is in the foreground: else what is typed is for
// somebody else, and whoever reads it is stopped.
//
// No more is read than agent::kInputCredit beyond what the rank has taken: whoever writes waits, as
// for the rank itself.
#pragma once

#include <optional>
#include <string>

#include "io/loop.h"

namespace corro::launch {

/// Loop-confined.
class UserInput {
 public:
  /// `loop` outlives it.
  explicit UserInput(io::Loop& loop) : loop_(loop) {}

  /// Has the handler called when there is something to read().
  void start(io::Loop::Handler handler);
  /// Reads what is there; nothing if there is none now. "" once it has ended.
  [[nodiscard]] std::optional<std::string> read();
  /// The rank has taken so many bytes of it: as many more are read.
  void take(uint64_t bytes);
  /// Looks again whether it may be read: now and then, and always where the loop cannot tell.
  void look();
  /// It has to be read without the loop having said so: it is a file.
  [[nodiscard]] bool is_file() const { return state_ == State::kFile; }

 private:
  enum class State : uint8_t { kNone, kWatched, kBackground, kFile, kFull, kEnded };
  io::Loop& loop_;
  State state_ = State::kNone;
  io::Loop::Handler handler_;
  uint64_t untaken_ = 0;  ///< Bytes that were read, and that the rank has not taken.
};

}  // namespace corro::launch
