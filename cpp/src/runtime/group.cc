#include "runtime/group.h"

#include <algorithm>
#include <map>
#include <span>

#include <fmt/format.h>

#include "collective/board_fabric.h"
#include "collective/link_fabric.h"
#include "collective/operation/members.h"
#include "collective/served_fabric.h"
#include "collective/two_level_fabric.h"

namespace corro::runtime {
namespace {

using Made = std::unique_ptr<collective::Fabric>;

/// Of all members. Hosts by the names that all members know them by; whether their ranks share
/// memory is decided from what all members know alike, since schedules follow from it.
collective::Topology topology_of(const EngineParts& parts, const GroupFacts& facts) {
  std::map<std::string, int32_t> numbers;
  std::vector<int32_t> hosts;
  for (const MemberId member : facts.members) {
    const auto next = static_cast<int32_t>(numbers.size());
    hosts.push_back(numbers.try_emplace(parts.peers.peer(member).host, next).first->second);
  }
  const collective::Topology topology(hosts);
  bool boards = parts.options.use_board;
  for (int32_t host = 0; host < topology.hosts(); ++host)
    boards = boards && topology.size_of(host) <= collective::kMaxBoardRanks;
  return boards ? topology : topology.without_shared_memory();
}

/// All members use one board.
bool is_one_board(const collective::Topology& topology) {
  return topology.shares_memory() && topology.hosts() == 1;
}

/// A board of these group ranks, which are on this host.
Result<std::unique_ptr<collective::Board>> make_board(EngineParts& parts, const GroupFacts& facts,
                                                      const LaneKey& lane,
                                                      std::span<const int32_t> ranks) {
  std::vector<collective::Board::Member> members;
  int32_t own = 0;
  for (const int32_t r : ranks) {
    const EnginePeer& peer = parts.peers.peer(facts.member(r));
    if (r == facts.rank) own = static_cast<int32_t>(members.size());
    auto* segment = r == facts.rank ? parts.options.segment.get() : peer.segment.get();
    members.push_back({.segment = segment, .world_rank = facts.world_rank(r), .pid = peer.pid});
  }
  const auto wake = [&parts, ranks = facts.world_ranks, members = facts.members](int32_t r) {
    const auto found = std::find(ranks.begin(), ranks.end(), r);
    parts.options.wake(members[static_cast<size_t>(found - ranks.begin())]);
  };
  return collective::Board::create(lane, own, std::move(members), wake, parts.stages);
}

collective::Links links_of(const EngineParts& parts, const GroupFacts& facts, const LaneKey& lane) {
  collective::Links links{
      .lane = lane, .rank = facts.rank, .endpoints = {}, .world_ranks = facts.world_ranks};
  for (const MemberId member : facts.members)
    links.endpoints.push_back(parts.peers.endpoint(member));
  return links;
}

/// Aggregators are for all ranks of the epoch that the engine has begun with, in their order.
bool has_aggregators(const EngineParts& parts, const GroupFacts& facts) {
  if (parts.aggregators == nullptr) return false;
  const bool same_epoch = facts.key.epoch == 0;
  if (!same_epoch || parts.aggregators->group().size != facts.size()) return false;
  for (int32_t r = 0; r < facts.size(); ++r)
    if (facts.world_rank(r) != r) return false;
  return true;
}

/// Of what aggregators take part in.
LaneKey served_lane(const LaneKey& lane) { return derive_key(lane, "served"); }

/// A fabric of links, and aggregators beside it if the group has some.
Made served(EngineParts& parts, const GroupFacts& facts, const LaneKey& lane, Made plain) {
  if (!has_aggregators(parts, facts)) return plain;
  return Made(new collective::ServedFabric(std::move(plain),
                                           {.members = links_of(parts, facts, lane),
                                            .data = served_lane(lane),
                                            .hosts = topology_of(parts, facts),
                                            .timeout = parts.options.timeout},
                                           parts.options.selection, *parts.aggregators,
                                           parts.scratch));
}

/// The board if all members share this host's memory; boards and links if some do; else links.
Result<Made> make_fabric(EngineParts& parts, const GroupFacts& facts, const LaneKey& lane) {
  collective::Topology topology = topology_of(parts, facts);
  const std::span<const int32_t> neighbours = topology.ranks_on(topology.host_of(facts.rank));
  if (is_one_board(topology)) {
    CORRO_ASSIGN(auto board, make_board(parts, facts, lane, neighbours));
    return Made(new collective::BoardFabric(std::move(board), parts.scratch));
  }
  collective::Links links = links_of(parts, facts, lane);
  const collective::SelectionTable& selection = parts.options.selection;
  if (!topology.two_levels())
    return served(parts, facts, lane,
                  Made(new collective::LinkFabric(std::move(links), std::move(topology), selection,
                                                  parts.scratch)));
  CORRO_ASSIGN(auto board, make_board(parts, facts, lane, neighbours));
  return Made(new collective::TwoLevelFabric(std::move(links), std::move(topology), selection,
                                             std::move(board), parts.scratch));
}

/// The next member compares its list with this one. If all lists of a name are equal, each is
/// compared once round its ring; if they are not, some member has a next one with another list.
void tell_next_member(EngineParts& parts, const GroupFacts& facts) {
  if (facts.name.empty() || facts.size() == 1) return;
  (void)parts.peers.tell(facts.member((facts.rank + 1) % facts.size()),
                         {.kind = wire::ControlKind::kMembers,
                          .lane = facts.key,
                          .rank = facts.own_world_rank(),
                          .text = collective::describe_members(facts.world_ranks)});
}

wire::Control abort_of(const GroupLane& one_shots, const GroupFailure& failure) {
  return {.kind = wire::ControlKind::kAbort,
          .code = static_cast<uint8_t>(failure.cause.code()),
          .lane = one_shots.key(),
          .rank = failure.culprit,
          .op = one_shots.flights().completed(),
          .text = wire::reason_text(failure.words_for_others())};
}

}  // namespace

Group::Group(GroupFacts facts, EngineParts& parts)
    : facts_(std::move(facts)),
      parts_(parts),
      pairs_(facts_, parts_),
      named_(facts_, parts_, is_one_board(topology_of(parts_, facts_)),
             [this](const LaneKey& lane) { return make_fabric(parts_, facts_, lane); }),
      plans_(facts_, parts_, [this](const GroupFacts& of, const LaneKey& lane) {
        return make_fabric(parts_, of, lane);
      }) {}

Status Group::open() {
  CORRO_ASSIGN(auto fabric, make_fabric(parts_, facts_, facts_.key));
  by_messages_ = fabric->traits().by_messages;
  one_shots_ = std::make_unique<GroupLane>(facts_.key, facts_, parts_, std::move(fabric));
  return {};
}

void Group::serve() {
  const collective::Topology topology = topology_of(parts_, facts_);
  if (!by_messages_ || topology.two_levels()) return;
  auto& fabric = one_shots_->fabric();
  fabric = served(parts_, facts_, facts_.key, std::move(fabric));
}

std::string Group::describe_selection() const {
  if (facts_.size() == 1)
    return collective::describe(parts_.options.selection, collective::Topology::one_host(1));
  return one_shots_->fabric()->describe();
}

std::vector<LaneKey> Group::keys() const {
  std::vector<LaneKey> keys(named_.keys().begin(), named_.keys().end());
  keys.push_back(facts_.key);
  return keys;
}

// -- submission -----------------------------------------------------------------------------------

Status Group::refuse(const collective::OpRequest& request) {
  if (!failed_.ok()) {
    const std::string name(name_of(request.kind));
    return {failed_.code(),
            name + ": " + failed_.message(),
            {.rank = failed_.detail() ? failed_.detail()->rank : -1,
             .op = name,
             .phase = std::string(name_of(obs::Phase::kQueued))}};
  }
  if (Status error = one_shots_->take_next_error(); !error.ok()) return error;
  if (Status error = named_.take_next_error(); !error.ok()) return error;
  return collective::validate(request, facts_.rank, facts_.size());
}

void Group::submit(const std::shared_ptr<WorkState>& work, Time now) {
  // On a board, sections show it (collective/board/board.h); names are agreed on by messages.
  if ((by_messages_ || work->named) && !std::exchange(introduced_, true))
    tell_next_member(parts_, facts_);
  const size_t count = work->requests.size();  // a refused work may be done before the loop ends
  for (size_t i = 0; i < count; ++i) {
    const collective::OpRequest& request = work->requests[i];
    Status refused = refuse(request);
    if (refused.ok() && work->named) refused = named_.submit(work, i, now);
    if (!refused.ok()) {
      parts_.metrics.add(obs::Metric::kFailures);
      work->finish_one(refused);
    } else if (!work->named && is_pair(request.kind)) {
      pairs_.submit(work, i, now);
    } else if (!work->named) {
      one_shots_->submit(work, i, now);
    }
  }
}

bool Group::begin_now(const collective::OpRequest& request, NowOperation& now) {
  return failed_.ok() && !is_pair(request.kind) && !pairs_.busy() &&
         now.begin(*one_shots_, request);
}

// -- progress -------------------------------------------------------------------------------------

bool Group::poll(Time now) {
  parts_.metrics.add(obs::Metric::kGroupPolls);
  bool moved = !one_shots_->flights().empty() && one_shots_->poll(now);
  if (pairs_.busy()) moved = pairs_.poll(now) || moved;
  moved = named_.poll(now) || moved;
  if (!plans_.empty()) moved = plans_.poll(now) || moved;
  take_failures(now);
  return moved;
}

void Group::check(Time now) {
  one_shots_->check(now);
  pairs_.check(now);
  named_.check(now);
  plans_.check(now);
  take_failures(now);
}

void Group::take_failures(Time now) {
  auto failure = one_shots_->take_failure();
  if (!failure) failure = pairs_.take_failure();
  if (!failure) failure = named_.take_failure();
  if (failure) fail(*failure, News::kFound, now);
}

Time Group::next_deadline() const {
  return std::min({one_shots_->next_deadline(), pairs_.next_deadline(), named_.next_deadline(),
                   plans_.next_deadline()});
}

bool Group::busy() const {
  return !one_shots_->flights().empty() || pairs_.busy() || named_.busy() || !plans_.empty();
}

bool Group::waits_for_lines() const {
  bool waits = one_shots_->flights().waits_for_lines();
  named_.for_each(
      [&waits](const GroupLane& lane) { waits = waits || lane.flights().waits_for_lines(); });
  return waits;
}

// -- what members say -----------------------------------------------------------------------------

/// Somebody takes this rank for the next member of a group of this name: also one that is no member
/// here.
void Group::meet(MemberId from, const wire::Control& members, Time now) {
  const Status same = collective::compare_members(
      facts_.own_world_rank(), collective::describe_members(facts_.world_ranks), members.rank,
      std::string_view(members.text).substr(0, collective::kMostMembersText));
  if (same.ok()) return;
  const int32_t r = facts_.index_of(from);
  fail({same, facts_.world_rank(r)}, News::kFound, now);
  if (r < 0) (void)parts_.peers.tell(from, abort_of(*one_shots_, {same, -1}));
}

void Group::hear(MemberId from, const wire::Control& control, Time now) {
  if (control.kind == wire::ControlKind::kMembers) return meet(from, control, now);
  const int32_t r = facts_.index_of(from);
  if (r < 0) return;
  if (control.kind == wire::ControlKind::kAbort) {
    const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
    const auto& ranks = facts_.world_ranks;
    const bool known = std::find(ranks.begin(), ranks.end(), control.rank) != ranks.end();
    const int32_t culprit = known ? control.rank : -1;
    (void)poll(now);  // Operations whose last message came before this one have succeeded.
    return fail({{code, control.text, {.rank = culprit}}, culprit}, News::kHeard, now);
  }
  if (control.kind == wire::ControlKind::kReady || control.kind == wire::ControlKind::kOrder) {
    named_.hear(r, control);
  } else if (control.lane == facts_.key) {
    one_shots_->hear(r, control);
  } else if (GroupLane* lane = named_.find(control.lane); lane != nullptr) {
    lane->hear(r, control);
  } else {
    plans_.hear(from, control, now);
  }
  take_failures(now);
}

void Group::judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature) {
  if (!failed_.ok() || facts_.index_of(from) < 0) return;
  if (key.lane != facts_.key) return plans_.judge(from, key, signature);
  one_shots_->judge(facts_.index_of(from), key.op, signature);
}

// -- failure --------------------------------------------------------------------------------------

void Group::fail(const GroupFailure& failure, News news, Time now) {
  const Status& cause = failure.cause;
  if (failed_.ok()) {
    failed_ = cause;
    const bool first = one_shots_->fabric()->set_failed(cause.code(), failure.culprit);
    // The board tells who is in an operation. Who waits for a message, for a plan, for a name or
    // for a verdict looks elsewhere; one word of the first who knows is enough for the first two.
    if (by_messages_ || parts_.options.commit || named_.used() || (first && news == News::kFound)) {
      tell_members(parts_, facts_, abort_of(*one_shots_, failure));
    }
    named_.for_each(
        [&](GroupLane& lane) { lane.fabric()->set_failed(cause.code(), failure.culprit); });
    pairs_.fail(cause);
    plans_.fail(cause, now);
  }
  one_shots_->fail(failed_, now);
  named_.fail(failed_, now);
}

void Group::lose(MemberId member, Time now) {
  const int32_t r = facts_.index_of(member);
  if (r < 0) return;
  const int32_t world_rank = facts_.world_rank(r);
  fail({{Code::kUnavailable,
         fmt::format("rank {} ({}) was lost: {}", world_rank, parts_.peers.peer(member).where,
                     parts_.peers.how_lost(member)),
         {.rank = world_rank}},
        world_rank},
       News::kHeard, now);
}

void Group::check_departed(Time now) {
  pairs_.end_departed();
  plans_.check_departed(now);
  int32_t left = one_shots_->awaited_that_left();
  if (left < 0) left = named_.awaited_that_left();
  if (left < 0) return;
  const int32_t world_rank = facts_.world_rank(left);
  fail({has_left(world_rank), world_rank}, News::kFound, now);
}

void Group::close(const Status& cause) {
  one_shots_->close(cause);
  pairs_.close(cause);
  named_.close(cause);
  plans_.fail(cause, Time{});
  if (failed_.ok()) failed_ = cause;
}

void Group::close_lane(const LaneKey& lane) {
  for (const MemberId member : facts_.members) {
    transport::Endpoint* endpoint = parts_.peers.endpoint(member);
    if (endpoint != nullptr) endpoint->close_lane(lane);
  }
}

std::vector<std::unique_ptr<collective::Fabric>> Group::take_fabrics() {
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  const bool is_served = by_messages_ && has_aggregators(parts_, facts_);
  const auto take = [&](GroupLane& lane) {
    if (lane.fabric()->traits().by_messages) close_lane(lane.key());
    if (is_served) {
      close_lane(served_lane(lane.key()));
      parts_.aggregators->close_lane(served_lane(lane.key()));
    }
    fabrics.push_back(std::move(lane.fabric()));
  };
  take(*one_shots_);
  named_.for_each(take);
  pairs_.close_links();
  return fabrics;
}

}  // namespace corro::runtime
