// The graph of a decision: what the executor runs, in virtual time here, for real elsewhere.
#pragma once

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

/// Micro-batches that stage `stage` may have in flight.
[[nodiscard]] uint32_t credits_of(const JobShape& shape, uint32_t stage);

/// Seconds of a step of the candidate: one replica in virtual time, and the step's end. Fails only
/// for a graph that would stand still.
[[nodiscard]] Result<double> simulate(const Candidate& candidate,
                                      const std::vector<uint32_t>& credits = {});

}  // namespace corro::plan
