// Policy: how long a job waits, and for what, when its members change; and who goes where two sides
// do not reach each other. The roster asks it; whether a side may go, and with which rank the others
// take part, is the roster's own to decide.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace corro::coord {

/// Members were lost, and others may come in their place.
struct Loss {
  std::string how;   ///< For people: "rank 1 was killed by SIGKILL".
  size_t left = 0;   ///< Members that are left.
  size_t size = 0;   ///< With how many the epoch began.
  size_t least = 0;  ///< With fewer the job waits anyway.
};
/// A joiner is the first one that waits to be taken in.
struct Growth {
  size_t size = 0;    ///< Members.
  size_t coming = 0;  ///< Joiners that were started, with this one.
  size_t most = 0;    ///< Members that the job may have.
};
/// The process in a slot has failed.
struct Failure {
  size_t host = 0;
  int failures = 0;  ///< In a row, with this one.
};

/// Members live, and do not reach each other.
struct Cut {
  struct Side {
    size_t host = 0;              ///< Its members are all on this one.
    std::vector<size_t> members;  ///< Places among those that are left, in the order of ranks.
    size_t accusers = 0;          ///< Members that have lost one of these.
  };
  std::string how;          ///< For people: "rank 1 has lost rank 0".
  std::vector<Side> sides;  ///< Two or more, by their first members.
};

struct Verdict {
  size_t side = 0;       ///< That has to go.
  std::string why = {};  ///< For people; "": there is nothing to say.
};
struct Wait {
  Duration span{};
  std::string why = {};  ///< For people; "": there is nothing to say.
};

/// Pure functions: each says the same of the same.
struct Policy {
  /// For as many members as there were, before the others go on without.
  std::function<Wait(const Loss&)> replace;
  /// For the other joiners, before those that wait are taken in.
  std::function<Wait(const Growth&)> gather;
  /// Until another process is started in the slot.
  std::function<Wait(const Failure&)> quarantine;
  /// Which side of a cut link goes.
  std::function<Verdict(const Cut&)> fence;
};

struct PolicyOptions {
  Duration replacement = Duration::zero();
  Duration gather = std::chrono::seconds(1);
  Duration back_off = std::chrono::seconds(1);  ///< After the second failure; doubled by each.
  Duration most_back_off = std::chrono::minutes(5);
};

/// The same wait after each loss and for each growth; of a slot none after its first failure. Of two
/// sides the one goes that more members have lost, else the smaller one, else the one of the later
/// ranks.
[[nodiscard]] Policy standard_policy(const PolicyOptions& options);

}  // namespace corro::coord
