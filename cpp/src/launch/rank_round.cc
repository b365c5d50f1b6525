#include "launch/rank_round.h"

#include <utility>

namespace corro::launch {

void RankRound::begin(std::span<const diagnosis::RankEnd> ends, Time now, Duration patience) {
  ranks_.clear();
  awaited_.clear();
  waiting_ = 0;
  for (int rank = 0; rank < std::ssize(ends); ++rank) {
    const diagnosis::RankEnd& end = ends[static_cast<size_t>(rank)];
    const bool runs = end.pid != 0 && !end.ended;
    ranks_.push_back({.rank = rank,
                      .host = end.host,
                      .missing = end.pid == 0 ? "not started yet"
                                 : end.ended  ? "has ended"
                                              : "its host does not answer"});
    awaited_.push_back(runs);
    if (runs) ++waiting_;
  }
  due_ = waiting_ == 0 ? now : now + patience;
}

bool RankRound::take(size_t rank, std::string missing) {
  if (!running() || rank >= awaited_.size() || !awaited_[rank]) return false;
  awaited_[rank] = false;
  ranks_[rank].missing = std::move(missing);
  if (--waiting_ == 0) due_ = Time{};
  return true;
}

std::span<const RankRound::Rank> RankRound::finish() {
  due_ = Time::never();
  return ranks_;
}

}  // namespace corro::launch
