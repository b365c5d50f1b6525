#include "runtime/group_lane.h"

#include <algorithm>

#include <fmt/format.h>

#include "collective/coded_operation.h"

namespace corro::runtime {
namespace {

/// No rank sends a vote for an operation that is further ahead than this: a lane is never so deep.
constexpr uint64_t kMostAhead = 2 * uint64_t{collective::kLines};

/// What it takes of a lane's depth, kLines.
uint32_t weight_of(const collective::OpRequest& request) {
  const bool uneven = !request.counts.empty() || !request.send_counts.empty();
  const uint64_t bytes = uneven ? UINT64_MAX : request.count * size_of(request.dtype);
  return collective::kLines / collective::most_in_flight(bytes);
}

/// It has started, and waits for a member to leave room for what it publishes.
bool waits_for_room(const collective::Operation& operation) {
  return operation.phase() == obs::Phase::kQueued && operation.waiting_for() >= 0;
}

/// The group rank for which the flight waits, or -1.
int32_t awaited_by(const Flight& flight, const std::optional<ClosingRound>& closing) {
  if (flight.voted) return closing->waiting_for(flight.op);
  return flight.operation == nullptr ? -1 : flight.operation->waiting_for();
}

}  // namespace

GroupLane::GroupLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
                     std::unique_ptr<collective::Fabric> fabric)
    : GroupLane(key, facts, parts, std::move(fabric), parts.executor.get()) {
  one_shots_ = executor_->add_lane({.name = fmt::format("lane {:016x}", key.key),
                                    .order = graph::LaneOrder::kAgreed,
                                    .depth = collective::kLines},
                                   *this);
}

GroupLane::GroupLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
                     std::unique_ptr<collective::Fabric> fabric, graph::Executor* plan)
    : key_(key),
      facts_(facts),
      parts_(parts),
      fabric_(std::move(fabric)),
      by_messages_(fabric_->traits().by_messages),
      executor_(plan) {
  if (parts.options.commit && facts.size() > 1) closing_.emplace(facts.rank, facts.size());
}

/// An engine that goes without close() leaves its operations as they are: the buffers that they
/// borrowed may be gone already. Its executor, where they stand, is never polled again.
GroupLane::~GroupLane() {
  if (one_shots_) (void)executor_->remove_lane(*one_shots_);
}

// -- submission -----------------------------------------------------------------------------------

void GroupLane::submit(const std::shared_ptr<WorkState>& work, size_t index, Time now) {
  auto flight = make_flight(parts_, work, index, now);
  flight->op = flights_.take_op();
  record_flight(parts_, key_, *flight);
  queue(flights_.push(std::move(flight)));
}

void GroupLane::queue(Flight& flight) {
  const auto queued =
      executor_->submit(*one_shots_, {.name = name_of(flight.request->kind),
                                      .weight = weight_of(*flight.request),
                                      .launch = [this, raw = &flight](const graph::Firing& firing) {
                                        raw->ticket = firing.ticket;
                                        launch(*raw);
                                      }});
  CORRO_CHECK(queued.ok(), queued.status().message());
}

void GroupLane::fire(const collective::OpRequest& request, graph::Ticket ticket, Time now,
                     std::optional<obs::FlightRecorder::Handle> record) {
  auto flight = make_flight(parts_, request, now);
  flight->op = flights_.take_op();
  flight->ticket = ticket;
  flight->of_firing = record.has_value();
  if (record) {
    flight->record = *record;
  } else {
    record_flight(parts_, key_, *flight);
  }
  launch(flights_.push(std::move(flight)));
}

void GroupLane::skip() {
  auto flight = std::make_unique<Flight>();
  const uint64_t op = flight->op = flights_.take_op();
  flight->over = true;
  news_.remember({.op = op, .signature = {}, .failed = true});
  (void)news_.take_cancel(op);
  (void)news_.take_call(op);
  if (closing_) closing_->forget(op);
  flights_.push(std::move(flight));
  sweep();
}

void GroupLane::take_back(uint64_t from, uint64_t resume) {
  const Status taken_back(Code::kCancelled, "taken back from a static plan");
  if (one_shots_) (void)executor_->cancel_pending(*one_shots_, taken_back);
  for (const auto& flight : flights_) {
    if (flight->over) continue;
    if (flight->op >= from) {
      const std::shared_ptr<WorkState> work = std::move(flight->work);  // The request is in it.
      if (flight->operation != nullptr) flight->operation->return_memory();
      end(*flight, taken_back);
    } else if (flight->operation == nullptr) {
      queue(*flight);
    }
  }
  while (flights_.next_op() < resume) skip();
  sweep();
}

void GroupLane::launch(Flight& flight) {
  flight.start(parts_, fabric_->start(flight.op, *flight.request, flight.published),
               by_messages_ || closing_);
  const collective::OpRequest& request = *flight.request;
  flight.signature =
      request.codec == nullptr
          ? collective::signature_of(request, facts_.size()).pack()
          : collective::signature_of(collective::travelling(request), facts_.size()).pack();
  if (const auto said = news_.take_call(flight.op)) judge(said->first, flight.op, said->second);
  if (flight.over) return;
  if (const auto cause = news_.take_cancel(flight.op))
    conclude(flight, describe_failure(facts_, flight, *cause));
}

// -- small, and at once ---------------------------------------------------------------------------

bool NowOperation::begin(GroupLane& lane, const collective::OpRequest& request) {
  if (lane.closing_ || lane.by_messages_ || !lane.flights_.empty() || !lane.news_.next_error.ok())
    return false;
  const auto ticket = lane.executor_->try_begin(*lane.one_shots_);
  if (!ticket) return false;
  if (!lane.fabric_->begin_now(lane.flights_.next_op(), request, exchange_)) {
    lane.executor_->complete(*ticket);
    return false;
  }
  lane_ = &lane;
  ticket_ = *ticket;
  EngineParts& parts = lane.parts_;
  const obs::OpRecord record = record_of(lane.key_, request, lane.flights_.take_op());
  record_ = parts.recorder->begin(record, obs::Phase::kExchange);
  span_ = parts.timeline.begin(record);
  return true;
}

bool NowOperation::finish(Status& status) {
  if (exchange_->arrived() < exchange_->size()) return false;
  status = exchange_->agreement();
  if (status.ok()) status = exchange_->take_small();
  EngineParts& parts = lane_->parts_;
  lane_->fabric_->set_completed(exchange_->op() + 1);
  lane_->executor_->complete(ticket_);
  parts.recorder->steps().add_wait(parts.recorder->end(record_, status.code()));
  parts.timeline.end(span_, status.code());
  return true;
}

void NowOperation::become(const std::shared_ptr<WorkState>& work, Time now) {
  auto flight = make_flight(lane_->parts_, work, 0, now);
  flight->op = exchange_->op();
  flight->record = record_;
  flight->span = span_;
  flight->ticket = ticket_;
  flight->published = true;
  Flight& pushed = lane_->flights_.push(std::move(flight));
  lane_->launch(pushed);
  if (lane_->failed_ && !pushed.over)
    lane_->end(pushed, describe_failure(lane_->facts_, pushed, lane_->failure_cause_));
}

// -- progress -------------------------------------------------------------------------------------

bool GroupLane::poll(Time now) {
  bool moved = false;
  bool oldest = true;
  for (const auto& flight : flights_) {
    if (flight->over || flight->voted) continue;
    if (flight->operation == nullptr) break;  // started in order: none behind it has started
    const collective::Progress progress = move_flight(parts_, facts_, *flight, oldest, now);
    moved = moved || progress != collective::Progress::kIdle;
    if (progress == collective::Progress::kDone) {
      const Status outcome = flight->operation->status();  // conclude() destroys the operation
      conclude(*flight, outcome);
      if (failure_) return true;
    }
    if (flight->over || flight->voted) continue;
    if (waits_for_room(*flight->operation)) break;  // Nor have those behind it.
    oldest = false;
  }
  sweep();
  return moved;
}

/// An operation has ended here by itself or by a cancellation. Its failure is the others' too where
/// they cannot see it.
void GroupLane::conclude(Flight& flight, const Status& outcome) {
  if (flight.operation->fatal() && !failed_) {
    const int32_t culprit = outcome.detail() ? outcome.detail()->rank : facts_.own_world_rank();
    failure_ = {outcome, culprit};
    return;
  }
  if (outcome.ok() && closing_) {
    flight.voted = true;
    parts_.recorder->set_phase(flight.record, obs::Phase::kFinish,
                               facts_.world_rank(ClosingRound::kDecider));
    closing_->vote(flight.op, flight.signature);
    return carry_closing();
  }
  const bool first = flight.operation->status().code() == outcome.code();
  const bool decides = closing_ && facts_.rank == ClosingRound::kDecider;
  if (!outcome.ok() && (by_messages_ || closing_) && (first || decides)) {
    tell_members(parts_, facts_, cancel_of(key_, flight.op, outcome));
  }
  end(flight, outcome);
}

void GroupLane::end(Flight& flight, const Status& status) {
  if (flight.over) return;
  const bool started = flight.operation != nullptr;
  end_flight(parts_, flight, status);
  if (started) executor_->complete(flight.ticket, status);
  // What never started must not push out what may be asked for.
  if (started || !closing_)
    news_.remember({.op = flight.op, .signature = flight.signature, .failed = !status.ok()});
  if (closing_) closing_->forget(flight.op);
}

/// Forgets operations that are over, and tells the fabric how far this rank is.
void GroupLane::sweep() {
  if (flights_.sweep()) fabric_->set_completed(flights_.completed());
}

// -- what other members say -----------------------------------------------------------------------

void GroupLane::hear(int32_t from, const wire::Control& control) {
  const auto code = static_cast<Code>(std::clamp<int>(control.code, 1, 16));
  switch (control.kind) {
    case wire::ControlKind::kCancel:
      return cancel(from, control.op, {code, control.text});
    case wire::ControlKind::kWaiting:
      if (control.rank >= 0 && control.rank < facts_.size())
        news_.note_waiting(from, control.op, control.rank);
      return;
    case wire::ControlKind::kVote: {
      const uint64_t completed = flights_.completed();
      const bool open = control.op >= completed && control.op < completed + kMostAhead &&
                        news_.find_past(control.op) == nullptr;
      if (closing_ && open && facts_.rank == ClosingRound::kDecider)
        closing_->hear_vote(from, control.op, control.signature);
      break;
    }
    case wire::ControlKind::kCommit:
      if (closing_ && from == ClosingRound::kDecider) closing_->hear_commit(control.op);
      break;
    case wire::ControlKind::kSettled:
      if (closing_ && from == ClosingRound::kDecider) closing_->hear_settled();
      break;
    default:
      return;
  }
  carry_closing();
  sweep();
}

void GroupLane::cancel(int32_t from, uint64_t op, const Status& cause) {
  if (failed_) return;
  if (Flight* flight = flights_.find(op); flight != nullptr && flight->operation != nullptr) {
    const bool decided = from == ClosingRound::kDecider || facts_.rank == ClosingRound::kDecider;
    if (flight->voted && !decided) return;  // The decider hears it as well.
    conclude(*flight, describe_failure(facts_, *flight, cause));
    return sweep();
  }
  if (const LaneNews::Past* past = news_.find_past(op); past != nullptr) {
    if (!past->failed) news_.next_error = describe_past(facts_, past->op, past->signature, cause);
  } else if (flights_.is_to_come(op)) {
    news_.keep_cancel(op, cause);
  }
}

void GroupLane::judge(int32_t from, uint64_t op, const SignatureBits& signature) {
  const int32_t own = facts_.own_world_rank();
  const int32_t other = facts_.world_rank(from);
  if (Flight* flight = flights_.find(op); flight != nullptr && flight->operation != nullptr) {
    if (flight->signature == signature || flight->voted) return;  // The votes are compared.
    const Status error = disagreement(own, flight->signature, other, signature);
    tell_members(parts_, facts_, cancel_of(key_, op, error));
    end(*flight, describe_failure(facts_, *flight, error));
    return;
  }
  LaneNews::Past* past = news_.find_past(op);
  if (past == nullptr) {
    if (flights_.is_to_come(op)) news_.keep_call(op, {from, signature});
    return;
  }
  if (past->failed || past->signature == signature) return;
  past->failed = true;
  const Status error = disagreement(own, past->signature, other, signature);
  news_.next_error = describe_past(facts_, op, past->signature, error);
  tell_members(parts_, facts_, cancel_of(key_, op, error));
}

/// Sends what the closing rounds say, and ends what they have decided.
void GroupLane::carry_closing() {
  if (!closing_) return;
  while (const auto message = closing_->take_message()) {
    const wire::Control control{
        .kind = message->kind, .lane = key_, .op = message->op, .signature = message->signature};
    if (message->to_all) {
      tell_members(parts_, facts_, control);
    } else {
      (void)parts_.peers.tell(facts_.member(ClosingRound::kDecider), control);
    }
  }
  while (const auto verdict = closing_->take_verdict()) {
    Flight* flight = flights_.find(verdict->op);
    using Kind = ClosingRound::Verdict::Kind;
    if (verdict->kind == Kind::kDisagree) {
      const Status error = disagreement(facts_.world_rank(verdict->one), verdict->signature,
                                        facts_.world_rank(verdict->other), verdict->others);
      if (flight != nullptr && flight->operation != nullptr) {
        conclude(*flight, describe_failure(facts_, *flight, error));
      } else {
        tell_members(parts_, facts_, cancel_of(key_, verdict->op, error));
        news_.keep_cancel(verdict->op, error);
      }
    } else if (flight != nullptr && verdict->kind == Kind::kCommitted) {
      end(*flight, {});
    } else if (flight != nullptr) {
      const bool unknown = verdict->kind == Kind::kUnknown;
      const Status& cause = failure_cause_;
      const std::string doubt = fmt::format(
          "; outcome unknown: rank {}, which decides, has not said whether it succeeded",
          facts_.world_rank(ClosingRound::kDecider));
      end(*flight, describe_failure(facts_, *flight,
                                    {cause.code(), cause.message() + (unknown ? doubt : ""),
                                     cause.detail().value_or(FailureDetail{})}));
    }
  }
}

// -- failure --------------------------------------------------------------------------------------

void GroupLane::fail(const Status& cause, Time now) {
  if (!std::exchange(failed_, true)) {
    failure_cause_ = cause;
    for (const auto& flight : flights_) {
      if (!flight->over && !flight->voted) end(*flight, describe_failure(facts_, *flight, cause));
    }
    if (one_shots_) (void)executor_->cancel_pending(*one_shots_, cause);
    if (closing_) closing_->fail(now);
  }
  if (closing_ && !parts_.peers.present(facts_.member(ClosingRound::kDecider)))
    closing_->lose_decider();
  carry_closing();
  sweep();
}

void GroupLane::close(const Status& cause) {
  failed_ = true;
  // A late rank must not take the result of an operation that is still in flight for complete.
  if (!flights_.empty()) fabric_->set_failed(Code::kUnavailable, facts_.own_world_rank());
  for (const auto& flight : flights_) {
    if (!flight->over) end(*flight, cause);
  }
  if (one_shots_) (void)executor_->cancel_pending(*one_shots_, cause);
  flights_.clear();
}

void GroupLane::check(Time now) {
  if (closing_) {
    closing_->check(now);
    carry_closing();
    sweep();
  }
  if (failed_) return;
  for (const auto& flight : flights_) {
    if (flight->over) continue;
    const int32_t awaited = awaited_by(*flight, closing_);
    suspect_awaited(parts_, *flight, awaited, now);
    if (now >= flight->deadline) return expire(*flight, now);
    if (!flight->by_messages || awaited < 0 || now < flight->tell_at() || flight->told == awaited)
      continue;
    // Over streams a rank knows whom it waits for itself, but not for whom that one waits.
    flight->told = awaited;
    tell_members(
        parts_, facts_,
        {.kind = wire::ControlKind::kWaiting, .lane = key_, .rank = awaited, .op = flight->op});
  }
}

void GroupLane::expire(const Flight& flight, Time now) {
  const int32_t awaited = awaited_by(flight, closing_);
  const int32_t culprit = awaited < 0 ? -1 : news_.follow_waiting(flight.op, awaited, facts_.rank);
  const std::string did = culprit < 0 ? "" : fabric_->last_operation_of(culprit);
  failure_ = deadline_failure(facts_, culprit, awaited, now - flight.submitted, did);
}

Time GroupLane::next_deadline() const {
  Time earliest = closing_ ? closing_->next_check() : Time::never();
  if (failed_) return earliest;
  for (const auto& flight : flights_) {
    if (flight->over) continue;
    const bool tells =
        flight->by_messages && flight->told < 0 && awaited_by(*flight, closing_) >= 0;
    earliest =
        std::min({earliest, flight->suspect_at(), tells ? flight->tell_at() : flight->deadline});
  }
  return earliest;
}

int32_t GroupLane::awaited_that_left() const {
  for (const auto& flight : flights_) {
    const int32_t awaited = flight->over ? -1 : awaited_by(*flight, closing_);
    if (awaited >= 0 && parts_.peers.departed(facts_.member(awaited))) return awaited;
  }
  return -1;
}

}  // namespace corro::runtime
