// The planner: of all ways to train a model on a cluster, the best, with its proof.
//
//   CORRO_ASSIGN(const Decision decision, make_plan({.model = model, .cluster = cluster}));
//
// Policies are how others add to the search: each proposes, the planner costs what is proposed
// beside its own and takes the best.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "plan/search/decision.h"

namespace corro::plan {

/// Where to cut the chain of layers into stages.
struct CutQuestion {
  JobShape shape = {};
  std::vector<double> seconds = {};  ///< Of each layer, forward and backward of a micro-batch.
  std::vector<double> memory = {};   ///< Bytes that each layer takes with one micro-batch.
  double memory_limit = 0;
};
/// Answers with the first layer of each stage, ascending from 0; other answers are passed over.
using CutPolicy = std::function<std::vector<uint32_t>(const CutQuestion&)>;

/// How far each stage's forward may run ahead of its backward.
struct ScheduleQuestion {
  JobShape shape = {};
  std::vector<double> forward = {};   ///< Seconds of a micro-batch, by stage.
  std::vector<double> backward = {};  ///< The same.
  std::vector<uint32_t> most = {};    ///< Micro-batches whose activations fit, by stage.
};
/// Answers with 1 to `most` credits for each stage.
using SchedulePolicy = std::function<std::vector<uint32_t>(const ScheduleQuestion&)>;

/// Which device is which rank.
struct PlacementQuestion {
  JobShape shape = {};
  uint32_t devices = 0;
  std::function<double(uint32_t, uint32_t)> bandwidth = {};  ///< Bytes/s between two devices.
  std::vector<double> bytes = {};  ///< A step's, over a link of the tensor, context, data and
                                   ///< pipeline axis.
};
/// Answers with a device for each rank.
using PlacementPolicy = std::function<std::vector<uint32_t>(const PlacementQuestion&)>;

/// Immutable while a plan is made; called on the planning thread.
struct Policies {
  std::vector<std::pair<std::string, CutPolicy>> cuts = {};
  std::vector<std::pair<std::string, SchedulePolicy>> schedules = {};
  std::vector<std::pair<std::string, PlacementPolicy>> placements = {};
};

/// INVALID_ARGUMENT for a request that contradicts itself (pins that no shape has, a batch that
/// does not divide), RESOURCE_EXHAUSTED where nothing fits: by how much, where, and the smallest
/// change that would make it fit. Pure; the same request gives the same decision.
[[nodiscard]] Result<Decision> make_plan(const Request& request, const Policies& policies = {});

}  // namespace corro::plan
