// What happens in a job, event by event: for a file (--events), and for those who look at its
// progress (progress.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "diagnosis/report.h"
#include "io/fd.h"
#include "launch/appended_file.h"

namespace corro::launch {

enum class EventKind : uint8_t {
  kStarted,        ///< A rank's process runs.
  kJoined,         ///< It has met its agent: it is in corro.init().
  kStep,           ///< It has begun another step; those between two looks are left out.
  kCheckpoint,     ///< It has made a checkpoint durable; the cause is its folder, if that is known.
  kPlan,           ///< It has loaded a plan, with all others; the cause is the plan's name.
  kTraining,       ///< It says how training is beside its plan, or that it plans again, and why.
  kWaiting,        ///< Ranks wait too long for this one; without a cause: no longer.
  kEnded,          ///< Its process has ended; the cause is "" if all was well.
  kLost,           ///< A host's agent is gone, with its ranks.
  kServerLost,     ///< A table server has ended while ranks run, which go on; the cause says how.
  kServerStarted,  ///< One is started in the place of another one, or because the user asked for it.
  kServerLeft,     ///< One has ended in order while ranks run: its rows are on others.
  kPrepare,        ///< A new epoch comes, of this number.
  kEpoch,          ///< It has begun.
  kPolicy,         ///< The policy says how long is waited, or who goes, and why.
  kFenced,         ///< This rank takes no part any more: its process is killed.
  kHost,           ///< A host has come, goes, or cannot be used.
  kLead,           ///< Another coordinator goes on with the job.
  kStopped,        ///< It cannot go on, and why; it is being ended.
  kFailure,        ///< Who is to blame, and why; the job is over.
};
[[nodiscard]] std::string_view name_of(EventKind kind);

struct Event {
  EventKind kind = EventKind::kStarted;
  uint32_t epoch = 0;
  std::string host = {};
  int rank = -1;                                     ///< Of the epoch; -1: none.
  int place = -1;                                    ///< By which people know it; -1: none.
  std::optional<uint64_t> step = {};                 ///< None: not known.
  std::string cause = {};                            ///< One line for people.
  Duration age = {};                                 ///< So long ago it has happened.
  const diagnosis::FailureReport* report = nullptr;  ///< Of kFailure: all that is known; borrowed.
};

/// One JSON object in one line: time (seconds since 1970), event, epoch, host, rank, place, step,
/// cause; null for what there is none of. Ends with a newline.
[[nodiscard]] std::string format_event(const Event& event, double unix_time);

/// The file of --events: each event is in it before the next one happens. Loop-confined.
class EventFile {
 public:
  /// The failure says what to do.
  static Result<EventFile> create(const std::string& path, Earlier earlier = Earlier::kDropped);
  /// The first failure (a full disk) is returned, later ones are not.
  [[nodiscard]] Status append(const Event& event);

 private:
  EventFile(io::Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}
  io::Fd fd_;
  std::string path_;
  bool failed_ = false;
};

}  // namespace corro::launch
