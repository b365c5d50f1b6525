#include "launch/epochs.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <numeric>
#include <set>
#include <utility>
#include <variant>

#include "io/random.h"
#include "launch/rank_start.h"

namespace corro::launch {
namespace {

std::vector<coord::MemberUuid> uuids_of(const std::vector<agent::Subject>& members, int count) {
  std::vector<coord::MemberUuid> uuids;
  for (const agent::Subject& member : members) uuids.push_back(member.member);
  uuids.resize(static_cast<size_t>(count));
  return uuids;
}

}  // namespace

Epochs::Epochs(const JobFacts& job, std::vector<agent::Subject> members,
               const std::optional<coord::Options>& options)
    : job_(job),
      members_(std::move(members)),
      ranks_(static_cast<size_t>(job.ranks)),
      stopped_(members_.size()),
      elastic_(options.has_value()),
      options_(options.value_or(coord::Options{.least = job.ranks})),
      state_(coord::begin(uuids_of(members_, job.ranks), 0)) {
  std::iota(ranks_.begin(), ranks_.end(), size_t{0});
  for (size_t host = 0; host < job_.hosts.size(); ++host) {
    for (int number = 0; number < job_.hosts[host].slots(); ++number)
      slots_.push_back({.host = host, .number = number});
  }
  state_.slots.resize(slots_.size());
  for (size_t slot = 0; slot < slots_.size(); ++slot) state_.slots[slot].host = slots_[slot].host;
  slot_of_.resize(members_.size());
  std::iota(slot_of_.begin(), slot_of_.begin() + job.ranks, size_t{0});
  runs_.resize(members_.size());
  std::fill_n(runs_.begin(), ranks_.size(), true);
  for (size_t place = ranks_.size(); place < members_.size(); ++place)
    members_[place].epoch = agent::kNoEpochYet;
}

void Epochs::resume(const JobRecord& record, Time now) {
  const wire::Digest job = members_[0].job;
  for (const JobRecord::Member& one : record.members)
    if (one.place >= members_.size())
      members_.resize(one.place + 1, {.job = job, .incarnation = 1});
  for (agent::Subject& member : members_) member.epoch = agent::kNoEpochYet;
  slot_of_.resize(members_.size());
  stopped_.resize(members_.size());
  runs_.assign(members_.size(), false);
  ranks_.clear();
  std::vector<coord::Member> members;
  for (const JobRecord::Member& one : record.members) {
    members_[one.place] = {.job = job,
                           .epoch = record.epoch,
                           .rank = static_cast<int32_t>(ranks_.size()),
                           .member = one.uuid,
                           .incarnation = one.incarnation};
    slot_of_[one.place] = slot_of(one.host, one.slot);
    runs_[one.place] = true;
    ranks_.push_back(one.place);
    members.push_back({.uuid = one.uuid, .slot = slot_of_[one.place], .since = now});
  }
  for (coord::Slot& slot : state_.slots)
    slot.usable = slot.host >= record.hosts.size() || !record.hosts[slot.host].gone;
  state_ = coord::resume(record.epoch, std::move(members), std::move(state_.slots));
  state_.steps = record.steps;
  state_.resets = record.resets;
  state_.last = record.last;
}

/// It is there from now on.
size_t Epochs::slot_of(size_t host, int number) {
  const auto found = std::ranges::find_if(
      slots_, [&](const Slot& known) { return known.host == host && known.number == number; });
  if (found != slots_.end()) return static_cast<size_t>(found - slots_.begin());
  slots_.push_back({.host = host, .number = number});
  state_.slots.push_back({.host = host});
  return slots_.size() - 1;
}

JobRecord Epochs::record() const {
  JobRecord record{.job = job_.job_id,
                   .ranks = job_.ranks,
                   .epoch = state_.epoch,
                   .steps = state_.steps,
                   .resets = state_.resets,
                   .last = state_.last,
                   .hosts = {},
                   .members = {}};
  for (const size_t place : ranks_) {
    const Slot& slot = slots_[slot_of_[place]];
    record.members.push_back({.uuid = members_[place].member,
                              .incarnation = members_[place].incarnation,
                              .place = place,
                              .host = slot.host,
                              .slot = slot.number});
  }
  return record;
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

Seat Epochs::seat(size_t place) const {
  const Slot& slot = slots_[slot_of_[place]];
  return {.rank = static_cast<int>(place), .host = slot.host, .local_rank = slot.number};
}

int Epochs::place_of_rank(int rank) const {
  const bool is_rank = rank >= 0 && static_cast<size_t>(rank) < ranks_.size();
  return is_rank ? static_cast<int>(ranks_[static_cast<size_t>(rank)]) : -1;
}

Epochs::Orders Epochs::end(size_t place, bool well, const std::string& how, bool host_lost,
                           Time now) {
  runs_[place] = false;
  return hear(
      coord::Ended{
          .member = members_[place].member, .well = well, .how = how, .host_lost = host_lost},
      now);
}

Epochs::Orders Epochs::see(size_t place, bool stopped, Time now) {
  stopped_[place] = stopped ? stopped_[place] + 1 : 0;
  const auto runs = [this](size_t other) { return stopped_[other] == 0; };
  if (stopped_[place] < kFrozenLooks || std::ranges::none_of(ranks_, runs)) return {};
  const std::string how = fmt::format("rank {} was stopped by a signal, and does not go on", place);
  return hear(coord::Frozen{.member = members_[place].member, .how = how}, now);
}

Epochs::Orders Epochs::ready(size_t place, uint32_t epoch, uint64_t steps, int lost, Time now) {
  coord::Ready ready{.member = members_[place].member, .epoch = epoch, .steps = steps};
  if (lost >= 0) {
    ready.lost = members_[static_cast<size_t>(lost)].member;
    ready.how = fmt::format("rank {} has lost rank {}", place, lost);
  }
  return hear(ready, now);
}

Epochs::Orders Epochs::leave(size_t place, bool is_all, Time now) {
  const std::string how =
      is_all ? "the job was asked to end" : fmt::format("rank {} was asked to end", place);
  return hear(coord::Leaving{.members = {members_[place].member}, .how = how}, now);
}

Epochs::Orders Epochs::leave_host(size_t host, Time now) {
  coord::Leaving leaving{.members = {},
                         .how = fmt::format("host {} is about to go", host_name(host))};
  for (size_t place = 0; place < runs_.size(); ++place)
    if (runs_[place] && seat(place).host == host) leaving.members.push_back(members_[place].member);
  Orders orders;
  hear(leaving, now, orders);
  for (size_t slot = 0; slot < state_.slots.size(); ++slot) {
    if (slots_[slot].host == host)
      hear(coord::Offered{.slot = slot, .usable = false, .host = host}, now, orders);
  }
  return orders;
}

Epochs::Orders Epochs::offer(size_t host, const std::string& name, int slots, Time now) {
  // Hosts that were never there have numbers, too.
  while (job_.hosts.size() <= host) job_.hosts.push_back({.name = name, .address = ""});
  job_.hosts[host].name = name;
  int known = 0;
  for (const Slot& slot : slots_) known += slot.host == host ? 1 : 0;
  for (; known < slots; ++known) slots_.push_back({.host = host, .number = known});
  Orders orders;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].host != host) continue;
    const bool usable = slots_[slot].number < slots;
    const bool is_new = slot >= state_.slots.size() || state_.slots[slot].usable != usable;
    if (is_new) hear(coord::Offered{.slot = slot, .usable = usable, .host = host}, now, orders);
  }
  return orders;
}

Epochs::Orders Epochs::lose_host(size_t host, Time now) {
  std::set<size_t> occupied;
  for (size_t place = 0; place < runs_.size(); ++place)
    if (runs_[place]) occupied.insert(slot_of_[place]);
  Orders orders;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    if (slots_[slot].host == host && !occupied.contains(slot))
      hear(coord::Offered{.slot = slot, .usable = false, .host = host}, now, orders);
  }
  return orders;
}

Epochs::Orders Epochs::hear(const coord::Event& event, Time now) {
  Orders orders;
  hear(event, now, orders);
  return orders;
}

void Epochs::hear(const coord::Event& event, Time now, Orders& orders) {
  coord::Decision decision = coord::decide(now, std::move(state_), event, options_);
  state_ = std::move(decision.state);
  for (const coord::Action& action : decision.actions)
    std::visit([&](const auto& what) { carry_out(what, orders); }, action);
  for (const coord::Action& action : decision.actions) {
    if (const auto* start = std::get_if<coord::Start>(&action)) begin(start->slot, now, orders);
  }
}

/// A new member: nothing that is said of the one before it in its place is about this one.
void Epochs::begin(size_t slot, Time now, Orders& orders) {
  const size_t place = free_place(slot);
  agent::Subject& member = members_[place];
  member.epoch = agent::kNoEpochYet;
  member.rank = static_cast<int32_t>(place);
  io::fill_random(member.member);
  slot_of_[place] = slot;
  runs_[place] = true;
  stopped_[place] = 0;
  orders.started.push_back(place);
  hear(coord::Started{.slot = slot, .joiner = member.member}, now, orders);
}

/// For a process in this slot: the one with its number, if that is free.
size_t Epochs::free_place(size_t slot) const {
  if (slot < runs_.size() && !runs_[slot]) return slot;
  const auto found = std::ranges::find(runs_, false);
  CORRO_CHECK(found != runs_.end(), runs_.size());
  return static_cast<size_t>(found - runs_.begin());
}

void Epochs::carry_out(const coord::Prepare& prepare, Orders& orders) {
  orders.news.push_back({.epoch = prepare.epoch, .why = prepare.why});
  orders.messages.push_back({{.job = members_[0].job, .epoch = prepare.epoch},
                             agent::Prepare{.why = prepare.why, .at_once = prepare.at_once}});
}

void Epochs::carry_out(const coord::Commit& commit, Orders& orders) {
  const size_t before = ranks_.size();
  ranks_.clear();
  for (const coord::MemberUuid& uuid : commit.members) {
    agent::Subject& member = members_[ranks_.emplace_back(place_of(uuid))];
    member.epoch = commit.epoch;
    member.rank = static_cast<int32_t>(ranks_.size()) - 1;
  }
  const std::string who =
      commit.last ? fmt::format("{} ranks save what they have, and end", ranks_.size())
      : commit.joined == 0
          ? fmt::format("{} of {} ranks go on", ranks_.size(), before)
          : fmt::format("{} ranks go on, {} of them new", ranks_.size(), commit.joined);
  orders.news.push_back({.kind = News::Kind::kBegun, .epoch = commit.epoch, .why = who});
  orders.messages.push_back(announce());
}

agent::Message Epochs::announce() const {
  std::vector<agent::Subject> by_rank;
  std::vector<size_t> hosts;
  for (const size_t place : ranks_) {
    by_rank.push_back(members_[place]);
    hosts.push_back(seat(place).host);
  }
  return announce_members(job_, by_rank, hosts, state_.last);
}

void Epochs::carry_out(const coord::Fence& fence, Orders& orders) {
  const size_t place = place_of(fence.member);
  orders.fenced.push_back({members_[place], agent::Signal{.number = SIGKILL}});
  orders.news.push_back(
      {.kind = News::Kind::kFenced, .epoch = state_.epoch, .why = fence.why, .place = place});
}

void Epochs::carry_out(const coord::Stop& stop, Orders& orders) { orders.stop = stop.why; }

void Epochs::carry_out(const coord::Tell& tell, Orders& orders) {
  orders.news.push_back(
      {.kind = News::Kind::kPolicy, .epoch = state_.epoch, .why = tell.why, .host = tell.host});
}

}  // namespace corro::launch
