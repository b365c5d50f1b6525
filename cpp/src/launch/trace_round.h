// TraceRound: one question to all ranks for the operations that they remember, from asking to the
// trace.
#pragma once

#include <map>
#include <span>
#include <string>

#include "launch/rank_round.h"
#include "obs/flight_trace.h"

namespace corro::launch {

/// Loop-confined.
class TraceRound {
 public:
  /// Starts to wait for the answer of each rank that runs.
  void begin(std::span<const diagnosis::RankEnd> ends, Time now);
  [[nodiscard]] bool running() const { return round_.running(); }
  /// `process`: with times of the launcher's clock, and places for ranks; none: it has no engine.
  void take(size_t rank, std::optional<obs::ProcessTrace> process);
  /// When finish() has to be called.
  [[nodiscard]] Time due() const { return round_.due(); }
  /// JSON of Chrome's trace.
  [[nodiscard]] std::string finish(Time now);

 private:
  RankRound round_;
  std::map<int, obs::ProcessTrace> processes_;  ///< By place.
};

}  // namespace corro::launch
