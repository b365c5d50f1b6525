// For tests and measurements: stage problems like those of large language models.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "plan/solve/stages.h"

namespace corro::plan {

struct LargeStageProblem {
  uint32_t layers = 96;
  uint32_t nodes = 128;  ///< Of 8 devices.
  uint32_t micro_batches = 64;
  /// Memory of a node in units of one layer's weights and states.
  double node_memory = 14;
};

/// Equal layers between an embedding and a head; whole nodes, in powers of two, to a stage. More
/// nodes share a stage's weights and micro-batches at some loss; what is in flight takes memory,
/// and where it does not fit a stage recomputes, at a third of its time more.
inline StageProblem large_stage_problem(const LargeStageProblem& shape) {
  StageProblem problem;
  problem.runs = {1, shape.layers - 2, 1};
  problem.devices = {shape.nodes};
  for (uint32_t units = 1; units <= shape.nodes; units *= 2) problem.meshes.push_back({0, units});
  problem.weights = {.slowest = shape.micro_batches - 1.0};
  problem.last_class = shape.micro_batches;
  problem.cost = [shape](const StageRange& range, const Mesh& mesh, uint32_t from_end) {
    double work = range.end - range.begin;
    if (range.begin == 0) work += 0.3;
    if (range.end == shape.layers) work += 0.7;
    const double units = mesh.units;
    const double in_flight = std::min(from_end, shape.micro_batches);
    const double time = work / std::pow(units, 0.93) + 0.02 * std::log2(units) + 0.01;
    const double weights = work * (0.4 + 0.6 / units);
    const double memory = shape.node_memory;
    if (weights + 0.5 * work * in_flight / units <= memory) return StageCost(time);
    if (weights + 0.04 * work * in_flight / units <= memory) return StageCost(time * 4 / 3);
    return StageCost(std::numeric_limits<double>::infinity());
  };
  return problem;
}

}  // namespace corro::plan
