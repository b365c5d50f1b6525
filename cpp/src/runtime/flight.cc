#include "runtime/flight.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "wire/digest.h"

namespace corro::runtime {

int32_t GroupFacts::index_of(MemberId member) const {
  const auto found = std::find(members.begin(), members.end(), member);
  return found == members.end() ? -1 : static_cast<int32_t>(found - members.begin());
}

LaneKey derive_key(const LaneKey& group, const std::string& purpose) {
  const wire::Digest digest = wire::digest_of(fmt::format("{:016x} {}", group.key, purpose));
  LaneKey lane{.epoch = group.epoch};
  std::memcpy(&lane.key, digest.data(), sizeof lane.key);
  return lane;
}

std::unique_ptr<Flight> make_flight(EngineParts& parts, const std::shared_ptr<WorkState>& work,
                                    size_t index, Time now) {
  auto flight = make_flight(parts, work->requests[index], now);
  flight->work = work;
  return flight;
}

std::unique_ptr<Flight> make_flight(EngineParts& parts, const collective::OpRequest& request,
                                    Time now) {
  auto flight = std::make_unique<Flight>();
  flight->request = &request;
  flight->submitted = flight->waits_since = now;
  flight->deadline =
      now + (request.timeout > Duration::zero() ? request.timeout : parts.options.timeout);
  parts.begin_flight();
  return flight;
}

obs::OpRecord record_of(const LaneKey& lane, const collective::OpRequest& request, uint64_t op) {
  return {.op_id = op,
          .lane = static_cast<uint32_t>(lane.key),
          .kind = request.kind,
          .dtype = request.dtype,
          .reduce_op = request.reduce_op,
          .root = request.root,
          .count = request.count,
          .name = request.name};
}

void record_flight(EngineParts& parts, const LaneKey& lane, Flight& flight) {
  const obs::OpRecord record = record_of(lane, *flight.request, flight.op);
  flight.record = parts.recorder->begin(record);
  flight.span = flight.request->span != 0 ? flight.request->span : parts.timeline.begin(record);
}

void Flight::start(EngineParts& parts, std::unique_ptr<collective::Operation> its,
                   bool uses_messages) {
  operation = std::move(its);
  by_messages = uses_messages;
  if (by_messages) ++parts.message_flights;
  parts.recorder->set_phase(record, obs::Phase::kExchange);
}

collective::Progress move_flight(EngineParts& parts, const GroupFacts& facts, Flight& flight,
                                 bool oldest, Time now) {
  const collective::Operation& operation = *flight.operation;
  const obs::Phase phase = operation.phase();
  const int32_t awaited = operation.waiting_for();
  const collective::Progress progress = flight.operation->poll(oldest);
  if (progress == collective::Progress::kDone) return progress;
  if (progress == collective::Progress::kMoved || operation.waiting_for() != awaited) {
    flight.waits_since = now;
    flight.suspects = false;
  }
  if (operation.phase() != phase || operation.waiting_for() != awaited) {
    parts.recorder->set_phase(flight.record, operation.phase(),
                              facts.world_rank(operation.waiting_for()));
  }
  return progress;
}

void suspect_awaited(EngineParts& parts, Flight& flight, int32_t awaited, Time now) {
  if (now < flight.suspect_at()) return;
  if (awaited < 0) {
    flight.waits_since = now;
    return;
  }
  flight.suspects = true;
  parts.metrics.add(obs::Metric::kSuspects);
}

void end_flight(EngineParts& parts, Flight& flight, const Status& status) {
  if (flight.operation != nullptr) {
    if (!status.ok() && !flight.voted) flight.operation->abandon();
    if (flight.by_messages) --parts.message_flights;
    flight.operation.reset();
  }
  flight.over = true;
  parts.end_flight();
  if (!flight.of_firing) {
    parts.recorder->end(flight.record, status.code());
    parts.timeline.end(flight.span, status.code());
  }
  flight.request = nullptr;
  const std::shared_ptr<WorkState> work = std::move(flight.work);
  if (work != nullptr) work->finish_one(status);
}

void tell_members(EngineParts& parts, const GroupFacts& facts, const wire::Control& control) {
  for (const MemberId member : facts.members) (void)parts.peers.tell(member, control);
}

wire::Control cancel_of(const LaneKey& lane, uint64_t op, const Status& cause) {
  return {.kind = wire::ControlKind::kCancel,
          .code = static_cast<uint8_t>(cause.code()),
          .lane = lane,
          .op = op,
          .text = wire::reason_text(cause.message())};
}

// -- texts ----------------------------------------------------------------------------------------

Status describe_failure(const GroupFacts& facts, const Flight& flight, const Status& cause) {
  const collective::OpRequest& request = *flight.request;
  obs::Phase phase = flight.operation != nullptr ? flight.operation->phase() : obs::Phase::kQueued;
  if (flight.voted) phase = obs::Phase::kFinish;
  const int32_t culprit = cause.detail() ? cause.detail()->rank : -1;
  std::string what = fmt::format("{} #{}", name_of(request.kind), flight.op + 1);
  if (!request.name.empty()) what += fmt::format(" \"{}\"", request.name);
  return {cause.code(),
          fmt::format("{} on rank {} (phase {}): {}", what, facts.own_world_rank(),
                      obs::name_of(phase), cause.message()),
          {.rank = culprit,
           .op = std::string(name_of(request.kind)),
           .phase = std::string(obs::name_of(phase)),
           .torn = flight.voted || (flight.operation != nullptr && flight.operation->torn())}};
}

Status describe_past(const GroupFacts& facts, uint64_t op, const SignatureBits& signature,
                     const Status& cause) {
  const auto name = std::string(name_of(collective::Signature::unpack(signature).kind));
  return {cause.code(),
          fmt::format("{} #{} on rank {} (it had returned): {}", name, op + 1,
                      facts.own_world_rank(), cause.message()),
          {.rank = cause.detail() ? cause.detail()->rank : -1, .op = name, .phase = "exchange"}};
}

Status disagreement(int32_t one, const SignatureBits& signature, int32_t other,
                    const SignatureBits& others) {
  return {Code::kInvalidArgument,
          fmt::format("ranks disagree: {}",
                      collective::describe_difference(one, signature, other, others)),
          {.rank = other}};
}

Status has_left(int32_t world_rank) {
  return {Code::kUnavailable,
          fmt::format("rank {} has left the job", world_rank),
          {.rank = world_rank}};
}

GroupFailure deadline_failure(const GroupFacts& facts, int32_t culprit, int32_t awaited,
                              Duration waited, const std::string& did) {
  const int32_t own = facts.own_world_rank();
  const int32_t late = facts.world_rank(culprit);
  std::string way =
      culprit == awaited ? "" : fmt::format(" (by way of rank {})", facts.world_rank(awaited));
  way += fmt::format(" for {:.3g} s", std::chrono::duration<double>(waited).count());
  if (!did.empty()) way += "; " + did;
  if (culprit < 0) {
    return {.cause = {Code::kDeadlineExceeded, "waited" + way},
            .told = fmt::format("rank {} waited{}", own, way)};
  }
  return {.cause = {Code::kDeadlineExceeded,
                    fmt::format("waited for rank {}{}", late, way),
                    {.rank = late}},
          .culprit = late,
          .told = fmt::format("rank {} was late: rank {} waited for it{}", late, own, way)};
}

}  // namespace corro::runtime
