#include "launch/stack_round.h"

#include "agent/stack_dump.h"

namespace corro::launch {
namespace {

/// For py-spy, the process itself, and the way there and back.
constexpr Duration kPatience = 2 * agent::kStackPatience + std::chrono::seconds(1);
constexpr std::string_view kAsked = "its host does not answer";

}  // namespace

void StackRound::begin(std::span<const diagnosis::RankEnd> ends, Time now) {
  ranks_.clear();
  waiting_ = 0;
  for (int rank = 0; rank < std::ssize(ends); ++rank) {
    const diagnosis::RankEnd& end = ends[static_cast<size_t>(rank)];
    const std::string_view missing = end.pid == 0 ? "not started yet"
                                     : end.ended  ? "has ended"
                                                  : kAsked;
    ranks_.push_back({.rank = rank, .host = end.host, .text = "", .missing = std::string(missing)});
    if (missing == kAsked) ++waiting_;
  }
  due_ = waiting_ == 0 ? now : now + kPatience;
}

void StackRound::take(size_t rank, const agent::Stack& stack) {
  if (!running() || ranks_[rank].missing != kAsked) return;
  ranks_[rank].text = stack.text;
  ranks_[rank].missing = stack.missing;
  if (--waiting_ == 0) due_ = Time{};
}

std::string StackRound::finish() {
  due_ = Time::never();
  return diagnosis::format_stacks(ranks_);
}

}  // namespace corro::launch
