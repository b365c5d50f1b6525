// RankInquiry: asks running ranks what the commander wants to know: where the Python code of one
// of them is (ASK; the answer is in its end), the Python stacks of all of them (STACKS), and which
// operations they remember (TRACE).
#pragma once

#include <signal.h>

#include <string>

#include "agent/stack_dump.h"
#include "agent/station.h"

namespace corro::agent {

/// Loop-confined.
class RankInquiry {
 public:
  /// `mask`: the signal mask of py-spy.
  RankInquiry(Station& station, const sigset_t& mask) : station_(station), dumps_(mask) {}

  void hear(const Subject& about, const Start& start);
  void hear(const Subject& about, const Ask& ask);
  void hear(const Subject& about, const Stacks& stacks);
  void hear(const Subject& about, const Trace& trace);
  /// No other message asks.
  void hear(const Subject& /*about*/, const auto& /*other*/) {}

  /// Says the stacks that are there.
  void tick(Time now);
  /// When tick() has something to do.
  [[nodiscard]] Time due(Time now) const;

 private:
  Station& station_;
  StackDumps dumps_;
  std::string folder_;  ///< Of the ranks' program: py-spy may be beside it.
};

}  // namespace corro::agent
