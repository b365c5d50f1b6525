#include "runtime/transfer_lane.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::runtime {

TransferLane::TransferLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
                           FiringRecords* records, Ends ends)
    : key_(key),
      facts_(facts),
      parts_(parts),
      records_(records),
      ends_(ends),
      endpoint_(*parts.peers.endpoint(facts.member(ends_.peer))) {
  if (records_ == nullptr) return;
  records_->set_operation(ends_.half, key_,
                          {.kind = kind(), .root = ends_.peer, .count = ends_.bytes},
                          obs::Phase::kTransfer);
}

void TransferLane::start(Time now, const graph::Work& work) {
  const graph::Firing& firing = work.firing;
  const transport::MessageKey key{.lane = key_, .op = firing.generation.micro, .step = 0};
  const SignatureBits signature =
      collective::Signature{.kind = OpKind::kSend, .dtype = DType::kU8, .count = ends_.bytes}
          .pack();
  ticket_ = firing.ticket;
  since_ = now;
  if (records_ != nullptr) {
    parts_.recorder->set_phase(records_->record_of(ends_.half), obs::Phase::kTransfer,
                               facts_.world_rank(ends_.peer));
  }
  parts_.begin_flight();
  ++parts_.message_flights;
  slot_ = (ends_.sends ? firing.inputs : firing.outputs).front();
  if (ends_.sends) {
    send_ = {.key = key,
             .signature = signature,
             .payload = slot_->data.first(std::min(slot_->size_bytes, ends_.bytes))};
    state_ = State::kWaitsForSlot;
    if (key.op < granted_) send();
    return;
  }
  receive_ = {.key = key,
              .signature = signature,
              .into = slot_->data.first(ends_.bytes),
              .may_be_shorter = true};
  state_ = State::kMoves;
  endpoint_.post_recv(receive_);
  (void)parts_.peers.tell(facts_.member(ends_.peer),
                          {.kind = wire::ControlKind::kFree, .lane = key_, .op = key.op});
}

void TransferLane::send() {
  state_ = State::kMoves;
  endpoint_.post_send(send_);
}

void TransferLane::hear(MemberId from, const wire::Control& control) {
  if (!ends_.sends || control.kind != wire::ControlKind::kFree || from != facts_.member(ends_.peer))
    return;
  granted_ = std::max(granted_, control.op + 1);
  if (state_ == State::kWaitsForSlot && send_.key.op < granted_) send();
}

bool TransferLane::poll(Time /*now*/) {
  if (state_ != State::kMoves) return false;
  if (ends_.sends ? !send_.done : !receive_.done) return false;
  if (!ends_.sends && !receive_.mismatch) slot_->size_bytes = receive_.peer_bytes;
  end(!ends_.sends && receive_.mismatch ? mismatch() : Status());
  return true;
}

Status TransferLane::mismatch() const {
  const int32_t peer = facts_.world_rank(ends_.peer);
  return {Code::kInvalidArgument,
          fmt::format("rank {} sent {} bytes where rank {} expects {}", peer, receive_.peer_bytes,
                      facts_.own_world_rank(), ends_.bytes),
          {.rank = peer, .op = std::string(name_of(kind())), .phase = "transfer"}};
}

void TransferLane::end(const Status& status) {
  const uint64_t op = ends_.sends ? send_.key.op : receive_.key.op;
  if (!status.ok()) endpoint_.cancel(key_, op);
  endpoint_.retire_below(key_, op + 1);
  state_ = State::kFree;
  parts_.end_flight();
  --parts_.message_flights;
  executor_->complete(ticket_, status);
}

void TransferLane::stop(const Status& cause, Time /*now*/) {
  if (state_ != State::kFree) end(cause);
}

MemberId TransferLane::awaited_that_left() const {
  const MemberId peer = facts_.member(ends_.peer);
  return state_ != State::kFree && parts_.peers.departed(peer) ? peer : -1;
}

std::optional<GroupFailure> TransferLane::check(Time now) {
  if (now < next_deadline()) return std::nullopt;
  return deadline_failure(facts_, ends_.peer, ends_.peer, now - since_, "");
}

Time TransferLane::next_deadline() const {
  return state_ == State::kFree ? Time::never() : since_ + ends_.timeout;
}

std::optional<PlanLane::Rest> TransferLane::take_rest() {
  endpoint_.close_lane(key_);
  return std::nullopt;
}

}  // namespace corro::runtime
