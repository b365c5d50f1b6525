// When each stage of a pipeline works on which micro-batch, by the cost model's times.
//
// Each stage has its micro-batches in a fixed order, and begins a piece of work when the one before
// it in that order is done and its neighbour has handed over what it needs. A hop occupies the
// stage that receives, as in step_cost.h, so a step of equal stages takes as long as the formula
// says. Zero bubble has no fixed order: what its stages do is what the executor does in virtual
// time, by which the planner simulates a step.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/search/decision.h"

namespace corro::plan {

/// kBackward is all of it, but for zero bubble, which has the gradients of weights by themselves.
enum class Work : uint8_t { kForward, kBackward, kWeightGradients, kSync, kUpdate };
inline constexpr int kWorkCount = 5;
[[nodiscard]] constexpr std::string_view name_of(Work work) {
  constexpr std::string_view kNames[] = {"forward", "backward", "weight_gradients", "sync",
                                         "update"};
  return kNames[static_cast<size_t>(work)];
}

struct Block {
  uint32_t stage = 0;
  Work work = Work::kForward;
  uint32_t chunk = 0;
  uint32_t micro_batch = 0;
  double start = 0;  ///< Seconds.
  double end = 0;
};

struct Timeline {
  std::vector<Block> blocks = {};
  double end = 0;         ///< Of what is shown: blocks may end later.
  bool is_whole = false;  ///< A whole step, with what comes at its end.
};

inline constexpr uint32_t kMostDrawnStages = 64;

/// Work of one stage, in its order.
struct Turn {
  Work work = Work::kForward;
  uint32_t chunk = 0;
  uint32_t micro_batch = 0;
  bool operator==(const Turn&) const = default;
};
/// 1F1B (Narayanan et al., SC'21, §2.2), its interleaved form where chunks allow it (as many
/// micro-batches as a multiple of stages), or GPipe.
[[nodiscard]] std::vector<Turn> turns_of(const JobShape& shape, uint32_t stage);

/// All of a step if it is short, otherwise its first part. Without blocks for more stages than
/// kMostDrawnStages, and for a candidate whose stages are not as many as its shape says.
[[nodiscard]] Timeline timeline_of(const Candidate& candidate);

}  // namespace corro::plan
