// Progress: what people see of a job who have not its screen, as in the status of a job of
// Kubernetes.
//
//   ProgressWatch watch;
//   watch.hear(event, ranks, now, wall_now());   // each event of the job
//   if (now >= watch.due()) show(format_progress(watch.take(now)));
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/unix_time.h"
#include "launch/events.h"

namespace corro::launch {

struct Progress {
  /// Of who takes part, and why.
  struct Change {
    UnixTime at{};
    std::string text;
  };

  /// One that is durable.
  struct Checkpoint {
    uint64_t step = 0;
    UnixTime at{};
    std::string path;  ///< Its folder, as the rank says that has finished it; "": not known.
  };

  uint32_t epoch = 0;
  size_t ranks = 0;   ///< Of the epoch.
  uint64_t step = 0;  ///< The newest that a rank has begun.
  /// Steps a second, of the last ten; 0: there is none any more. None: not known.
  std::optional<double> rate = std::nullopt;
  std::string plan = {};  ///< The name of the one that was loaded last; "": not known.
  std::optional<Checkpoint> checkpoint = std::nullopt;  ///< The last one; none: not known.
  std::vector<Change> changes;                          ///< The last eight, the newest one last.
};

/// One JSON object: epoch, ranks, step, stepsPerSecond, plan and lastCheckpoint (step, time, path) as
/// far as they are known, and changes, each with its time and text. Times are RFC 3339 with six digits
/// of a second.
[[nodiscard]] std::string format_progress(const Progress& progress);

/// Pure. Loop-confined.
class ProgressWatch {
 public:
  /// `ranks`: of the epoch in which it happens.
  void hear(const Event& event, size_t ranks, Time now, UnixTime clock);
  /// When people should see it: at once after a change, else five seconds after they have seen it
  /// last, and once no step has come for ten seconds and for two steps' time; Time::never() while
  /// they know all.
  [[nodiscard]] Time due() const;
  /// They see it now.
  [[nodiscard]] const Progress& take(Time now);

 private:
  void hear_step(uint64_t step, Time now);
  void hear_checkpoint(const Event& event, UnixTime at);
  void hear_plan(const Event& event, UnixTime at);
  [[nodiscard]] Time stands_still_at() const;

  Progress progress_;
  UnixTime planned_at_{};                        ///< When the plan was loaded.
  std::deque<std::pair<Time, uint64_t>> steps_;  ///< Of the epoch, of the last seconds.
  std::optional<Time> stepped_;                  ///< When the newest step was heard.
  Time taken_{};
  bool is_new_ = false;     ///< Something is not seen yet.
  bool is_change_ = false;  ///< It is a change.
};

}  // namespace corro::launch
