// Engine, closing rounds (CORRO_COMMIT=1): a collective succeeds on all ranks that live, or fails
// on all of them. docs/design/0004-closing-round.md.
#include <algorithm>

#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// After a failure, how long a rank waits for the word of the one that decides.
constexpr Duration kSettleTime = std::chrono::seconds(1);

}  // namespace

bool Engine::commits(const Group& group) const { return options_.commit && group.size() > 1; }

/// The first member that lives: it counts the votes, and ends what is open after a failure.
int32_t Engine::decider_of(const Group& group) const {
  const auto lives = [this](int32_t member) {
    const auto index = static_cast<size_t>(member);
    return member == rank() || (lost_[index].empty() && !departed_[index]);
  };
  return *std::find_if(group.members.begin(), group.members.end(), lives);
}

/// The group rank that the operation waits for here, or -1.
int32_t Engine::waiting_for(const Flight& flight) const {
  if (!flight.voted) return flight.operation == nullptr ? -1 : flight.operation->waiting_for();
  const Group& group = *flight.group;
  const int32_t decider = decider_of(group);
  if (decider != rank()) return group.index_of(decider);
  const auto votes = group.closing_rounds.votes.find(flight.op);
  for (int32_t r = 0; r < group.size(); ++r) {
    const int32_t member = group.members[static_cast<size_t>(r)];
    if (votes == group.closing_rounds.votes.end() || !votes->second.from.contains(member)) return r;
  }
  return -1;
}

// -- every rank lives
// -------------------------------------------------------------------------------

/// The result is made here. From now on only the decider's word ends the operation.
void Engine::vote(Flight& flight) {
  Group& group = *flight.group;
  const int32_t decider = decider_of(group);
  flight.voted = true;
  recorder_->set_phase(flight.record, obs::Phase::kFinish, decider);
  if (decider == rank()) return count_vote(group, decider, flight.op, flight.signature);
  tell(decider, {.kind = wire::ControlKind::kVote,
                 .lane = group.lane,
                 .op = flight.op,
                 .signature = flight.signature});
}

void Engine::count_vote(Group& group, int32_t from, uint64_t op, const SignatureBits& signature) {
  // Without a failure the decider is the first member, and nobody votes twice.
  if (!group.failed.ok() || group.past_of(op).op == op) return;
  ClosingRounds::Votes& votes = group.closing_rounds.votes[op];
  if (votes.from.empty()) {
    votes.first = from;
    votes.signature = signature;
  }
  if (votes.signature != signature) {
    const Status error = disagreement(votes.first, votes.signature, from, signature);
    tell_group(group, wire::ControlKind::kCancel, op, error, -1);
    return cancel_operation(group, rank(), op, error);
  }
  votes.from.insert(from);
  if (votes.from.size() < group.members.size()) return;
  tell_members(group, {.kind = wire::ControlKind::kCommit, .lane = group.lane, .op = op});
  end(*group.find(op), {});
}

void Engine::hear_closing(int32_t from, Group& group, const wire::Control& control) {
  if (!commits(group)) return;  // the signatures tell that it should
  switch (control.kind) {
    case wire::ControlKind::kVote:
      if (decider_of(group) == rank()) count_vote(group, from, control.op, control.signature);
      break;
    case wire::ControlKind::kCommit:
      if (Flight* flight = group.find(control.op); flight != nullptr && flight->voted)
        end(*flight, {});
      break;
    case wire::ControlKind::kReport:
      group.closing_rounds.reports.insert(from);
      if (group.closing_rounds.settled) {
        tell_verdict(group, from);  // it has missed the word of one that is lost by now
      } else if (!group.failed.ok()) {
        settle(group);
      }
      break;
    default:  // kSettled
      if (!group.failed.ok()) end_voted(group, {});
      break;
  }
  sweep(group);
}

// -- after a failure
// --------------------------------------------------------------------------------

/// The first member knows of every commit. Who follows it has to hear first what all the others
/// know: one of them may have been told of a commit, and have returned.
void Engine::settle(Group& group) {
  ClosingRounds& rounds = group.closing_rounds;
  if (!commits(group)) return;
  const int32_t decider = decider_of(group);
  if (decider != rank()) return report(group, decider);
  if (rounds.settled) return;
  const auto silent = [&](int32_t member) {
    const auto index = static_cast<size_t>(member);
    return member != rank() && lost_[index].empty() && !departed_[index] &&
           !rounds.reports.contains(member);
  };
  const bool follows = group.members.front() != rank();
  if (follows && std::any_of(group.members.begin(), group.members.end(), silent))
    return allow_time(group);
  for (const int32_t member : group.members) {
    if (member != rank()) tell_verdict(group, member);
  }
  end_voted(group, {});
}

void Engine::report(Group& group, int32_t decider) {
  if (group.closing_rounds.reported_to == decider) return;
  group.closing_rounds.reported_to = decider;
  tell_commits(group, decider);
  tell(decider, {.kind = wire::ControlKind::kReport, .lane = group.lane});
  allow_time(group);
}

void Engine::tell_verdict(const Group& group, int32_t to) {
  tell_commits(group, to);
  tell(to, {.kind = wire::ControlKind::kSettled, .lane = group.lane});
}

void Engine::tell_commits(const Group& group, int32_t to) {
  for (const PastOperation& past : group.past) {
    if (past.op == UINT64_MAX || past.failed) continue;
    tell(to, {.kind = wire::ControlKind::kCommit, .lane = group.lane, .op = past.op});
  }
}

/// Every wait ends: also that for the one that decides.
void Engine::allow_time(Group& group) {
  for (const auto& flight : group.flights) {
    if (flight->voted) flight->deadline = now_ + kSettleTime;
  }
}

/// What has not been committed by now has failed. `doubt`: what to add to the cause.
void Engine::end_voted(Group& group, const std::string& doubt) {
  group.closing_rounds.settled = true;
  const Status& failed = group.failed;
  const Status cause(failed.code(), failed.message() + doubt,
                     failed.detail().value_or(FailureDetail{}));
  for (size_t i = 0; i < group.flights.size(); ++i) {
    Flight& flight = *group.flights[i];
    if (!flight.over && flight.voted) end(flight, describe_failure(flight, cause));
  }
}

void Engine::tell(int32_t member, const wire::Control& control) {
  transport::Endpoint* endpoint = endpoints_[static_cast<size_t>(member)].get();
  if (endpoint != nullptr && !endpoint->closed()) endpoint->send_control(control);
}

}  // namespace corro::runtime
