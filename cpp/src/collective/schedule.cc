#include "collective/schedule.h"

#include <array>

#include "base/check.h"
#include "collective/algorithms.h"

namespace corro::collective {
namespace {

using enum OpKind;

struct Entry {
  std::string_view name;
  Schedule (*generate)(const Problem&);
  uint32_t kinds;  ///< Bit set of OpKind.
};

template <typename... Kinds>
constexpr uint32_t set_of(Kinds... kinds) {
  return ((1U << static_cast<uint32_t>(kinds)) | ...);
}

/// By Algorithm.
constexpr std::array<Entry, kAlgorithmCount> kEntries = {{
    {"one_shot", one_shot, set_of(kAllreduce)},
    {"two_shot", two_shot, set_of(kAllreduce, kReducescatter)},
    {"ring", ring, set_of(kAllreduce, kReducescatter, kAllgather, kBroadcast)},
    {"recursive_doubling", recursive_doubling, set_of(kAllreduce)},
    {"rabenseifner", rabenseifner, set_of(kAllreduce)},
    {"binomial", binomial, set_of(kBroadcast, kReduce, kGather, kScatter, kBarrier)},
    {"direct", direct,
     set_of(kBroadcast, kReduce, kGather, kScatter, kAllgather, kAlltoall, kBarrier, kSend, kRecv)},
    {"bruck", bruck, set_of(kAllgather, kAlltoall)},
}};

const Entry& entry(Algorithm algorithm) { return kEntries[static_cast<size_t>(algorithm)]; }

bool well_formed(const Problem& problem) {
  const auto in_group = [&](int32_t rank) { return rank >= 0 && rank < problem.size; };
  const auto per_rank = [&](std::span<const uint64_t> counts) {
    return counts.empty() || counts.size() == static_cast<size_t>(problem.size);
  };
  const bool pair = problem.kind == kSend || problem.kind == kRecv;
  return problem.size >= 1 && in_group(problem.rank) && in_group(problem.root) &&
         per_rank(problem.counts) && per_rank(problem.send_counts) &&
         !(pair && problem.root == problem.rank) && problem.aggregators >= 0 &&
         problem.aggregators < problem.size;
}

}  // namespace

bool supports(Algorithm algorithm, const Problem& problem) {
  if (!well_formed(problem)) return false;
  if ((entry(algorithm).kinds & set_of(problem.kind)) == 0) return false;
  if (problem.aggregators > 0) {
    return algorithm == Algorithm::kTwoShot && problem.kind == kAllreduce;
  }
  const bool uneven = !problem.counts.empty() || !problem.send_counts.empty();
  return !(algorithm == Algorithm::kBruck && problem.kind == kAlltoall && uneven);
}

Schedule generate(const Problem& problem, Algorithm algorithm) {
  CORRO_CHECK(supports(algorithm, problem), name_of(algorithm), name_of(problem.kind), problem.size,
              problem.rank);
  return entry(algorithm).generate(problem);
}

std::string_view name_of(Algorithm algorithm) { return entry(algorithm).name; }

}  // namespace corro::collective
