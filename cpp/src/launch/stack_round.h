// StackRound: one question to all ranks for their Python stacks, from asking to the text.
#pragma once

#include <map>
#include <span>
#include <string>

#include "agent/messages.h"
#include "launch/rank_round.h"

namespace corro::launch {

/// Loop-confined.
class StackRound {
 public:
  /// Starts to wait for the answer of each rank that runs.
  void begin(std::span<const diagnosis::RankEnd> ends, Time now);
  [[nodiscard]] bool running() const { return round_.running(); }
  void take(size_t rank, const agent::Stack& stack);
  /// When finish() has to be called.
  [[nodiscard]] Time due() const { return round_.due(); }
  /// What is said of all ranks.
  [[nodiscard]] std::string finish();

 private:
  RankRound round_;
  std::map<int, std::string> texts_;  ///< By place.
};

}  // namespace corro::launch
