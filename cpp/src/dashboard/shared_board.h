// SharedBoard: the board of a job that runs, between the job's loop, which writes it, and whoever
// looks.
//
//   board.hear(happening);                           // the loop: each event
//   if (board.due() <= now) board.show(picture, now);   // the loop: if somebody looks
//   write_job(board.copy(), wall_now());             // any thread
#pragma once

#include "base/clock.h"
#include "base/guarded.h"
#include "dashboard/board.h"

namespace corro::dashboard {

/// copy() is thread-safe; all else is the loop's.
class SharedBoard {
 public:
  SharedBoard() = default;
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;

  void hear(Happening happening);
  void show(JobPicture picture, Time now);
  /// When the next picture is due: a second after the last one, but soon after something happened.
  [[nodiscard]] Time due() const;
  /// When the picture was shown that it has now; zero: there is none yet.
  [[nodiscard]] Time shown() const { return shown_; }

  [[nodiscard]] Board copy() const { return *board_.lock(); }

 private:
  Time shown_{};
  bool is_changed_ = true;
  mutable Guarded<Board> board_;
};

}  // namespace corro::dashboard
