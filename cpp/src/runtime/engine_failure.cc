// Engine, failures: deadlines, lost ranks, ranks that disagree, and what everyone is told of them.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// Enough for all that a dead rank can have left behind; a living one that floods cannot hold this.
constexpr int kMostPollsForTheDead = 100'000;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void Engine::check_deadlines(Time now) {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    if (!group.failed.ok()) continue;  // check_settling() ends what is left
    for (size_t i = 0; i < group.flights.size(); ++i) {
      Flight& flight = *group.flights[i];
      if (flight.over) continue;
      if (now >= flight.suspect_at()) suspect(flight, now);
      if (now >= flight.deadline) return expire(flight, now);
      if (tells(flight) && now >= flight.tell_at()) tell_waiting(flight);
    }
    for (size_t i = 0; i < group.pairs.size(); ++i) {
      Flight& flight = *group.pairs[i];
      if (flight.over) continue;
      if (now >= flight.suspect_at()) suspect(flight, now);
      if (now >= flight.deadline) return expire(flight, now);
    }
  }
}

/// Notes whom the operation waits for; at most one event a rank until they are taken.
void Engine::suspect(Flight& flight, Time now) {
  const int32_t waits = waiting_for(flight);
  if (waits < 0) {
    flight.waits_since = now;
    return;
  }
  flight.suspects = true;
  const int32_t world_rank = flight.group->members[static_cast<size_t>(waits)];
  const auto known = [world_rank](const Suspect& one) { return one.rank == world_rank; };
  if (std::any_of(suspects_.begin(), suspects_.end(), known)) return;
  suspects_.push_back({world_rank, flight.waits_since});
  ++counters_.suspects;
}

/// Over streams a rank knows whom it waits for itself, but not for whom that one waits.
bool Engine::tells(const Flight& flight) const {
  return uses_messages(flight) && flight.group->failed.ok() && waiting_for(flight) >= 0;
}

void Engine::tell_waiting(Flight& flight) {
  const Group& group = *flight.group;
  const int32_t awaited = group.members[static_cast<size_t>(waiting_for(flight))];
  if (flight.told == awaited) return;
  flight.told = awaited;
  tell_members(group, {.kind = wire::ControlKind::kWaiting,
                       .code = 0,
                       .lane = group.lane,
                       .rank = awaited,
                       .op = flight.op,
                       .text = {}});
}

/// The rank at the end of the chain: it is not in the operation, or does not say anything.
int32_t Engine::follow_waiting(const Group& group, uint64_t op, int32_t first) const {
  int32_t last = first;
  for (int32_t hops = 0; hops < group.size(); ++hops) {
    const auto found = group.waiting.find(last);
    if (found == group.waiting.end() || found->second.first != op) return last;
    last = found->second.second;
    if (last == rank()) break;
  }
  return first;  // They wait in a circle.
}

void Engine::expire(Flight& flight, Time now) {
  Group& group = *flight.group;
  const int32_t waits = waiting_for(flight);
  const int32_t awaited = waits < 0 ? -1 : group.members[static_cast<size_t>(waits)];
  const int32_t culprit = awaited < 0 ? -1 : follow_waiting(group, flight.op, awaited);
  std::string message = culprit < 0 ? "waited" : fmt::format("waited for rank {}", culprit);
  if (culprit != awaited) message += fmt::format(" (by way of rank {})", awaited);
  message += fmt::format(" for {:.3g} s", seconds(now - flight.submitted));
  if (culprit >= 0) {
    message += "; " + (group.board != nullptr && !is_pair(flight.request->kind)
                           ? group.board->last_operation_of(group.index_of(culprit))
                           : last_message_of(group, culprit));
  }
  fail_group(group, {Code::kDeadlineExceeded, message, {.rank = culprit}}, culprit);
}

/// What a rank was doing, as far as its messages tell.
std::string Engine::last_message_of(const Group& group, int32_t from) const {
  const auto last = endpoints_[static_cast<size_t>(from)]->last_message();
  if (!last) return "it has sent nothing yet";
  if ((last->key.lane & ~collective::kPairLaneBit) != group.lane)
    return "its last message was of another group";
  const std::string call = collective::Signature::unpack(last->signature).describe();
  if ((last->key.lane & collective::kPairLaneBit) != 0) return "its last message was of " + call;
  return fmt::format("its last message on this group was of #{} {}", last->key.op + 1, call);
}

Status Engine::describe_failure(const Flight& flight, const Status& cause) const {
  const collective::OpRequest& request = *flight.request;
  obs::Phase phase = flight.operation != nullptr ? flight.operation->phase() : obs::Phase::kQueued;
  if (flight.voted) phase = obs::Phase::kFinish;
  const int32_t culprit = cause.detail() ? cause.detail()->rank : -1;
  std::string what = fmt::format("{} #{}", name_of(request.kind), flight.op + 1);
  if (!request.name.empty()) what += fmt::format(" \"{}\"", request.name);
  return {cause.code(),
          fmt::format("{} on rank {} (phase {}): {}", what, rank(), obs::name_of(phase),
                      cause.message()),
          {.rank = culprit,
           .op = std::string(name_of(request.kind)),
           .phase = std::string(obs::name_of(phase)),
           .torn = flight.voted || (flight.operation != nullptr && flight.operation->torn())}};
}

/// The same for an operation that had returned here without a failure.
Status Engine::describe_past(const PastOperation& past, const Status& cause) const {
  const auto name = std::string(name_of(collective::Signature::unpack(past.signature).kind));
  return {cause.code(),
          fmt::format("{} #{} on rank {} (it had returned): {}", name, past.op + 1, rank(),
                      cause.message()),
          {.rank = cause.detail() ? cause.detail()->rank : -1, .op = name, .phase = "exchange"}};
}

/// Ends everything of the group with the same cause, here and for whoever waits on this rank.
void Engine::fail_group(Group& group, const Status& cause, int32_t culprit) {
  if (!group.failed.ok()) return settle(group);
  group.failed = cause;
  if (group.board != nullptr) group.board->set_failed(cause.code(), culprit);
  tell_group(group, wire::ControlKind::kAbort, group.completed(), cause, culprit);
  for (size_t i = 0; i < group.flights.size(); ++i) {
    Flight& flight = *group.flights[i];
    if (!flight.over && !flight.voted) end(flight, describe_failure(flight, cause));
  }
  for (size_t i = 0; i < group.pairs.size(); ++i) {
    Flight& flight = *group.pairs[i];
    if (!flight.over) end(flight, describe_failure(flight, cause));
  }
  (void)executor_->cancel_pending(group.executor_lane, cause);
  settle(group);
  sweep(group);
  fail_named(group, cause, culprit);
}

/// This rank cannot go on with anything: its groups fail, here and for their other members.
void Engine::fail_all(const Status& cause) {
  const Status mine(cause.code(), fmt::format("rank {}: {}", rank(), cause.message()),
                    {.rank = rank()});
  for (size_t i = 0; i < groups_.size(); ++i) fail_group(*groups_[i], mine, rank());
}

void Engine::peer_lost(int32_t lost_rank, const std::string& how) {
  std::string& known = lost_[static_cast<size_t>(lost_rank)];
  if (!known.empty()) return;
  known = how;
  ++counters_.ranks_lost;
  if (auto* endpoint = endpoints_[static_cast<size_t>(lost_rank)].get(); endpoint != nullptr)
    endpoint->close();
  const EnginePeer& peer = options_.peers[static_cast<size_t>(lost_rank)];
  const Status cause(Code::kUnavailable,
                     fmt::format("rank {} ({}) was lost: {}", lost_rank, peer.where, how),
                     {.rank = lost_rank});
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->contains(lost_rank)) fail_group(*groups_[i], cause, lost_rank);
  }
  for (const auto& group : retired_) {
    if (group->contains(lost_rank) && group->failed.ok()) group->failed = cause;
  }
  settle_all(lost_rank);
}

/// Moves what a dead rank's last bytes can still complete, and no other group, whose queue may be
/// long; true if anything of it moved.
bool Engine::poll_groups_of(int32_t member) {
  transport::Endpoint* endpoint = endpoints_[static_cast<size_t>(member)].get();
  bool moved =
      endpoint != nullptr && lost_[static_cast<size_t>(member)].empty() && endpoint->progress();
  (void)poll_endpoints(true);  // Other members' messages may be needed, too.
  moved = executor_->poll(now_) || moved;
  for (size_t i = 0; i < groups_.size(); ++i) {
    Group& group = *groups_[i];
    if (!group.contains(member)) continue;
    if (group.busy()) moved = poll_group(group) || moved;
    if (group.named != nullptr) moved = poll_named(group, now_) || moved;
  }
  return moved;
}

void Engine::peer_ended(int32_t ended, const std::string& how) {
  const auto index = static_cast<size_t>(ended);
  if (closed_) return;
  for (int i = 0; i < kMostPollsForTheDead && poll_groups_of(ended); ++i) {
  }
  if (auto* endpoint = endpoints_[index].get(); endpoint != nullptr && lost_[index].empty()) {
    while (endpoint->progress()) {
    }
  }
  if (!departed_[index]) return peer_lost(ended, how);
  check_departed();
}

/// Operations that wait for a rank that has left will wait for ever.
void Engine::check_departed() {
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = *groups_[g];
    for (const auto& flight : group.flights) {
      if (flight->over || waiting_for(*flight) < 0) continue;
      const int32_t awaited = group.members[static_cast<size_t>(waiting_for(*flight))];
      if (!departed_[static_cast<size_t>(awaited)]) continue;
      fail_group(
          group,
          {Code::kUnavailable, fmt::format("rank {} has left the job", awaited), {.rank = awaited}},
          awaited);
      break;
    }
    check_departed_named(group);
  }
}

void Engine::tell_group(const Group& group, wire::ControlKind kind, uint64_t op,
                        const Status& status, int32_t culprit) {
  // The board tells everyone who is in an operation; who waits for a name looks elsewhere.
  const bool by_names = group.named != nullptr || group.owner != nullptr;
  if (group.board != nullptr && !by_names && !commits(group)) return;
  tell_members(group, {.kind = kind,
                       .code = static_cast<uint8_t>(status.code()),
                       .lane = group.lane,
                       .rank = culprit,
                       .op = op,
                       .text = status.message()});
}

void Engine::on_control(int32_t from, const wire::Control& control) {
  if (control.kind == wire::ControlKind::kGoodbye) {
    departed_[static_cast<size_t>(from)] = true;
    any_departed_ = true;
    return settle_all(from);
  }
  if (of_a_later_group(control.lane)) return keep_early(from, control);
  if (control.kind == wire::ControlKind::kReady || control.kind == wire::ControlKind::kOrder)
    return hear_named(from, control);
  if (Group* retired = retired_of_lane(control.lane); retired != nullptr) {
    if (control.kind >= wire::ControlKind::kVote && retired->contains(from))
      hear_closing(from, *retired, control);
    return;
  }
  Group* group = group_of_lane(control.lane);
  if (group == nullptr) group = named_lane_of(control.lane);
  if (group == nullptr || !group->contains(from)) return;
  if (control.kind == wire::ControlKind::kWaiting) {
    if (group->contains(control.rank)) group->waiting[from] = {control.op, control.rank};
    return;
  }
  if (control.kind >= wire::ControlKind::kVote) return hear_closing(from, *group, control);
  const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
  const int32_t culprit = control.rank >= 0 && control.rank < size() ? control.rank : -1;
  const Status cause(code, control.text, {.rank = culprit});
  if (control.kind == wire::ControlKind::kAbort) fail_group(*group, cause, culprit);
  if (control.kind == wire::ControlKind::kCancel) cancel_operation(*group, from, control.op, cause);
}

void Engine::cancel_operation(Group& group, int32_t from, uint64_t op, const Status& cause) {
  if (!group.failed.ok()) return;
  if (Flight* flight = group.find(op); flight != nullptr && flight->operation != nullptr) {
    const int32_t decider = decider_of(group);
    if (flight->voted && from != decider && rank() != decider) return;  // that one hears it as well
    conclude(*flight, describe_failure(*flight, cause));
    return;
  }
  const PastOperation& past = group.past_of(op);
  if (past.op == op) {
    if (!past.failed) group.next_error = describe_past(past, cause);  // it had returned here
  } else if (op >= group.completed()) {
    group.cancelled.emplace(op, cause);
  }
}

/// Messages without a receive show what their senders called: compare with what was, is or will be
/// called here.
void Engine::judge_strays() {
  if (strays_.empty()) return;
  std::vector<Stray> strays;
  strays.swap(strays_);
  for (const Stray& stray : strays) {
    if ((stray.key.lane & collective::kPairLaneBit) != 0) continue;
    Group* group = group_of_lane(stray.key.lane);
    if (group != nullptr && group->failed.ok())
      judge(stray.from, *group, stray.key.op, stray.signature);
  }
}

void Engine::judge(int32_t from, Group& group, uint64_t op, const SignatureBits& signature) {
  if (Flight* flight = group.find(op); flight != nullptr && flight->operation != nullptr) {
    if (flight->signature == signature || flight->voted) return;  // the votes are compared
    const Status error = disagreement(rank(), flight->signature, from, signature);
    tell_group(group, wire::ControlKind::kCancel, op, error, -1);
    end(*flight, describe_failure(*flight, error));
    return;
  }
  PastOperation& past = group.past_of(op);
  if (past.op != op) {
    if (op >= group.completed()) group.early.emplace(op, std::pair(from, signature));
    return;
  }
  if (past.failed || past.signature == signature) return;
  past.failed = true;
  const Status error = disagreement(rank(), past.signature, from, signature);
  group.next_error = describe_past(past, error);
  tell_group(group, wire::ControlKind::kCancel, op, error, -1);
}

Status Engine::disagreement(int32_t one, const SignatureBits& signature, int32_t other,
                            const SignatureBits& others) {
  return {Code::kInvalidArgument,
          fmt::format("ranks disagree: {}",
                      collective::describe_difference(one, signature, other, others)),
          {.rank = other}};
}

}  // namespace corro::runtime
