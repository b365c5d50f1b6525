// RankStreams: what ranks print and read, on its way between their processes and the commander.
//
// Output is sent while there is credit; each CREDIT gives more of it. When it is used up, nothing is
// read, and ranks that print are held back by their pipes. Without a commander nobody has to wait:
// commander.h keeps the end of what is printed.
#pragma once

#include <array>

#include "agent/messages.h"
#include "agent/station.h"

namespace corro::agent {

/// Loop-confined.
class RankStreams {
 public:
  explicit RankStreams(Station& station) : station_(station) {}

  void hear(const Subject& about, const Input& input);
  void hear(const Subject& about, const Credit& credit);
  void hear(const Subject& about, const Resize& sizes);
  /// No other message is about streams.
  void hear(const Subject& /*about*/, const auto& /*other*/) {}

  /// A stream of a rank can be read.
  void on_readable(size_t rank, io::Output stream);
  /// The process of a rank has ended: reads all that it has left in its pipes, even without credit.
  /// Its children may still write, and on_readable() reads that later.
  void read_rest(size_t rank);
  /// Writes what ranks take of their input, and gives credit for that.
  void flush_input();
  /// Holds ranks back, or reads them again, as there is credit.
  void pause_or_resume();
  /// Nothing is read from ranks now.
  [[nodiscard]] bool paused() const { return paused_; }
  /// Another commander gives its credit at first, and `sent` bytes of output have used some of it.
  void renew_credit(size_t sent);

 private:
  void read(size_t rank, io::Output stream);

  Station& station_;
  std::array<char, kMaxOutputBytes> buffer_{};
  int64_t credit_ = kOutputCredit;
  bool paused_ = false;
};

}  // namespace corro::agent
