// Policy: how long a job waits, and for what, when its members change. The roster asks it; who takes
// part, and with which rank, is the roster's own to decide.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

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
};

struct PolicyOptions {
  Duration replacement = Duration::zero();
  Duration gather = std::chrono::seconds(1);
  Duration back_off = std::chrono::seconds(1);  ///< After the second failure; doubled by each.
  Duration most_back_off = std::chrono::minutes(5);
};

/// The same wait after each loss and for each growth; of a slot none after its first failure.
[[nodiscard]] Policy standard_policy(const PolicyOptions& options);

}  // namespace corro::coord
