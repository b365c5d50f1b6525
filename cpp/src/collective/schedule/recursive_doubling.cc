#include "base/power_of_two.h"
#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"
#include "collective/schedule/extras.h"

namespace corro::collective {

/// Pairs at distances 1, 2, 4, ... exchange what they have and both fold it, the lower id first:
/// equal bits. No vector is ever cut. Cost: log2 P steps of n bytes; 2 more steps where P is no
/// power of two. Source: Thakur, Rabenseifner, Gropp (2005), section 4.5.
Schedule recursive_doubling(const Problem& problem) {
  const PowerOfTwo ids(problem.size);
  const int32_t steps = log2_ceil(ids.active);
  Builder builder(1, kExtrasFirstRound + 2 * static_cast<uint32_t>(steps) + 1);
  builder.folds_in(FoldOrder::kOther);
  const Range whole{0, problem.count};
  const uint32_t last_round = kExtrasFirstRound + 2 * static_cast<uint32_t>(steps);
  if (ids.is_extra(problem.rank)) {
    hand_over(builder, problem, last_round);
    return builder.take();
  }
  const Block incoming = builder.scratch(problem.size > 1 ? problem.count : 0);
  Block have = take_over(builder, problem, incoming);
  const int32_t id = ids.id_of(problem.rank);
  for (int32_t step = 0; step < steps; ++step) {
    const int32_t other = id ^ (int32_t{1} << step);
    builder.at(0, kExtrasFirstRound + 2 * static_cast<uint32_t>(step));
    builder.send(ids.rank_of(other), have);
    builder.recv(ids.rank_of(other), incoming);
    const Block sources[] = {id < other ? have : incoming, id < other ? incoming : have};
    builder.at(0, kExtrasFirstRound + 2 * static_cast<uint32_t>(step) + 1);
    builder.fold(output(whole), sources, step == steps - 1);
    have = output(whole);
  }
  hand_back(builder, problem, last_round);
  return builder.take();
}

}  // namespace corro::collective
