#include "runtime/named_lanes.h"

#include <algorithm>

namespace corro::runtime {
namespace {

/// The leader decides no further run while so many operations are on their way: what becomes ready
/// meanwhile shares buckets.
constexpr size_t kDecidedAhead = 2;

constexpr auto kOrdered = static_cast<size_t>(named::NamedLane::kOrdered);
constexpr auto kPlanned = static_cast<size_t>(named::NamedLane::kPlanned);

}  // namespace

NamedLanes::NamedLanes(const GroupFacts& facts, EngineParts& parts, bool shares_memory,
                       MakeFabric make_fabric)
    : facts_(facts),
      parts_(parts),
      shares_memory_(shares_memory),
      make_fabric_(std::move(make_fabric)),
      keys_{derive_key(facts.key, "ordered"), derive_key(facts.key, "planned")} {}

NamedGroup& NamedLanes::group() {
  if (!group_) {
    named::FusionOptions fusion = parts_.options.fusion;
    // Elsewhere the order of a fold depends on an element's place in a bucket.
    const bool moves_bits = parts_.options.deterministic && !shares_memory_;
    if (facts_.size() == 1 || moves_bits) fusion.threshold_bytes = 0;
    group_.emplace(NamedGroupOptions{.rank = facts_.rank,
                                     .world_ranks = facts_.world_ranks,
                                     .fusion = fusion,
                                     .by_messages = !shares_memory_,
                                     .segment = parts_.options.segment.get(),
                                     .timeline = &parts_.timeline,
                                     .recorder = parts_.recorder.get()});
  }
  return *group_;
}

GroupLane* NamedLanes::open(named::NamedLane which) {
  const auto index = static_cast<size_t>(which);
  if (lanes_[index] == nullptr) {
    auto fabric = make_fabric_(keys_[index]);
    if (!fabric.ok()) {
      failure_ = {fabric.status(), facts_.own_world_rank()};
      return nullptr;
    }
    lanes_[index] =
        std::make_unique<GroupLane>(keys_[index], facts_, parts_, std::move(fabric).value());
  }
  return lanes_[index].get();
}

GroupLane* NamedLanes::find(const LaneKey& key) {
  for (size_t i = 0; i < keys_.size(); ++i) {
    if (keys_[i] == key) return open(static_cast<named::NamedLane>(i));
  }
  return nullptr;
}

Status NamedLanes::submit(const std::shared_ptr<WorkState>& work, size_t index, Time now) {
  const collective::OpRequest& request = work->requests[index];
  if (is_pair(request.kind))
    return {Code::kInvalidArgument, "send and recv are matched by tag, not by name"};
  if (work->joins) {
    const bool ends = request.timeout > Duration::zero();
    return group().join(work, now, ends ? now + request.timeout : Time::never());
  }
  const Duration timeout =
      request.timeout > Duration::zero() ? request.timeout : parts_.options.timeout;
  return group().submit(work, index, now, now + timeout);
}

void NamedLanes::hear(int32_t from, const wire::Control& control) {
  if (failed_) return;
  const Status heard = group().hear(from, control.kind, control.text);
  if (!heard.ok()) failure_ = {heard, facts_.world_rank(from)};
}

// -- progress -------------------------------------------------------------------------------------

bool NamedLanes::busy() const {
  return (group_ && group_->busy()) ||
         std::any_of(lanes_.begin(), lanes_.end(),
                     [](const auto& lane) { return lane != nullptr && !lane->flights().empty(); });
}

bool NamedLanes::poll(Time now) {
  bool moved = false;
  for_each([&moved, now](GroupLane& lane) { moved = lane.poll(now) || moved; });
  if (!group_) return moved;
  moved = group_->finish_buckets() || moved;
  if (const auto& planned = lanes_[kPlanned]; planned != nullptr)
    group_->retire_planned(planned->flights().completed());
  if (failed_ || (!group_->busy() && !group_->heard())) return moved;
  const bool room =
      lanes_[kOrdered] == nullptr || lanes_[kOrdered]->flights().size() < kDecidedAhead;
  if (const Status kept = group_->advance(room); !kept.ok()) {
    failure_ = {kept, kept.detail() ? kept.detail()->rank : -1};
    return true;
  }
  // What has been decided is said and starts, whatever the time is.
  while (const auto message = group_->take_message()) {
    send(*message);
    moved = true;
  }
  bool ran = false;
  for (auto step = group_->take_step(); step; step = group_->take_step()) {
    run(*step, now);
    moved = ran = true;
  }
  if (ran) parts_.timeline.cycle();
  return group_->check(now) || moved;
}

void NamedLanes::send(const NamedMessage& message) {
  const wire::Control control{.kind = message.kind,
                              .lane = facts_.key,
                              .rank = facts_.own_world_rank(),
                              .text = message.text};
  if (message.kind == wire::ControlKind::kOrder) {
    tell_members(parts_, facts_, control);
    parts_.metrics.add(obs::Metric::kNamedMessages, facts_.members.size() - 1);
  } else if (parts_.peers.tell(facts_.members.front(), control)) {
    parts_.metrics.add(obs::Metric::kNamedMessages);
  }
}

void NamedLanes::run(const NamedStep& step, Time now) {
  GroupLane* lane = failure_ ? nullptr : open(step.lane);
  const auto index = static_cast<size_t>(step.lane);
  if (lane == nullptr) {
    if (step.work != nullptr) step.work->finish_one(failure_->cause);
  } else if (step.resume) {
    lane->take_back(step.op, *step.resume);
  } else if (step.work == nullptr) {
    tell_members(parts_, facts_, cancel_of(lane->key(), step.op, step.cause));
    given_up_[index].insert(step.op);
    pass_over(index);
  } else {
    pass_over(index);
    CORRO_CHECK(lane->flights().next_op() == step.op, lane->flights().next_op(), step.op);
    lane->submit(step.work, step.index, now);
    pass_over(index);
  }
}

/// Operations given up here take their turn without running: nobody waits for their lines.
void NamedLanes::pass_over(size_t index) {
  GroupLane& lane = *lanes_[index];
  while (given_up_[index].erase(lane.flights().next_op()) > 0) lane.skip();
}

void NamedLanes::check(Time now) {
  for_each([now](GroupLane& lane) { lane.check(now); });
}

Time NamedLanes::next_deadline() const {
  Time earliest = group_ && !failed_ ? group_->next_check() : Time::never();
  for_each([&earliest](GroupLane& lane) { earliest = std::min(earliest, lane.next_deadline()); });
  return earliest;
}

int32_t NamedLanes::awaited_that_left() const {
  int32_t left = -1;
  for_each([&left](const GroupLane& lane) {
    if (left < 0) left = lane.awaited_that_left();
  });
  const bool waiting = group_ && group_->waiting();
  for (int32_t r = 0; left < 0 && waiting && r < facts_.size(); ++r) {
    if (parts_.peers.departed(facts_.member(r))) left = r;
  }
  return left;
}

// -- failure --------------------------------------------------------------------------------------

void NamedLanes::fail(const Status& cause, Time now) {
  for_each([&](GroupLane& lane) { lane.fail(cause, now); });
  if (!std::exchange(failed_, true) && group_) group_->fail(cause);
}

void NamedLanes::close(const Status& cause) {
  for_each([&cause](GroupLane& lane) { lane.close(cause); });
  if (!std::exchange(failed_, true) && group_) group_->fail(cause);
}

std::optional<GroupFailure> NamedLanes::take_failure() {
  for_each([this](GroupLane& lane) {
    auto failure = lane.take_failure();
    if (failure && !failure_) failure_ = std::move(failure);
  });
  return std::exchange(failure_, {});
}

Status NamedLanes::take_next_error() {
  Status error;
  for_each([&error](GroupLane& lane) {
    if (error.ok()) error = lane.take_next_error();
  });
  return error;
}

}  // namespace corro::runtime
