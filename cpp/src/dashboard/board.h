// Board: the newest picture of a job, and what has led to it, as far as it is kept.
//
//   board.hear(happening);          // each event
//   board.show(picture, wall_now());
// board_text.h writes it down.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dashboard/host_links.h"
#include "dashboard/picture.h"
#include "dashboard/rates.h"
#include "dashboard/series.h"
#include "dashboard/training.h"

namespace corro::dashboard {

inline constexpr size_t kMostHappenings = 1000;
/// One a second.
inline constexpr size_t kMostSteps = 600;

/// Pure: time is injected. Externally synchronized.
class Board {
 public:
  /// The mean of a metric over the job's time.
  struct Course {
    std::string name;
    Series series;
  };

  /// Steps are counted and left out: they come so often that they would push out all else.
  void hear(Happening happening);
  /// The picture that is kept from now on.
  void show(JobPicture picture, UnixTime now);

  [[nodiscard]] const JobPicture& picture() const { return picture_; }
  /// The last ones, the newest one last.
  [[nodiscard]] const std::deque<Happening>& happenings() const { return happenings_; }
  /// The newest step of any rank, at most once a second.
  [[nodiscard]] const std::vector<StepPoint>& steps() const { return steps_; }
  /// Of each metric that ranks have logged, in the order in which they came; at most kMostNames.
  [[nodiscard]] const std::vector<Course>& courses() const { return courses_; }
  /// How many of this kind have happened, ever.
  [[nodiscard]] uint64_t count(const std::string& kind) const;
  /// Times that ranks have waited too long.
  [[nodiscard]] uint64_t waits() const { return waits_; }
  /// Of all processes that there were since this board was made.
  [[nodiscard]] StepHistograms step_histograms() const;
  [[nodiscard]] const HostLinks& links() const { return links_; }
  /// How fast what servers count grows, by its name (name_of()).
  [[nodiscard]] const Rates& table_rates() const { return table_rates_; }
  /// Of the last checkpoint; none: there is none.
  [[nodiscard]] const std::optional<uint64_t>& checkpoint() const { return checkpoint_; }

 private:
  void note_step(UnixTime now);
  void note_metrics(UnixTime now);
  void count_steps();
  void count_tables(UnixTime now);

  JobPicture picture_;
  std::deque<Happening> happenings_;
  std::vector<StepPoint> steps_;
  std::vector<Course> courses_;
  std::map<std::string, uint64_t> counts_;
  /// A process has an engine after the other, each of which counts from 0.
  struct Counted {
    StepHistograms before;  ///< Of engines that are no more.
    StepHistograms last;
  };
  std::map<std::string, Counted> counted_;  ///< By member.
  HostLinks links_;
  Rates table_rates_;
  uint64_t waits_ = 0;
  std::optional<uint64_t> checkpoint_;
};

/// The name of what a server counts of a table, such as "pulls".
[[nodiscard]] std::string name_of(const TablePart& part, std::string_view what);

/// The least and the most of what running ranks have told; none: nobody has.
struct StepRange {
  uint64_t least = 0;
  uint64_t most = 0;
};
[[nodiscard]] std::optional<StepRange> steps_of(const std::vector<RankRow>& ranks);
[[nodiscard]] bool runs(const RankRow& rank);

}  // namespace corro::dashboard
