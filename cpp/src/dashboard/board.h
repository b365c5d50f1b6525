// Board: the newest picture of a job, and what has led to it, as far as it is kept.
//
//   board.hear(happening);          // each event
//   board.show(picture, wall_now());
// board_text.h writes it down.
#pragma once

#include <deque>
#include <map>
#include <string>

#include "dashboard/picture.h"

namespace corro::dashboard {

inline constexpr size_t kMostHappenings = 1000;
/// One a second.
inline constexpr size_t kMostSteps = 600;

/// Pure: time is injected. Externally synchronized.
class Board {
 public:
  struct Point {
    UnixTime at{};
    uint64_t step = 0;
  };

  /// Steps are counted and left out: they come so often that they would push out all else.
  void hear(Happening happening);
  /// The picture that is kept from now on.
  void show(JobPicture picture, UnixTime now);

  [[nodiscard]] const JobPicture& picture() const { return picture_; }
  /// The last ones, the newest one last.
  [[nodiscard]] const std::deque<Happening>& happenings() const { return happenings_; }
  /// The newest step of any rank, at most once a second.
  [[nodiscard]] const std::deque<Point>& steps() const { return steps_; }
  /// How many of this kind have happened, ever.
  [[nodiscard]] uint64_t count(const std::string& kind) const;
  /// Times that ranks have waited too long.
  [[nodiscard]] uint64_t waits() const { return waits_; }
  /// Of the last checkpoint; none: there is none.
  [[nodiscard]] const std::optional<uint64_t>& checkpoint() const { return checkpoint_; }

 private:
  JobPicture picture_;
  std::deque<Happening> happenings_;
  std::deque<Point> steps_;
  std::map<std::string, uint64_t> counts_;
  uint64_t waits_ = 0;
  std::optional<uint64_t> checkpoint_;
};

/// The least and the most of what running ranks have told; none: nobody has.
struct StepRange {
  uint64_t least = 0;
  uint64_t most = 0;
};
[[nodiscard]] std::optional<StepRange> steps_of(const std::vector<RankRow>& ranks);
[[nodiscard]] bool runs(const RankRow& rank);

}  // namespace corro::dashboard
