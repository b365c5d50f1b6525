// The first and last rounds of halving and doubling where the ranks are no power of two (see
// PowerOfTwo).
#pragma once

#include "base/power_of_two.h"
#include "collective/schedule/builder.h"

namespace corro::collective {

inline constexpr uint32_t kExtrasFirstRound = 2;  ///< Rounds 0 and 1 belong to take_over().

/// An extra rank: sends its vector, takes the result in `last_round`.
inline void hand_over(Builder& builder, const Problem& problem, uint32_t last_round) {
  const Range whole{0, problem.count};
  builder.at(0, 0);
  builder.send(problem.rank - 1, input(whole));
  builder.at(0, last_round);
  builder.recv(problem.rank - 1, output(whole));
}

/// An active rank: folds its extra's vector into its own, if it has one. Returns where the partial
/// result is. A group of one folds its own vector and is done.
[[nodiscard]] inline Block take_over(Builder& builder, const Problem& problem, Block incoming) {
  const PowerOfTwo ids(problem.size);
  const Range whole{0, problem.count};
  if (problem.size == 1) {
    const Block own = input(whole);
    builder.at(0, 0);
    builder.fold(output(whole), {&own, 1}, true);
  }
  if (!ids.has_extra(problem.rank)) return input(whole);
  builder.at(0, 0);
  builder.recv(problem.rank + 1, incoming);
  const Block sources[] = {input(whole), incoming};
  builder.at(0, 1);
  builder.fold(output(whole), sources, false);
  return output(whole);
}

/// An active rank: sends the result to its extra, if it has one.
inline void hand_back(Builder& builder, const Problem& problem, uint32_t last_round) {
  if (!PowerOfTwo(problem.size).has_extra(problem.rank)) return;
  builder.at(0, last_round);
  builder.send(problem.rank + 1, output({0, problem.count}));
}

}  // namespace corro::collective
