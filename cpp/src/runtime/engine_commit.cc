// Engine, closing rounds (CORRO_COMMIT=1): a collective succeeds on all ranks that live, or fails
// on all of them. docs/design/0004-closing-round.md.
#include <algorithm>

#include "runtime/engine.h"

namespace corro::runtime {
namespace {

/// After a loss, how long the rank that decides now waits for reports, and the others for its word.
constexpr Duration kReportTime = std::chrono::seconds(1);
constexpr Duration kVerdictTime = std::chrono::seconds(2);

/// Destroyed groups whose commits are remembered.
constexpr size_t kMostRetired = 64;

/// Nobody can be so many operations ahead of the decider: a lane is not that deep.
constexpr uint64_t kMostAhead = 64;

}  // namespace

bool Engine::commits(const Group& group) const { return options_.commit && group.size() > 1; }

/// The first member that lives: it counts the votes, and ends what is open after a failure.
int32_t Engine::decider_of(const Group& group) const {
  const auto lives = [this](int32_t member) { return member == rank() || !is_gone(member); };
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

// -- every rank lives -----------------------------------------------------------------------------

/// The result is made here. From now on only the decider's word ends the operation.
void Engine::vote(Flight& flight) {
  Group& group = *flight.group;
  const int32_t decider = decider_of(group);
  flight.voted = true;
  recorder_->set_phase(flight.record, obs::Phase::kFinish, decider);
  if (decider == rank()) return count_vote(group, decider, flight.op, flight.signature);
  (void)tell(decider, {.kind = wire::ControlKind::kVote,
                       .lane = group.lane,
                       .op = flight.op,
                       .signature = flight.signature});
}

void Engine::count_vote(Group& group, int32_t from, uint64_t op, const SignatureBits& signature) {
  // Without a failure the decider is the first member, and nobody votes twice.
  if (!group.failed.ok() || group.past_of(op).op == op) return;
  if (op < group.completed() || op >= group.completed() + kMostAhead) return;
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
  if (!commits(group)) return;
  switch (control.kind) {
    case wire::ControlKind::kVote:
      if (decider_of(group) == rank()) count_vote(group, from, control.op, control.signature);
      break;
    case wire::ControlKind::kCommit:
      if (Flight* flight = group.find(control.op); flight != nullptr && flight->voted)
        end(*flight, {});
      break;
    case wire::ControlKind::kReport:
      group.closing_rounds.reports[from] = control.rank;
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

// -- after a failure ------------------------------------------------------------------------------

/// The first member knows of every commit. Who follows it has to hear first what the others know:
/// one of them may have been told of a commit, and have returned.
void Engine::settle(Group& group) {
  ClosingRounds& rounds = group.closing_rounds;
  if (!commits(group) || group.failed.ok()) return;
  const int32_t decider = decider_of(group);
  if (decider != rank()) return report(group, decider);
  if (rounds.settled) return;
  if (group.members.front() != rank()) {
    if (!rounds.follows) {
      rounds.follows = true;
      rounds.settle_by = now_ + kReportTime;
      for (const int32_t member : group.members) tell_commits(group, member);
    }
    if (now_ < rounds.settle_by && !all_reported(group)) return;
  }
  for (const int32_t member : group.members) tell_verdict(group, member);
  end_voted(group, {});
}

bool Engine::all_reported(const Group& group) const {
  const auto& reports = group.closing_rounds.reports;
  const int32_t gone = gone_from(group);
  return std::all_of(group.members.begin(), group.members.end(), [&](int32_t member) {
    if (member == rank() || is_gone(member)) return true;
    const auto report = reports.find(member);
    return report != reports.end() && report->second >= gone;
  });
}

bool Engine::is_gone(int32_t member) const {
  const auto index = static_cast<size_t>(member);
  return !lost_[index].empty() || departed_[index];
}

int32_t Engine::gone_from(const Group& group) const {
  return static_cast<int32_t>(
      std::count_if(group.members.begin(), group.members.end(),
                    [this](int32_t member) { return member != rank() && is_gone(member); }));
}

/// Somebody is gone: where it decided, somebody else does now.
void Engine::settle_all(int32_t member) {
  if (!options_.commit) return;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (groups_[i]->contains(member)) settle(*groups_[i]);
  }
  for (const auto& group : retired_) {
    if (group->contains(member)) settle(*group);
  }
}

/// Every wait ends: also that for reports, and for the word of the one that decides.
void Engine::check_settling(Time now) {
  for (const auto* groups : {&groups_, &retired_}) {
    for (const auto& group : *groups) {
      ClosingRounds& rounds = group->closing_rounds;
      if (rounds.settled || now < rounds.settle_by) continue;
      if (decider_of(*group) == rank()) {
        settle(*group);
      } else {
        end_voted(*group, "; it may have succeeded elsewhere: nobody has said so in time");
      }
    }
  }
}

/// A destroyed group's commits may still be asked for: the rank that told of them may die.
void Engine::retire(std::unique_ptr<Group> group) {
  group->named.reset();
  group->named_lanes = {};
  group->owner = nullptr;
  retired_.push_back(std::move(group));
  if (retired_.size() > kMostRetired) retired_.erase(retired_.begin());
}

Group* Engine::retired_of_lane(uint32_t lane) const {
  const auto found = std::find_if(retired_.begin(), retired_.end(),
                                  [lane](const auto& group) { return group->lane == lane; });
  return found == retired_.end() ? nullptr : found->get();
}

/// Once more after each loss: the lost one may have told this rank alone of a commit.
void Engine::report(Group& group, int32_t decider) {
  const std::pair told(decider, gone_from(group));
  if (group.closing_rounds.reported == told) return;
  group.closing_rounds.reported = told;
  // To all: should the decider live and say nothing, they know as much as this rank.
  for (const int32_t member : group.members) tell_commits(group, member);
  (void)tell(decider,
             {.kind = wire::ControlKind::kReport, .lane = group.lane, .rank = told.second});
  if (!group.closing_rounds.settled) group.closing_rounds.settle_by = now_ + kVerdictTime;
}

void Engine::tell_verdict(const Group& group, int32_t to) {
  tell_commits(group, to);
  (void)tell(to, {.kind = wire::ControlKind::kSettled, .lane = group.lane});
}

void Engine::tell_commits(const Group& group, int32_t to) {
  for (const PastOperation& past : group.past) {
    if (past.op == UINT64_MAX || past.failed) continue;
    (void)tell(to, {.kind = wire::ControlKind::kCommit, .lane = group.lane, .op = past.op});
  }
}

/// Before this rank leaves: whoever has told it of a commit may die before it tells the others.
void Engine::tell_all_commits() {
  if (!options_.commit) return;
  for (const auto* groups : {&groups_, &retired_}) {
    for (const auto& group : *groups) {
      for (const int32_t member : group->members) tell_commits(*group, member);
    }
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
  sweep(group);
}

}  // namespace corro::runtime
