#include "base/power_of_two.h"
#include "collective/schedule/algorithms.h"
#include "collective/schedule/builder.h"
#include "collective/schedule/extras.h"

namespace corro::collective {
namespace {

/// The elements of slices [first, first + length) of `active`.
Range slices(uint64_t count, int32_t active, int32_t first, int32_t length) {
  const auto parts = static_cast<uint64_t>(active);
  const uint64_t begin = slice(count, parts, static_cast<uint64_t>(first)).begin;
  const Range last = slice(count, parts, static_cast<uint64_t>(first + length - 1));
  return {begin, last.begin + last.count - begin};
}

}  // namespace

/// Halves the vector with partners at distances P/2, ..., 1 until each rank has one slice of the
/// result, then doubles back. Cost: 2 log2 P steps, 2 (P-1)/P n bytes a rank each way; 2 more steps
/// of n bytes where P is no power of two. Source: Rabenseifner, "Optimization of collective
/// reduction operations" (2004), section 3.
Schedule rabenseifner(const Problem& problem) {
  const PowerOfTwo ids(problem.size);
  const auto steps = static_cast<uint32_t>(log2_ceil(ids.active));
  const uint32_t first_doubling = kExtrasFirstRound + 2 * steps;
  const uint32_t last_round = first_doubling + steps;
  Builder builder(1, last_round + 1);
  builder.folds_in(FoldOrder::kOther);
  if (ids.is_extra(problem.rank)) {
    hand_over(builder, problem, last_round);
    return builder.take();
  }
  const int32_t id = ids.id_of(problem.rank);
  const bool takes_extra = ids.has_extra(problem.rank);
  const uint64_t half =
      ids.active > 1 ? slices(problem.count, ids.active, 0, ids.active / 2).count : 0;
  const Block scratch = builder.scratch(takes_extra ? problem.count : half);
  Buffer have = take_over(builder, problem, scratch).buffer;
  int32_t first = 0;  // the slices this rank still works on
  uint32_t round = kExtrasFirstRound;
  for (int32_t distance = ids.active / 2; distance > 0; distance /= 2) {
    const int32_t other = id ^ distance;
    const bool upper = id > other;
    const int32_t kept_first = upper ? first + distance : first;
    const int32_t sent_first = upper ? first : first + distance;
    const Range kept = slices(problem.count, ids.active, kept_first, distance);
    const Range sent = slices(problem.count, ids.active, sent_first, distance);
    const Block incoming = part(scratch, 0, kept.count);
    const Block own{have, kept.begin, kept.count};
    const Block sources[] = {upper ? incoming : own, upper ? own : incoming};
    builder.at(0, round++);
    builder.send(ids.rank_of(other), {have, sent.begin, sent.count});
    builder.recv(ids.rank_of(other), incoming);
    builder.at(0, round++);
    builder.fold(output(kept), sources, distance == 1);
    have = Buffer::kOutput;
    first = kept_first;
  }
  for (int32_t distance = 1; distance < ids.active; distance *= 2) {
    const int32_t other = id ^ distance;
    builder.at(0, round++);
    builder.send(ids.rank_of(other), output(slices(problem.count, ids.active, first, distance)));
    const int32_t other_first = first ^ distance;
    builder.recv(ids.rank_of(other),
                 output(slices(problem.count, ids.active, other_first, distance)));
    first = first < other_first ? first : other_first;
  }
  hand_back(builder, problem, last_round);
  return builder.take();
}

}  // namespace corro::collective
