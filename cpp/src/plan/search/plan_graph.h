// The graph of a decision: what the executor runs, in virtual time here, for real elsewhere.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "graph/plan.h"
#include "plan/search/decision.h"

namespace corro::plan {

/// One micro-batch a generation. Ranks are numbered tensor first, then context, data, pipeline.
/// Each rank has a lane, and of each chunk of its stage a forward and a backward, joined by a stash
/// with as many slots as micro-batches may be in flight there; `credits` gives other numbers by
/// stage. `replicas` of 0: all ranks; else so many data-parallel ones, one rank for each tensor-
/// and context-parallel group.
[[nodiscard]] graph::Plan graph_of(const Candidate& candidate, uint32_t replicas,
                                   const std::vector<uint32_t>& credits = {});

/// What a stage does for a micro-batch, in virtual time.
struct Firing {
  enum class Kind : uint8_t { kForward, kBackward, kWeights };
  uint32_t stage = 0;
  Kind kind = Kind::kForward;  ///< Of zero bubble, backward ends before the gradients of weights.
  uint32_t micro_batch = 0;
  double start = 0;  ///< Seconds.
  double end = 0;
};

/// All that the stages of one pipeline do for the first `micro_batches`, as simulate() has it, in
/// the order of their ends. For candidates of one chunk. Fails as simulate() does.
[[nodiscard]] Result<std::vector<Firing>> firings_of(const Candidate& candidate,
                                                     uint32_t micro_batches);

/// Micro-batches that stage `stage` may have in flight.
[[nodiscard]] uint32_t credits_of(const JobShape& shape, uint32_t stage);

/// Seconds of a step of the candidate: one replica in virtual time, and the step's end. Fails only
/// for a graph that would stand still.
[[nodiscard]] Result<double> simulate(const Candidate& candidate,
                                      const std::vector<uint32_t>& credits = {});

}  // namespace corro::plan
