#include "launch/epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "launch/rank_start.h"

namespace corro::launch {
namespace {

std::vector<coord::MemberUuid> uuids_of(const std::vector<agent::Subject>& members) {
  std::vector<coord::MemberUuid> uuids;
  for (const agent::Subject& member : members) uuids.push_back(member.member);
  return uuids;
}

}  // namespace

Epochs::Epochs(const JobFacts& job, std::vector<agent::Subject> members, std::optional<int> least)
    : job_(job),
      members_(std::move(members)),
      ranks_(members_.size()),
      stopped_(members_.size()),
      elastic_(least.has_value()),
      options_{.least = least.value_or(job.ranks)},
      state_(coord::begin(uuids_of(members_))) {
  std::iota(ranks_.begin(), ranks_.end(), size_t{0});
}

std::optional<size_t> Epochs::place_of(const agent::Subject& about) const {
  const auto found = std::ranges::find_if(members_, [&](const agent::Subject& member) {
    return member.job == about.job && member.member == about.member &&
           member.incarnation == about.incarnation;
  });
  if (found == members_.end()) return std::nullopt;
  return static_cast<size_t>(found - members_.begin());
}

size_t Epochs::place_of(const coord::MemberUuid& uuid) const {
  const auto found = std::ranges::find(members_, uuid, &agent::Subject::member);
  CORRO_CHECK(found != members_.end(), members_.size());
  return static_cast<size_t>(found - members_.begin());
}

int Epochs::place_of_rank(int rank) const {
  const bool is_rank = rank >= 0 && static_cast<size_t>(rank) < ranks_.size();
  return is_rank ? static_cast<int>(ranks_[static_cast<size_t>(rank)]) : -1;
}

Epochs::Orders Epochs::end(size_t place, bool well, const std::string& how, Time now) {
  return hear(coord::Ended{.member = members_[place].member, .well = well, .how = how}, now);
}

Epochs::Orders Epochs::see(size_t place, bool stopped, Time now) {
  stopped_[place] = stopped ? stopped_[place] + 1 : 0;
  const auto runs = [this](size_t other) { return stopped_[other] == 0; };
  if (stopped_[place] < kFrozenLooks || std::ranges::none_of(ranks_, runs)) return {};
  const std::string how = fmt::format("rank {} was stopped by a signal, and does not go on", place);
  return hear(coord::Frozen{.member = members_[place].member, .how = how}, now);
}

Epochs::Orders Epochs::ready(size_t place, uint32_t epoch, Time now) {
  return hear(coord::Ready{.member = members_[place].member, .epoch = epoch}, now);
}

Epochs::Orders Epochs::hear(const coord::Event& event, Time now) {
  coord::Decision decision = coord::decide(now, std::move(state_), event, options_);
  state_ = std::move(decision.state);
  Orders orders;
  for (const coord::Action& action : decision.actions)
    std::visit([&](const auto& what) { carry_out(what, orders); }, action);
  return orders;
}

void Epochs::carry_out(const coord::Prepare& prepare, Orders& orders) {
  orders.why = prepare.why;
  orders.messages.push_back(
      {{.job = members_[0].job, .epoch = prepare.epoch}, agent::Prepare{.why = prepare.why}});
}

void Epochs::carry_out(const coord::Commit& commit, Orders& orders) {
  orders.begun = true;
  ranks_.clear();
  for (const coord::MemberUuid& uuid : commit.members) {
    agent::Subject& member = members_[ranks_.emplace_back(place_of(uuid))];
    member.epoch = commit.epoch;
    member.rank = static_cast<int32_t>(ranks_.size()) - 1;
  }
  for (size_t place = 0; place < members_.size(); ++place) {
    if (members_[place].epoch != commit.epoch) left_.insert(place);
  }
  orders.why = fmt::format("{} of {} ranks go on", ranks_.size(), members_.size());
  orders.messages.push_back(announce());
}

agent::Message Epochs::announce() const {
  std::vector<agent::Subject> by_rank;
  for (const size_t place : ranks_) by_rank.push_back(members_[place]);
  return announce_members(job_, by_rank, ranks_);
}

void Epochs::carry_out(const coord::Fence& fence, Orders& orders) {
  orders.fenced.push_back(place_of(fence.member));
}

void Epochs::carry_out(const coord::Stop& stop, Orders& orders) {
  orders.stop = true;
  orders.why = stop.why;
}

}  // namespace corro::launch
