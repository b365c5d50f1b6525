#include "transport/inbox.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"

namespace corro::transport {
namespace {

constexpr size_t kStagingBytes = 64U << 10U;
/// The least that a read into staging asks for. More while frames are small and many, so that one
/// read takes many of them; not more before a large payload, which would be copied twice.
constexpr size_t kLeastAsked = 4U << 10U;
/// One fill() reads at most about this much, so that other peers get their turn.
constexpr size_t kFillBytes = 4U << 20U;
/// What an early message costs beside its payload: many empty ones must reach the limit, too.
constexpr size_t kBounceOverhead = 64;

}  // namespace

Inbox::Inbox(Stream* stream, Outbox& outbox, obs::Metrics metrics, EndpointLimits limits,
             Endpoint::ControlHandler on_control, Endpoint::StrayHandler on_stray)
    : outbox_(outbox),
      metrics_(std::move(metrics)),
      limits_(limits),
      spare_pieces_(limits.bounce_bytes_per_lane),
      on_control_(std::move(on_control)),
      on_stray_(std::move(on_stray)),
      staging_ask_(kLeastAsked) {
  if (stream != nullptr) connect(*stream);
}

Inbox::~Inbox() { metrics_.subtract(obs::Metric::kBouncedBytes, bounced_bytes_); }

void Inbox::connect(Stream& stream) {
  stream_ = &stream;
  traffic_ = traffic_of(stream);
  staging_ = std::make_unique_for_overwrite<std::byte[]>(kStagingBytes);
}

Inbox::Lane& Inbox::lane_of(const LaneKey& key) {
  if (last_lane_ == nullptr || last_lane_->key != key) {
    last_lane_ = &lanes_[key];
    last_lane_->key = key;
  }
  return *last_lane_;
}

bool Inbox::is_over(const Lane& lane, uint64_t op) {
  if (op < lane.retired_below) return true;
  return !lane.cancelled.empty() &&
         std::find(lane.cancelled.begin(), lane.cancelled.end(), op) != lane.cancelled.end();
}

void Inbox::started(Lane& lane, uint64_t below) {
  if (below <= lane.first_unstarted) return;
  lane.first_unstarted = below;
  if (lane.paused) outbox_.send_flow(wire::ControlKind::kPause, lane.key, below);
}

void Inbox::add_bounced(Lane& lane, Incoming& message, size_t size) {
  message.bounced.push_back({spare_pieces_.take(size), size});
  lane.bounced_bytes += size + kBounceOverhead;
  bounced_bytes_ += size;
  metrics_.add(obs::Metric::kBouncedBytes, size);
  metrics_.raise(obs::Metric::kBouncedBytesPeak, metrics_.value(obs::Metric::kBouncedBytes));
  if (lane.paused || lane.bounced_bytes <= limits_.bounce_bytes_per_lane) return;
  lane.paused = true;
  metrics_.add(obs::Metric::kPauses);
  outbox_.send_flow(wire::ControlKind::kPause, lane.key, lane.first_unstarted);
}

void Inbox::free_bounced(Lane& lane, Incoming& message) {
  for (Piece& piece : message.bounced) {
    lane.bounced_bytes -= piece.size + kBounceOverhead;
    bounced_bytes_ -= piece.size;
    metrics_.subtract(obs::Metric::kBouncedBytes, piece.size);
    spare_pieces_.give(std::move(piece.bytes));
  }
  message.bounced = std::vector<Piece>();
  if (!lane.paused || lane.bounced_bytes * 2 > limits_.bounce_bytes_per_lane) return;
  lane.paused = false;
  outbox_.send_flow(wire::ControlKind::kResume, lane.key, 0);
}

bool Inbox::arriving(const MessageKey& key) const {
  return payload_left_ > 0 && frame_.kind == wire::FrameKind::kMessage && key_ == key;
}

bool Inbox::take(RecvRequest& request, const Incoming& message) {
  const bool same = message.signature == request.signature;
  if (same && message.length == request.into.size() && !request.may_be_shorter) return true;
  request.peer_signature = message.signature;
  request.peer_bytes = message.length;
  if (same && request.may_be_shorter && message.length <= request.into.size()) return true;
  request.mismatch = true;
  request.done = true;
  return false;
}

void Inbox::post(RecvRequest& request) {
  const MessageKey key = request.key;
  Lane& lane = lane_of(key.lane);
  Incoming* message = messages_.find(key);
  if (message == nullptr) {
    messages_.insert(key).request = &request;
    ++awaited_;
  } else {
    CORRO_CHECK(message->request == nullptr && !message->drop, "posted twice", key.lane.key, key.op,
                key.step);
    claim(lane, *message, request);
  }
  started(lane, key.op + 1);
}

/// Gives a message that was early to the request it waited for.
void Inbox::claim(Lane& lane, Incoming& message, RecvRequest& request) {
  const MessageKey key = request.key;
  const bool whole = message.received == message.length && !arriving(key);
  if (!take(request, message)) {
    message.drop = true;
    if (arriving(key)) sink_ = nullptr;
  } else {
    std::byte* into = request.into.data();
    for (const Piece& piece : message.bounced) {
      const bool last = &piece == &message.bounced.back();
      const size_t here = last && arriving(key) ? piece.size - payload_left_ : piece.size;
      if (here > 0) std::memcpy(into, piece.bytes.data(), here);
      into += here;
    }
    if (arriving(key)) sink_ = into;
    message.request = &request;
    request.done = whole;
    if (!whole) ++awaited_;
    --lane.unclaimed;
  }
  free_bounced(lane, message);
  if (!whole) return;
  if (message.drop) --lane.unclaimed;
  messages_.erase(key);
}

void Inbox::cancel(const LaneKey& key, uint64_t op) {
  Lane& lane = lane_of(key);
  forget(lane, op, op + 1);
  if (!is_over(lane, op)) lane.cancelled.push_back(op);
  started(lane, op + 1);
}

void Inbox::retire_below(const LaneKey& key, uint64_t op) {
  Lane& lane = lane_of(key);
  if (op <= lane.retired_below) return;
  if (lane.unclaimed > 0) forget(lane, 0, op);
  std::erase_if(lane.cancelled, [&](uint64_t over) { return over < op; });
  lane.retired_below = op;
  started(lane, op);
}

/// Drops every entry of the lane's operations in [op_from, op_below).
void Inbox::forget(Lane& lane, uint64_t op_from, uint64_t op_below) {
  messages_.erase_if([&](const MessageKey& key, Incoming& message) {
    if (key.lane != lane.key || key.op < op_from || key.op >= op_below) return false;
    --(message.request == nullptr ? lane.unclaimed : awaited_);
    free_bounced(lane, message);
    if (arriving(key)) sink_ = nullptr;
    return true;
  });
}

bool Inbox::is_closed(const LaneKey& key) const {
  if (key.epoch < epoch_) return true;
  if (closed_.empty() || (last_lane_ != nullptr && last_lane_->key == key)) return false;
  return std::find(closed_.begin(), closed_.end(), key) != closed_.end();
}

void Inbox::close_lane(const LaneKey& key) {
  forget(lane_of(key), 0, std::numeric_limits<uint64_t>::max());
  lanes_.erase(key);
  last_lane_ = nullptr;
  if (closed_.size() < kMostClosed) closed_.resize(closed_.size() + 1);
  closed_[next_closed_++ % kMostClosed] = key;
}

void Inbox::start_epoch(uint32_t epoch) {
  epoch_ = epoch;
  std::vector<LaneKey> over;
  for (const auto& [key, lane] : lanes_) {
    if (key.epoch < epoch) over.push_back(key);
  }
  for (const LaneKey& key : over) close_lane(key);
}

bool Inbox::fill() {
  size_t moved = 0;
  while (!ended_ && moved < kFillBytes) {
    std::array<iovec, 2> pieces{};
    const size_t count = read_pieces(pieces);
    const bool straight = count == 2;
    const Moved result = stream_->read(std::span(pieces).first(count));
    moved += result.bytes;
    size_t rest = result.bytes;
    if (straight) {
      const size_t placed = std::min(rest, payload_left_);
      sink_ += placed;
      payload_left_ -= placed;
      rest -= placed;
      if (payload_left_ == 0) finish_frame();
    }
    staged_end_ += rest;
    consume();
    if (result.closed) at_end_of_stream();
    const size_t asked = pieces[0].iov_len + pieces[1].iov_len;
    if (result.bytes < asked) break;
    const bool large = payload_left_ > kLeastAsked;
    staging_ask_ = large ? kLeastAsked : std::min(staging_ask_ * 2, kStagingBytes);
  }
  return moved > 0;
}

/// Chooses where the next bytes go; returns 2 if the first piece is the payload's own place.
size_t Inbox::read_pieces(std::span<iovec, 2> pieces) {
  if (payload_left_ > 0 && sink_ != nullptr) {
    // Between the pieces of one message only a header goes through staging.
    const bool more = frame_.offset + frame_.piece < frame_.length;
    pieces[0] = {sink_, payload_left_};
    pieces[1] = {staging_.get(), more ? wire::kFrameHeaderBytes : staging_ask_};
    return 2;
  }
  const size_t end = payload_left_ > 0 ? kStagingBytes : staging_ask_;
  pieces[0] = {staging_.get() + staged_end_, end - staged_end_};
  return 1;
}

/// Looks at everything staged; what is left is the beginning of a header, moved to the front.
void Inbox::consume() {
  while (!ended_) {
    if (payload_left_ > 0) {
      const size_t take = std::min(payload_left_, staged());
      if (take == 0) break;
      if (sink_ != nullptr) {
        std::memcpy(sink_, staging_.get() + staged_begin_, take);
        sink_ += take;
      }
      staged_begin_ += take;
      payload_left_ -= take;
      if (payload_left_ > 0) break;
    } else {
      if (staged() < wire::kFrameHeaderBytes) break;
      if (const Status status = start_frame(); !status.ok()) {
        end("protocol error: " + status.message());
        return;
      }
      if (payload_left_ > 0) continue;
    }
    finish_frame();
  }
  if (staged_begin_ > 0 && staged() > 0) {
    std::memmove(staging_.get(), staging_.get() + staged_begin_, staged());
  }
  staged_end_ -= staged_begin_;
  staged_begin_ = 0;
}

Status Inbox::start_frame() {
  const std::span<const std::byte, wire::kFrameHeaderBytes> raw(staging_.get() + staged_begin_,
                                                                wire::kFrameHeaderBytes);
  CORRO_ASSIGN(frame_, wire::decode_frame(raw, limits_.max_message_bytes));
  staged_begin_ += wire::kFrameHeaderBytes;
  payload_left_ = frame_.piece;
  if (frame_.kind == wire::FrameKind::kMessage) return start_message();
  control_text_.resize(frame_.piece);
  sink_ = reinterpret_cast<std::byte*>(control_text_.data());
  return {};
}

Status Inbox::start_message() {
  key_ = {frame_.lane, frame_.op, frame_.step};
  sink_ = nullptr;
  if (frame_.offset == 0) last_message_ = {key_, frame_.signature};
  if (is_closed(key_.lane)) return {};
  Lane& lane = lane_of(key_.lane);
  if (is_over(lane, key_.op)) {
    if (on_stray_ && frame_.offset == 0) on_stray_(key_, frame_.signature);
    return {};
  }
  Incoming* message = messages_.find(key_);
  const bool unknown = message == nullptr;
  if (unknown) message = &messages_.insert(key_);
  if (unknown) ++lane.unclaimed;
  CORRO_TRY(check_continuation(*message));
  if (!message->begun) {
    message->begun = true;
    message->signature = frame_.signature;
    message->length = frame_.length;
    RecvRequest* request = message->request;
    if (request == nullptr) {
      metrics_.add(obs::Metric::kBounced);
      if (on_stray_) on_stray_(key_, frame_.signature);
    }
    if (request != nullptr && !take(*request, *message)) {
      message->request = nullptr;
      message->drop = true;
      --awaited_;
      ++lane.unclaimed;
    }
  }
  if (message->drop) return {};
  if (message->request != nullptr) {
    sink_ = message->request->into.data() + frame_.offset;
    return {};
  }
  const size_t size = frame_.piece;
  add_bounced(lane, *message, size);
  sink_ = message->bounced.back().bytes.data();
  return {};
}

/// Data from the peer: a piece must go on where its message stands.
Status Inbox::check_continuation(const Incoming& message) const {
  const bool follows = message.begun ? frame_.offset > 0 && frame_.offset == message.received &&
                                           frame_.length == message.length
                                     : frame_.offset == 0;
  if (follows && (!message.begun || frame_.signature == message.signature)) return {};
  const uint64_t length = message.begun ? message.length : frame_.length;
  const std::string what =
      follows ? std::string("another signature than the pieces before")
              : fmt::format("piece at {} of {} where byte {} of {} is next", frame_.offset,
                            frame_.length, message.received, length);
  return {Code::kInvalidArgument,
          fmt::format("message of epoch {} lane {:016x} op {} step {}: {}", key_.lane.epoch,
                      key_.lane.key, key_.op, key_.step, what)};
}

void Inbox::finish_frame() {
  if (frame_.kind == wire::FrameKind::kControl) {
    finish_control();
  } else {
    finish_message_piece();
  }
}

void Inbox::finish_message_piece() {
  Incoming* message = messages_.find(key_);
  if (message == nullptr || !message->begun) return;  // Cancelled or retired meanwhile.
  message->received += frame_.piece;
  metrics_.add(traffic_.bytes_received, frame_.piece);
  if (message->received < message->length) return;
  metrics_.add(traffic_.messages_received);
  if (message->request != nullptr) {
    message->request->done = true;
    --awaited_;
  } else if (message->drop) {
    --lane_of(key_.lane).unclaimed;
  } else {
    return;  // Early: waits for its request.
  }
  messages_.erase(key_);
}

void Inbox::finish_control() {
  if (frame_.control == wire::ControlKind::kPause) {
    outbox_.hold_from(frame_.lane, frame_.op);
  } else if (frame_.control == wire::ControlKind::kResume) {
    outbox_.release(frame_.lane);
  } else {
    on_control_(wire::control_from(frame_, std::move(control_text_)));
    control_text_.clear();
  }
}

void Inbox::at_end_of_stream() {
  if (ended_) return;
  if (payload_left_ > 0 || staged() > 0) {
    end(fmt::format(
        "the stream ended inside a frame ({} header bytes there, {} payload bytes missing)",
        staged(), payload_left_));
  } else {
    end({});
  }
}

void Inbox::end(std::string reason) {
  if (ended_) return;
  ended_ = true;
  failure_ = std::move(reason);
  if (stream_ != nullptr) stream_->close();
}

}  // namespace corro::transport
