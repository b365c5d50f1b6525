#include "transport/outbox.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace corro::transport {
namespace {

/// What a turn writes at most, or hardly more.
constexpr size_t kTurnBytes = 2U << 20U;

iovec piece_of(BytesView bytes) {
  return {const_cast<std::byte*>(bytes.data()), bytes.size()};  // write() does not change it.
}

}  // namespace

Outbox::Item Outbox::Queue::pop() {
  Item item = std::move(items_[head_++]);
  if (head_ == items_.size()) {
    items_.clear();
    head_ = 0;
  } else if (head_ >= 64 && head_ * 2 >= items_.size()) {
    items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
    head_ = 0;
  }
  return item;
}

void Outbox::Queue::drop(const LaneKey& lane, uint64_t op) {
  for (size_t at = head_; at < items_.size(); ++at) {
    if (items_[at].belongs_to(lane, op)) items_[at] = Item{};
  }
}

void Outbox::post(SendRequest& request) {
  if (broken_) return;
  Item item{.request = &request, .sent = 0, .control = nullptr};
  if (put_on_hold(item)) return;
  queue_.push(std::move(item));
  flush();
}

void Outbox::post(const wire::Control& control) {
  if (broken_) return;
  CORRO_CHECK(control.text.size() <= wire::kMaxControlText, control.text.size());
  queue_.push({.request = nullptr, .sent = 0, .control = std::make_unique<wire::Control>(control)});
  flush();
}

void Outbox::cancel(const LaneKey& lane, uint64_t op) {
  queue_.drop(lane, op);
  if (auto hold = holds_.find(lane); hold != holds_.end()) {
    std::erase_if(hold->second.items, [&](const Item& item) { return item.belongs_to(lane, op); });
  }
  if (!current_.belongs_to(lane, op)) return;
  if (frame_active_ && frame_of_current_) {
    if (written_ == 0) {
      frame_active_ = false;
    } else {
      private_copy_.assign(payload_.begin(), payload_.end());
      payload_ = private_copy_;
      frame_of_current_ = false;
    }
  }
  current_ = Item{};
}

void Outbox::hold_from(const LaneKey& lane, uint64_t op) {
  Hold& hold = holds_[lane];
  hold.from = op;
  release_below(hold, op);
}

void Outbox::release(const LaneKey& lane) {
  const auto hold = holds_.find(lane);
  if (hold == holds_.end()) return;
  for (Item& item : hold->second.items) queue_.push(std::move(item));
  holds_.erase(hold);
}

void Outbox::release_below(Hold& hold, uint64_t op) {
  std::vector<Item> still_held;
  for (Item& item : hold.items) {
    if (item.request->key.op < op) {
      queue_.push(std::move(item));
    } else {
      still_held.push_back(std::move(item));
    }
  }
  hold.items = std::move(still_held);
}

bool Outbox::put_on_hold(Item& item) {
  if (holds_.empty() || item.request == nullptr) return false;
  const auto hold = holds_.find(item.request->key.lane);
  if (hold == holds_.end() || item.request->key.op < hold->second.from) return false;
  hold->second.items.push_back(std::exchange(item, Item{}));
  return true;
}

void Outbox::send_flow(wire::ControlKind kind, const LaneKey& lane, uint64_t op) {
  if (broken_) return;
  const auto same =
      std::find_if(flow_.begin(), flow_.end(), [&](const Flow& flow) { return flow.lane == lane; });
  if (same == flow_.end()) {
    flow_.push_back({kind, lane, op});
  } else {
    *same = {kind, lane, op};
  }
  flush();
}

bool Outbox::has_unsent() const {
  if (broken_) return false;
  if (frame_active_ || !current_.empty() || !queue_.empty() || !flow_.empty()) return true;
  return std::any_of(holds_.begin(), holds_.end(),
                     [](const auto& entry) { return !entry.second.items.empty(); });
}

bool Outbox::flush() {
  size_t moved = 0;
  while (stream_ != nullptr && !broken_ && turn_bytes_ < kTurnBytes &&
         (frame_active_ || start_frame())) {
    std::array<iovec, 2> pieces{};
    size_t count = 0;
    if (written_ < header_.size()) {
      pieces[count++] = piece_of(BytesView(header_).subspan(written_));
    }
    const size_t payload_written = written_ < header_.size() ? 0 : written_ - header_.size();
    if (payload_written < payload_.size()) {
      pieces[count++] = piece_of(payload_.subspan(payload_written));
    }
    const Moved result = stream_->write(std::span(pieces).first(count));
    moved += result.bytes;
    turn_bytes_ += result.bytes;
    written_ += result.bytes;
    if (result.closed) broken_ = true;
    if (written_ == header_.size() + payload_.size()) {
      finish_frame();
    } else if (result.bytes == 0) {
      break;
    }
  }
  return moved > 0;
}

bool Outbox::start_frame() {
  if (start_flow_frame()) return true;
  put_on_hold(current_);
  while (current_.empty() && !queue_.empty()) {
    current_ = queue_.pop();
    put_on_hold(current_);
  }
  if (current_.empty()) return false;
  start_item_frame();
  return true;
}

bool Outbox::start_flow_frame() {
  if (flow_.empty()) return false;
  const Flow flow = flow_.front();
  flow_.erase(flow_.begin());
  begin({.kind = wire::FrameKind::kControl, .lane = flow.lane, .op = flow.op, .control = flow.kind},
        {}, false);
  return true;
}

void Outbox::start_item_frame() {
  if (current_.control != nullptr) {
    const wire::Control& control = *current_.control;
    begin(wire::header_of(control), std::as_bytes(std::span(control.text)), true);
    return;
  }
  const SendRequest& request = *current_.request;
  const size_t piece =
      std::min<size_t>(request.payload.size() - current_.sent, wire::kMaxPieceBytes);
  begin({.kind = wire::FrameKind::kMessage,
         .lane = request.key.lane,
         .op = request.key.op,
         .length = request.payload.size(),
         .step = request.key.step,
         .signature = request.signature,
         .piece = static_cast<uint32_t>(piece),
         .offset = current_.sent},
        request.payload.subspan(current_.sent, piece), true);
}

void Outbox::begin(const wire::FrameHeader& header, BytesView payload, bool of_current) {
  wire::encode_frame(header, header_);
  payload_ = payload;
  written_ = 0;
  frame_active_ = true;
  frame_of_current_ = of_current;
}

void Outbox::finish_frame() {
  frame_active_ = false;
  if (!frame_of_current_) {
    private_copy_ = Bytes();
    return;
  }
  if (current_.control != nullptr) {
    current_ = Item{};
    return;
  }
  current_.sent += payload_.size();
  metrics_.add(traffic_.bytes_sent, payload_.size());
  link_.add(payload_.size());
  if (current_.sent < current_.request->payload.size()) return;
  metrics_.add(traffic_.messages_sent);
  current_.request->done = true;
  current_ = Item{};
}

}  // namespace corro::transport
