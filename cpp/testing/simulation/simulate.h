// Simulation of schedules: runs the step arrays of all ranks of a group in one thread, for result,
// deadlocks, memory hazards and modelled time. Pure; for tests.
//
//   std::vector<Problem> problems = ...;                       // one a rank
//   std::vector<Schedule> schedules = generate_all(problems, Algorithm::kRing);
//   Status right = simulate(problems, schedules, {.seed = 7});  // names ranks and steps at fault
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "collective/schedule/schedule.h"
#include "collective/schedule/selection.h"

namespace corro::collective {

[[nodiscard]] std::vector<Schedule> generate_all(std::span<const Problem> problems,
                                                 Algorithm algorithm);

/// Checks that every send has exactly one receive with the same tag, count, strand and round at its
/// peer and the other way round, and that tags are unique between two ranks.
[[nodiscard]] Status check_messages(std::span<const Schedule> schedules);

/// Checks that no step touches memory that another step, which may run at the same time, writes;
/// that steps stay inside their buffers; and that a fold or copy overlaps its own target exactly or
/// not at all.
[[nodiscard]] Status check_memory(const Problem& problem, const Schedule& schedule);

struct SimulationOptions {
  uint64_t seed = 1;  ///< Of the order in which steps run and messages arrive.
  uint32_t buffered_messages =
      1;  ///< Between two ranks in one direction; 0: a send waits for its receive.
};
/// Runs the schedules in a seeded order on symbolic contents and compares every output: each
/// contribution is there exactly once, the post-scale was applied exactly once, all ranks of an
/// allreduce folded in the same order, and in the one that Schedule::order promises. A deadlock is
/// an error that names a step. Problems that belong together, one a rank; send and recv are
/// simulated with their counterpart.
[[nodiscard]] Status simulate(std::span<const Problem> problems,
                              std::span<const Schedule> schedules,
                              const SimulationOptions& options);

/// Returns the time at which the last rank is done, by the model of `links`: a message leaves
/// through its sender's port and enters through its receiver's, each of which passes one message at
/// a time, first come, first served; the two directions of a port are independent, and folds,
/// copies and marks take no time. Messages between hosts pass the ports of the hosts, those inside
/// one the ports of the ranks; without a topology all ranks are on one host.
[[nodiscard]] double simulated_time_us(std::span<const Schedule> schedules, uint64_t element_bytes,
                                       const LinkModels& links, const Topology* topology = nullptr);

}  // namespace corro::collective
