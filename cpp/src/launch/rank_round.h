// RankRound: one question to all ranks, from asking to the last answer.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "diagnosis/verdict.h"

namespace corro::launch {

/// Loop-confined.
class RankRound {
 public:
  struct Rank {
    int rank = 0;  ///< Its place.
    std::string host;
    std::string missing;  ///< Why there is no answer; "": there is one.
  };

  /// Starts to wait for the answer of each rank that runs.
  void begin(std::span<const diagnosis::RankEnd> ends, Time now, Duration patience);
  [[nodiscard]] bool running() const { return due_ != Time::never(); }
  /// The rank has answered, or has said why it does not. False if nobody waits for that.
  [[nodiscard]] bool take(size_t rank, std::string missing);
  /// When it is over: at once if all have answered; never if nothing was asked.
  [[nodiscard]] Time due() const { return due_; }
  /// It is over. By place.
  [[nodiscard]] std::span<const Rank> finish();

 private:
  std::vector<Rank> ranks_;
  std::vector<bool> awaited_;
  size_t waiting_ = 0;
  Time due_ = Time::never();
};

}  // namespace corro::launch
