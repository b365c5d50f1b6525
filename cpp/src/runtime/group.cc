#include "runtime/group.h"

#include <algorithm>

#include <fmt/format.h>

#include "collective/board_fabric.h"
#include "collective/link_fabric.h"

namespace corro::runtime {
namespace {

bool shares_memory(const EngineParts& parts, const GroupFacts& facts) {
  if (!parts.options.use_board || facts.size() > collective::kMaxBoardRanks) return false;
  return std::all_of(facts.members.begin(), facts.members.end(), [&parts](MemberId member) {
    return member == parts.peers.own() || parts.peers.peer(member).segment != nullptr;
  });
}

/// The board if all members share this host's memory, else links.
Result<std::unique_ptr<collective::Fabric>> make_fabric(const EngineParts& parts,
                                                        const GroupFacts& facts,
                                                        const LaneKey& lane) {
  using Made = std::unique_ptr<collective::Fabric>;
  if (!shares_memory(parts, facts)) {
    collective::Links links{
        .lane = lane, .rank = facts.rank, .endpoints = {}, .world_ranks = facts.world_ranks};
    for (const MemberId member : facts.members)
      links.endpoints.push_back(parts.peers.endpoint(member));
    return Made(new collective::LinkFabric(std::move(links), parts.options.selection));
  }
  std::vector<collective::Board::Member> members;
  for (int32_t r = 0; r < facts.size(); ++r) {
    const EnginePeer& peer = parts.peers.peer(facts.member(r));
    auto* segment = r == facts.rank ? parts.options.segment.get() : peer.segment.get();
    members.push_back({.segment = segment, .world_rank = facts.world_rank(r), .pid = peer.pid});
  }
  const auto wake = [&parts, &facts](int32_t world_rank) {
    const auto& ranks = facts.world_ranks;
    const auto found = std::find(ranks.begin(), ranks.end(), world_rank);
    parts.options.wake(facts.members[static_cast<size_t>(found - ranks.begin())]);
  };
  CORRO_ASSIGN(auto board, collective::Board::create(lane, facts.rank, std::move(members), wake));
  return Made(new collective::BoardFabric(std::move(board)));
}

}  // namespace

Group::Group(GroupFacts facts, EngineParts& parts)
    : facts_(std::move(facts)),
      parts_(parts),
      pairs_(facts_, parts_),
      named_(facts_, parts_, shares_memory(parts_, facts_),
             [this](const LaneKey& lane) { return make_fabric(parts_, facts_, lane); }) {}

Status Group::open() {
  CORRO_ASSIGN(auto fabric, make_fabric(parts_, facts_, facts_.key));
  by_messages_ = fabric->traits().by_messages;
  one_shots_ = std::make_unique<GroupLane>(facts_.key, facts_, parts_, std::move(fabric));
  return {};
}

std::string Group::describe_selection() const {
  if (size() == 1) return collective::describe(parts_.options.selection, 1);
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
  return collective::validate(request, rank(), size());
}

void Group::submit(const std::shared_ptr<WorkState>& work, Time now) {
  const size_t count = work->requests.size();  // a refused work may be done before the loop ends
  for (size_t i = 0; i < count; ++i) {
    const collective::OpRequest& request = work->requests[i];
    Status refused = refuse(request);
    if (refused.ok() && work->named) refused = named_.submit(work, i, now);
    if (!refused.ok()) {
      ++parts_.counters.failures;
      work->finish_one(refused);
    } else if (!work->named && is_pair(request.kind)) {
      pairs_.submit(work, i, now);
    } else if (!work->named) {
      one_shots_->submit(work, i, now);
    }
  }
}

bool Group::begin_now(const collective::OpRequest& request, std::optional<NowOperation>& now) {
  return failed_.ok() && !is_pair(request.kind) && !pairs_.busy() &&
         one_shots_->begin_now(request, now);
}

// -- progress -------------------------------------------------------------------------------------

bool Group::poll(Time now) {
  bool moved = !one_shots_->flights().empty() && one_shots_->poll(now);
  if (pairs_.busy()) moved = pairs_.poll(now) || moved;
  moved = named_.poll(now) || moved;
  take_failures(now);
  return moved;
}

void Group::check(Time now) {
  one_shots_->check(now);
  pairs_.check(now);
  named_.check(now);
  take_failures(now);
}

void Group::take_failures(Time now) {
  auto failure = one_shots_->take_failure();
  if (!failure) failure = pairs_.take_failure();
  if (!failure) failure = named_.take_failure();
  if (failure) fail(*failure, now);
}

Time Group::next_deadline() const {
  return std::min({one_shots_->next_deadline(), pairs_.next_deadline(), named_.next_deadline()});
}

bool Group::busy() const {
  return !one_shots_->flights().empty() || pairs_.busy() || named_.busy();
}

bool Group::waits_for_lines() const {
  bool waits = one_shots_->flights().waits_for_lines();
  named_.for_each(
      [&waits](const GroupLane& lane) { waits = waits || lane.flights().waits_for_lines(); });
  return waits;
}

// -- what members say -----------------------------------------------------------------------------

GroupLane* Group::find_lane(const LaneKey& key) {
  return key == facts_.key ? one_shots_.get() : named_.find(key);
}

void Group::hear(MemberId from, const wire::Control& control, Time now) {
  const int32_t r = facts_.index_of(from);
  if (r < 0) return;
  if (control.kind == wire::ControlKind::kAbort) {
    const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
    const auto& ranks = facts_.world_ranks;
    const bool known = std::find(ranks.begin(), ranks.end(), control.rank) != ranks.end();
    const int32_t culprit = known ? control.rank : -1;
    return fail({{code, control.text, {.rank = culprit}}, culprit}, now);
  }
  if (control.kind == wire::ControlKind::kReady || control.kind == wire::ControlKind::kOrder) {
    named_.hear(r, control);
  } else if (GroupLane* lane = find_lane(control.lane); lane != nullptr) {
    lane->hear(r, control);
  }
  take_failures(now);
}

void Group::judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature) {
  if (!failed_.ok() || key.lane != facts_.key || facts_.index_of(from) < 0) return;
  one_shots_->judge(facts_.index_of(from), key.op, signature);
}

// -- failure --------------------------------------------------------------------------------------

void Group::fail(const GroupFailure& failure, Time now) {
  const Status& cause = failure.cause;
  if (failed_.ok()) {
    failed_ = cause;
    one_shots_->fabric()->set_failed(cause.code(), failure.culprit);
    // The board tells who is in an operation; who waits for a name, or for a verdict, looks
    // elsewhere.
    if (by_messages_ || parts_.options.commit || named_.used()) {
      tell_members(parts_, facts_,
                   {.kind = wire::ControlKind::kAbort,
                    .code = static_cast<uint8_t>(cause.code()),
                    .lane = facts_.key,
                    .rank = failure.culprit,
                    .op = one_shots_->flights().completed(),
                    .text = cause.message()});
    }
    named_.for_each(
        [&](GroupLane& lane) { lane.fabric()->set_failed(cause.code(), failure.culprit); });
    pairs_.fail(cause);
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
       now);
}

/// Operations that wait for a rank that has left will wait for ever; so will names that it has not
/// submitted.
void Group::check_departed(Time now) {
  int32_t left = one_shots_->awaited_that_left();
  if (left < 0) left = pairs_.awaited_that_left();
  named_.for_each([&left](const GroupLane& lane) {
    if (left < 0) left = lane.awaited_that_left();
  });
  for (int32_t r = 0; left < 0 && named_.waiting() && r < size(); ++r) {
    if (parts_.peers.departed(facts_.member(r))) left = r;
  }
  if (left < 0) return;
  const int32_t world_rank = facts_.world_rank(left);
  fail({{Code::kUnavailable,
         fmt::format("rank {} has left the job", world_rank),
         {.rank = world_rank}},
        world_rank},
       now);
}

void Group::close(const Status& cause) {
  one_shots_->close(cause);
  pairs_.close(cause);
  named_.close(cause);
  if (failed_.ok()) failed_ = cause;
}

std::vector<std::unique_ptr<collective::Fabric>> Group::take_fabrics() {
  std::vector<std::unique_ptr<collective::Fabric>> fabrics;
  const auto take = [&](GroupLane& lane) {
    if (lane.fabric()->traits().by_messages) {
      for (const MemberId member : facts_.members) {
        transport::Endpoint* endpoint = parts_.peers.endpoint(member);
        if (endpoint != nullptr) endpoint->close_lane(lane.key());
      }
    }
    fabrics.push_back(std::move(lane.fabric()));
  };
  take(*one_shots_);
  named_.for_each(take);
  pairs_.close_links();
  return fabrics;
}

}  // namespace corro::runtime
