// StackRound: one question to all ranks for their Python stacks, from asking to the text.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "base/clock.h"
#include "diagnosis/stacks.h"

namespace corro::launch {

/// Loop-confined.
class StackRound {
 public:
  /// Starts to wait for the answer of each rank that runs.
  void begin(std::span<const diagnosis::RankEnd> ends, Time now);
  [[nodiscard]] bool running() const { return due_ != Time::never(); }
  void take(size_t rank, const agent::Stack& stack);
  /// When finish() has to be called: at once if all have answered; never if nothing was asked.
  [[nodiscard]] Time due() const { return due_; }
  /// What is said of all ranks.
  [[nodiscard]] std::string finish();

 private:
  std::vector<diagnosis::RankStacks> ranks_;
  size_t waiting_ = 0;
  Time due_ = Time::never();
};

}  // namespace corro::launch
