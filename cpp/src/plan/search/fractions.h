// Fractions of layers: the relaxation behind fractional_bound().
//
// A stage may hold a fraction of a layer and mix the ways to keep it, so what it holds within a
// period is a linear program with two rows, time and memory. A stage nearer to the pipeline's
// beginning has more micro-batches in flight and holds less. Which stage is on which pool's unit is
// the relaxation's to choose. What a micro-batch takes through all stages relaxes further: their
// memory is one.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/cost/step_cost.h"

namespace corro::plan {

/// A way of keeping a layer, or a mix of ways: seconds of a micro-batch, and bytes of each.
struct Way {
  double seconds;
  double kept;
};

/// The ways to keep a layer of a run. As much may move to host memory as the computing of the whole
/// stage hides, of which the other runs' is the most that it can have; the rest shows.
/// By growing bytes and falling seconds, without those that a mix of others beats.
[[nodiscard]] std::vector<Way> ways_of(const StageCoster& costs, uint32_t run, double others,
                                       bool offloads);

/// The units of one pool, for the layers of one run.
struct PoolOfFractions {
  std::vector<Way> ways;
  std::vector<double> flights;  ///< Micro-batches in flight of the last stage, the one before, ...
  double fixed = 0;             ///< Bytes of a layer, whatever is kept.
  double limit = 0;             ///< Bytes of a device for all that.
  uint32_t units = 0;
};

/// Most layers that `stages` stages hold within `period` seconds of a micro-batch, each on a unit
/// of its own; 0 if there are fewer units than stages. Takes time by the product of the numbers of
/// units, of which one is not counted.
[[nodiscard]] double layers_held(const std::vector<PoolOfFractions>& pools, uint32_t stages,
                                 double period);

/// Seconds of a micro-batch beyond those of the fastest way that `layers` layers take at least on
/// `stages` units of the pool, all together: as if their memory were one, and every stage had as
/// few micro-batches in flight as the last one.
[[nodiscard]] double least_slowing(const PoolOfFractions& pool, double layers, uint32_t stages);

}  // namespace corro::plan
