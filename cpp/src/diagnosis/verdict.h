// Which rank is to blame: a pure function of how the ranks ended.
#pragma once

#include <sys/types.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnosis/traceback.h"
#include "obs/flight_recorder.h"
#include "obs/table_recorder.h"

namespace corro::diagnosis {

/// What is known about one rank.
struct RankEnd {
  int rank = 0;
  pid_t pid = 0;
  bool ended = false;
  bool stopped = false;  ///< It ended after the launcher had told it to stop.
  Time when{};
  int status = 0;                  ///< As from waitpid; only if ended.
  std::string out_of_memory = {};  ///< The limit, if the kernel killed it for that.
  Crash crash = {};
  std::optional<obs::ProcessSnapshot> flight = {};
  /// Of a rank that others gave up waiting for: where its Python code was then; file "" if unknown.
  Frame at = {};
  std::string host = {};  ///< Where it ran; "": where the commander is. Known to commanders.
  std::string lost = {};  ///< Why its host is lost, with it; "": it is not. Known to commanders.
  bool paused = false;    ///< It was stopped by a signal (SIGSTOP, a debugger) then.
  /// Of a process that runs and is a table server, or a rank that is one, too.
  std::vector<obs::TableCounts> tables = {};
};

struct Verdict {
  int culprit = -1;          ///< -1: nobody failed.
  std::vector<int> alike;    ///< Failed by themselves with the same kind of error.
  std::vector<int> victims;  ///< Failed because of the culprit, or were stopped.
  /// The rank that a victim was waiting for although it had ended in good order, or had left the
  /// job and was stopped on its way out; -1: none.
  int absent = -1;
  /// The rank that the culprit gave up waiting for, and which waited in another operation; -1: none.
  int elsewhere = -1;
  /// The ranks that gave up waiting for the culprit, the first one first: it failed nobody's call
  /// but did not come. Empty: the culprit failed by itself.
  std::vector<int> waited;
};

/// The end of that rank; null if it is none of `ends`.
[[nodiscard]] const RankEnd* find_rank(std::span<const RankEnd> ends, int rank);

/// Exit code of a rank as a shell shows it: its status, or 128 + signal.
[[nodiscard]] int exit_code(int status);
[[nodiscard]] bool ended_well(const RankEnd& end);
/// How a rank's process has ended: "killed by SIGKILL", "status 1"; "" if all was well.
[[nodiscard]] std::string describe_status(const RankEnd& end);
/// In the last epoch of a job that was asked to end: the rank has saved what it has.
[[nodiscard]] bool has_left(const RankEnd& end);
/// True if the rank only reports that another one was lost.
[[nodiscard]] bool is_witness(const RankEnd& end);
/// The rank whose loss a witness reports; -1 if it names none.
[[nodiscard]] int named_by(const RankEnd& witness);

/// True if the witness says that the rank that it names had left, not that its connection broke.
[[nodiscard]] bool saw_it_leave(const RankEnd& witness);

/// True if the rank failed because a deadline was over, waiting for another one.
[[nodiscard]] bool gave_up(const RankEnd& end);
/// The rank that one which gave up had waited for; -1 if it names none.
[[nodiscard]] int awaited_by(const RankEnd& end);

/// Chooses the first rank in time that failed by itself; if none did, one that had printed an error
/// of its own before it was stopped, if another rank reports its loss. Where the others only gave up
/// at a deadline it is the rank that they waited for, in turn, or, where that one waited in another
/// operation, the first one that gave up. A rank that only reports another's
/// loss is chosen last: the first of them.
[[nodiscard]] Verdict decide_culprit(std::span<const RankEnd> ends);

}  // namespace corro::diagnosis
