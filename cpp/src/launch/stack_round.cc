#include "launch/stack_round.h"

#include <vector>

#include "agent/stack_dump.h"
#include "diagnosis/stacks.h"

namespace corro::launch {
namespace {

/// For py-spy, the process itself, and the way there and back.
constexpr Duration kStackAnswer = 2 * agent::kStackPatience + std::chrono::seconds(1);

}  // namespace

void StackRound::begin(std::span<const diagnosis::RankEnd> ends, Time now) {
  texts_.clear();
  round_.begin(ends, now, kStackAnswer);
}

void StackRound::take(size_t rank, const agent::Stack& stack) {
  if (round_.take(rank, stack.missing)) texts_[static_cast<int>(rank)] = stack.text;
}

std::string StackRound::finish() {
  std::vector<diagnosis::RankStacks> ranks;
  for (const RankRound::Rank& one : round_.finish())
    ranks.push_back(
        {.rank = one.rank, .host = one.host, .text = texts_[one.rank], .missing = one.missing});
  return diagnosis::format_stacks(ranks);
}

}  // namespace corro::launch
