// What the dashboard shows of a job: plain values, made by whoever runs it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/duration_histogram.h"
#include "base/unix_time.h"

namespace corro::dashboard {

enum class RankState : uint8_t {
  kStarting,  ///< Its process is being started.
  kRunning,
  kPaused,   ///< A signal or a debugger has stopped its process.
  kDone,     ///< It has ended, and all was well.
  kStopped,  ///< It was ended with the job, or by the loss of another rank.
  kFailed,   ///< It has ended badly.
  kLost,     ///< It was lost with its host.
};
[[nodiscard]] std::string_view name_of(RankState state);

/// The newest value that a rank has logged under a name.
struct LoggedValue {
  std::string name = {};
  double value = 0;  ///< Finite or not.
  uint64_t step = 0;
  bool operator==(const LoggedValue&) const = default;
};

/// A process of the job, or the last one in its place.
struct RankRow {
  int place = 0;            ///< By which the screen, logs and causes name the rank.
  int rank = -1;            ///< Of the epoch; -1: it is not in it.
  std::string member = {};  ///< Equal as long as it is the same process: 32 hexadecimal digits.
  std::string host = {};
  RankState state = RankState::kStarting;
  std::optional<uint64_t> step = {};  ///< None: it has told none.
  std::string operation = {};         ///< The one that says most: "allreduce #2 (f64 x 1)".
  std::string phase = {};             ///< Of that: "transfer", "done".
  int awaits = -1;                    ///< The place of the rank whose data it waits for; -1: none.
  int pid = 0;
  std::string cause = {};                   ///< Why it is no more; "": it is, or all was well.
  std::optional<uint64_t> of = {};          ///< Steps of the whole training; none: it has not told.
  std::optional<uint64_t> done = {};        ///< The step in the count of `of`; none without it.
  std::optional<double> step_seconds = {};  ///< That a step takes; none: none has ended.
  std::optional<double> wait_share = {};    ///< Which part of that it waits: 0 to 1.
  std::vector<LoggedValue> values = {};
};

/// How long steps of a process took, since its engine was made.
struct StepsOfMember {
  std::string member;  ///< RankRow::member.
  StepHistograms steps;
};

/// What a process has sent to those of a host, since its engine was made.
struct LinkOfMember {
  std::string member = {};  ///< RankRow::member.
  std::string from = {};    ///< Its host.
  std::string to = {};      ///< The other one, or the same. "": several.
  uint64_t bytes = 0;       ///< Of messages, but for what goes through memory that both have.
  bool operator==(const LinkOfMember&) const = default;
};

/// What one server keeps of a table, and has done with it since it was started.
struct TablePart {
  std::string table = {};
  int server = 0;  ///< Its number; with servers in the ranks, the rank's place.
  std::string host = {};
  uint64_t rows = 0;
  uint64_t bytes = 0;   ///< Of memory that the rows take.
  uint64_t shards = 0;  ///< That it serves.
  uint64_t steps = 0;   ///< That the table has taken.
  uint64_t pulls = 0;   ///< Messages.
  uint64_t pulled_rows = 0;
  uint64_t pushes = 0;  ///< Messages.
  uint64_t pushed_rows = 0;
  /// From hearing, or from the step that was waited for, to answering: of the last pulls, about 1000.
  Duration pull_p99{};
  bool operator==(const TablePart&) const = default;
};

enum class JobState : uint8_t {
  kOpening,  ///< No rank was started yet.
  kRunning,
  kWaiting,  ///< Ranks wait too long for one.
  kEnding,   ///< The ranks are being ended.
  kDone,     ///< It is over, and all was well.
  kFailed,   ///< It is over.
};
inline constexpr size_t kJobStates = 6;
[[nodiscard]] std::string_view name_of(JobState state);

struct JobPicture {
  std::string job = {};      ///< Its name: CORRO_JOB_ID.
  std::string command = {};  ///< As it was typed.
  JobState state = JobState::kOpening;
  std::string summary = {};  ///< One sentence for people: what is going on.
  uint32_t epoch = 0;
  UnixTime started{};
  uint64_t lost = 0;                      ///< Ranks that have failed or were lost, ever.
  std::string plan = {};                  ///< That ranks follow: JSON of theirs; "": none was told.
  std::vector<RankRow> ranks = {};        ///< By place.
  std::vector<StepsOfMember> steps = {};  ///< Of those whose steps have ended; no history has them.
  std::vector<LinkOfMember> links = {};   ///< That something went over.
  std::vector<TablePart> tables = {};     ///< By table and server; only of servers that run.
};

/// An event of the job, as a line of --events has it.
struct Happening {
  UnixTime at{};
  std::string kind = {};
  uint32_t epoch = 0;
  int rank = -1;   ///< -1: none.
  int place = -1;  ///< -1: none.
  std::string host = {};
  std::optional<uint64_t> step = {};
  std::string cause = {};
};

}  // namespace corro::dashboard
