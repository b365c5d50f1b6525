// Engine, named operations: what carries the messages of a group's NamedChannel and runs its steps.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// The leader decides no further run while so many operations are on their way: what becomes ready
/// meanwhile shares buckets.
constexpr size_t kDecidedAhead = 2;

}  // namespace

// -- submission -----------------------------------------------------------------------------------

Status Engine::named_refusal(Group& group, const collective::OpRequest& request) {
  CORRO_TRY(refusal(group, request));
  if (is_pair(request.kind)) {
    return {Code::kInvalidArgument, "send and recv are matched by tag, not by name"};
  }
  for (Group* lane : group.named_lanes) {
    if (lane != nullptr && !lane->next_error.ok()) return std::exchange(lane->next_error, Status());
  }
  return {};
}

void Engine::submit_named(Group& group, const std::shared_ptr<WorkState>& work, size_t index,
                          Time now) {
  const collective::OpRequest& request = work->requests[index];
  Status status = named_refusal(group, request);
  if (status.ok()) status = open_channel(group).submit(work, index, now, deadline_of(request, now));
  if (status.ok()) return;
  ++counters_.failures;
  work->finish_one(status);
}

NamedChannel& Engine::open_channel(Group& group) {
  if (group.named == nullptr) {
    FusionOptions fusion = options_.fusion;
    // Only the board adds up in an order that does not depend on an element's place in a bucket.
    const bool moves_bits = options_.deterministic && group.board == nullptr;
    if (group.size() == 1 || moves_bits) fusion.threshold_bytes = 0;
    group.named =
        std::make_unique<NamedChannel>(NamedChannelOptions{.rank = group.rank,
                                                           .members = group.members,
                                                           .fusion = fusion,
                                                           .segment = options_.segment.get()});
  }
  return *group.named;
}

/// The same lane id on every member, made when something runs on it here.
Result<Group*> Engine::open_named_lane(Group& group, NamedLane which) {
  Group*& lane = group.named_lanes[static_cast<size_t>(which)];
  if (lane == nullptr) {
    const uint32_t bit = which == NamedLane::kOrdered ? kOrderedLaneBit : kPlannedLaneBit;
    CORRO_ASSIGN(lane, open_group(group.members, group.lane | bit));
    lane->owner = &group;
  }
  return lane;
}

/// The lane with this id, made if nothing has run on it here yet: a member may give up its first
/// operation before this rank hears of it. Null if it is no lane of a group of this rank.
Group* Engine::named_lane_of(uint32_t lane) {
  const uint32_t bit = lane & (kOrderedLaneBit | kPlannedLaneBit);
  if (bit != kOrderedLaneBit && bit != kPlannedLaneBit) return nullptr;
  Group* owner = group_of_lane(group_lane(lane));
  if (owner == nullptr || (lane & collective::kPairLaneBit) != 0) return nullptr;
  const auto which = bit == kOrderedLaneBit ? NamedLane::kOrdered : NamedLane::kPlanned;
  const auto opened = open_named_lane(*owner, which);
  if (opened.ok()) return *opened;
  fail_group(*owner, opened.status(), rank());
  return nullptr;
}

bool Engine::in_use(const Group& group) {
  const auto busy = [](const Group* lane) { return lane != nullptr && lane->busy(); };
  return group.busy() || (group.named != nullptr && group.named->waiting()) ||
         std::any_of(group.named_lanes.begin(), group.named_lanes.end(), busy);
}

// -- progress -------------------------------------------------------------------------------------

bool Engine::named_busy() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group->named != nullptr && group->named->busy();
  });
}

bool Engine::poll_named(Group& group, Time now) {
  NamedChannel& named = *group.named;
  const bool moved = named.finish_buckets();
  if (!group.failed.ok() || (!named.busy() && !named.heard())) return moved;
  const Group* ordered = group.named_lanes[static_cast<size_t>(NamedLane::kOrdered)];
  const bool room = ordered == nullptr || ordered->flights.size() < kDecidedAhead;
  if (const Status kept = named.advance(room); !kept.ok()) {
    fail_group(group, kept, kept.detail() ? kept.detail()->rank : -1);
    return true;
  }
  // What has been decided starts, whatever the time is.
  const bool carried = carry_out(group, now);
  return named.check(now) || carried || moved;
}

/// Sends and runs what the channel has decided.
bool Engine::carry_out(Group& group, Time now) {
  NamedChannel& named = *group.named;
  bool moved = false;
  while (const auto message = named.take_message()) {
    const wire::Control control{
        .kind = message->kind, .lane = group.lane, .rank = rank(), .text = message->text};
    if (message->kind == wire::ControlKind::kOrder) {
      tell_members(group, control);
      counters_.named_messages += group.members.size() - 1;
    } else if (tell(group.members.front(), control)) {
      ++counters_.named_messages;
    }
    moved = true;
  }
  while (const auto step = named.take_step()) {
    run_step(group, *step, now);
    moved = true;
  }
  return moved;
}

void Engine::run_step(Group& group, const NamedStep& step, Time now) {
  const auto opened = open_named_lane(group, step.lane);
  if (!opened.ok()) {
    if (step.work != nullptr) step.work->finish_one(opened.status());
    return fail_group(group, opened.status(), rank());
  }
  Group& lane = **opened;
  if (!lane.failed.ok()) {
    if (step.work != nullptr) step.work->finish_one(lane.failed);
    return fail_group(group, lane.failed, -1);
  }
  if (step.work == nullptr) {
    tell_members(lane, {.kind = wire::ControlKind::kCancel,
                        .code = static_cast<uint8_t>(step.cause.code()),
                        .lane = lane.lane,
                        .op = step.op,
                        .text = step.cause.message()});
    lane.given_up.insert(step.op);
  } else {
    pass_over(lane);
    CORRO_CHECK(lane.next_op == step.op, lane.next_op, step.op);
    begin(lane, step.work, step.index, now);
  }
  pass_over(lane);
}

/// Operations given up here take their turn without running: nobody waits for their lines.
void Engine::pass_over(Group& lane) {
  while (lane.given_up.erase(lane.next_op) > 0) {
    auto flight = std::make_unique<Flight>();
    flight->group = &lane;
    flight->op = lane.next_op++;
    flight->over = true;
    lane.past_of(flight->op) = {.op = flight->op, .signature = {}, .failed = true};
    lane.cancelled.erase(flight->op);
    lane.early.erase(flight->op);
    lane.closing_rounds.votes.erase(flight->op);
    lane.flights.push_back(std::move(flight));
    sweep(lane);
  }
}

// -- messages -------------------------------------------------------------------------------------

/// False if nothing can be sent there: the connection is closed, or it is this rank.
bool Engine::tell(int32_t member, const wire::Control& control) {
  transport::Endpoint* endpoint = endpoints_[static_cast<size_t>(member)].get();
  if (endpoint == nullptr || endpoint->closed()) return false;
  endpoint->send_control(control);
  return true;
}

void Engine::tell_members(const Group& group, const wire::Control& control) {
  for (const int32_t member : group.members) (void)tell(member, control);
}

void Engine::hear_named(int32_t from, const wire::Control& control) {
  Group* group = group_of_lane(control.lane);
  if (group == nullptr || !group->contains(from) || !group->failed.ok() || group->owner != nullptr)
    return;
  const Status heard = open_channel(*group).hear(group->index_of(from), control.kind, control.text);
  if (!heard.ok()) fail_group(*group, heard, from);
}

// -- failure --------------------------------------------------------------------------------------

/// A group and its lanes fail together.
void Engine::fail_named(Group& group, const Status& cause, int32_t culprit) {
  if (group.owner != nullptr) return fail_group(*group.owner, cause, culprit);
  for (Group* lane : group.named_lanes) {
    if (lane != nullptr) fail_group(*lane, cause, culprit);
  }
  if (group.named != nullptr) group.named->fail(cause);
}

/// A name that a rank has not submitted before it left will never be complete.
void Engine::check_departed_named(Group& group) {
  if (group.named == nullptr || !group.named->waiting()) return;
  for (const int32_t member : group.members) {
    if (!departed_[static_cast<size_t>(member)]) continue;
    return fail_group(
        group,
        {Code::kUnavailable, fmt::format("rank {} has left the job", member), {.rank = member}},
        member);
  }
}

}  // namespace corro::runtime
