// What the flight recorders of a job's ranks remember, as Chrome's trace, which Perfetto shows.
//
//   write(file, format_trace(ranks, monotonic_now()));
//
// A rank is a process of the trace; its threads are its lanes: "operations" of a group, or a lane of
// a plan. What overlaps another operation of its lane is on a further thread of the same lane.
//
// An operation is up to three slices behind each other: "wait" until the last rank has come to it,
// "queued" until it starts here, and its own. Ranks come to an operation when they submit it; that of
// one lane with one number is the same on all of them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "obs/flight_recorder.h"

namespace corro::obs {

/// An operation, and the training step in which it began; modulo 2^40.
struct TracedOp {
  OpSnapshot op;
  uint64_t step = 0;
};
/// What a process did lately.
struct ProcessTrace {
  uint64_t step = 0;                 ///< The newest one; 0: it has told none.
  std::vector<TracedOp> operations;  ///< Oldest first.
};
/// As read_flight(): operations of the last `steps` steps and of this one, and those that are not
/// over. Of a process that tells no step all that is remembered.
[[nodiscard]] Result<ProcessTrace> trace_flight(int fd, uint32_t steps);

/// A rank of the job, and what it remembers.
struct TracedRank {
  int rank = 0;      ///< By which people know it.
  std::string host;  ///< "": the only one.
  /// Its times are those of one clock for all ranks; `waiting_for` is a TracedRank's `rank`.
  std::optional<ProcessTrace> process;
  std::string missing;  ///< Why there is none.
};

/// JSON. Times are in microseconds since the first one that is there; what is not over goes on until
/// `now`. `otherData` has as `note` for people what is not to be seen, "" if nothing is missing. Pure.
[[nodiscard]] std::string format_trace(std::span<const TracedRank> ranks, Time now);

}  // namespace corro::obs
