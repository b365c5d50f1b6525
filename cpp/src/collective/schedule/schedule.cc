#include "collective/schedule/schedule.h"

#include <array>

#include "base/check.h"
#include "collective/schedule/algorithms.h"

namespace corro::collective {
namespace {

/// By Algorithm.
constexpr std::array<Schedule (*)(const Problem&), kAlgorithmCount> kGenerators = {
    one_shot, two_shot, ring,  recursive_doubling, rabenseifner,
    binomial, direct,   bruck, two_level,          two_shot};

bool well_formed(const Problem& problem) {
  const auto in_group = [&](int32_t rank) { return rank >= 0 && rank < problem.size; };
  const auto per_rank = [&](std::span<const uint64_t> counts) {
    return counts.empty() || counts.size() == static_cast<size_t>(problem.size);
  };
  const bool pair = is_pair(problem.kind);
  return problem.size >= 1 && in_group(problem.rank) && in_group(problem.root) &&
         per_rank(problem.counts) && per_rank(problem.send_counts) &&
         !(pair && problem.root == problem.rank) && problem.aggregators >= 0 &&
         problem.aggregators < problem.size &&
         (problem.topology == nullptr || problem.topology->size() == problem.size);
}

/// True if ranks pass on sums of some contributions.
bool folds_partially(Algorithm algorithm, OpKind kind) {
  const bool folds =
      kind == OpKind::kAllreduce || kind == OpKind::kReducescatter || kind == OpKind::kReduce;
  return folds && algorithm != Algorithm::kOneShot && algorithm != Algorithm::kTwoShot &&
         algorithm != Algorithm::kDirect && algorithm != Algorithm::kServed;
}

}  // namespace

Problem served_problem(const Problem& contributors, int32_t aggregators, Algorithm folds_as,
                       int32_t rank) {
  Problem problem = contributors;
  problem.size += aggregators;
  problem.rank = rank;
  problem.aggregators = aggregators;
  problem.folds_as = folds_as;
  problem.topology = nullptr;
  return problem;
}

bool supports(Algorithm algorithm, const Problem& problem) {
  if (!well_formed(problem)) return false;
  if (!can_do(algorithm, problem.kind)) return false;
  if (problem.whole && algorithm != Algorithm::kRecursiveDoubling) return false;
  if (problem.at_once && folds_partially(algorithm, problem.kind)) return false;
  if ((algorithm == Algorithm::kServed) != (problem.aggregators > 0)) return false;
  if (algorithm == Algorithm::kServed) {
    return problem.folds_as == Algorithm::kTwoShot ||
           (problem.folds_as == Algorithm::kRing && !problem.at_once);
  }
  if (algorithm == Algorithm::kTwoLevel &&
      (problem.topology == nullptr || !problem.topology->two_levels())) {
    return false;
  }
  const bool uneven = !problem.counts.empty() || !problem.send_counts.empty();
  return algorithm == Algorithm::kDirect || problem.kind != OpKind::kAlltoall || !uneven;
}

Schedule generate(const Problem& problem, Algorithm algorithm) {
  CORRO_CHECK(supports(algorithm, problem), name_of(algorithm), name_of(problem.kind), problem.size,
              problem.rank);
  return kGenerators[static_cast<size_t>(algorithm)](problem);
}

}  // namespace corro::collective
