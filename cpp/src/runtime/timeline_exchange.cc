#include "runtime/timeline_exchange.h"

#include <utility>

namespace corro::runtime {
namespace {

constexpr uint8_t kMore = 0, kLast = 1;

int64_t stamp(Time now) { return now.since_start.count(); }

}  // namespace

void TimelineExchange::start(const GroupFacts& world, obs::TimelineLogOptions options) {
  if (std::exchange(world_, &world) != &world) senders_.assign(world.members.size(), {});
  on_ = true;
  said_last_ = false;
  parts_.timeline.start(options);
  if (!collects()) return;
  came_.clear();
  for (Sender& sender : senders_) sender.open = true;
  for (const MemberId member : std::exchange(early_, {})) {
    const int32_t rank = world.index_of(member);
    if (rank > 0) senders_[static_cast<size_t>(rank)].waits = true;
  }
}

void TimelineExchange::stop() {
  on_ = false;
  parts_.timeline.stop();
  if (collects()) said_last_ = true;
}

void TimelineExchange::move(Time now) {
  (void)parts_.peers.poll(Peers::Look::kReadable);
  if (world_ != nullptr && !collects() && may_send_ && !said_last_) send_events(now);
}

/// The first message is without events: by its answer rank 0 learns how far apart the clocks are.
void TimelineExchange::send_events(Time now) {
  const bool first = !last_answer_;
  if (on_ && !first && parts_.timeline.empty()) return;
  ByteWriter writer;
  writer.write(last_answer_.value_or(0));
  writer.write(static_cast<uint8_t>(first ? 0 : 1));
  writer.write(parts_.timeline.dropped());
  if (!first) writer.write_bytes(parts_.timeline.take());
  said_last_ = !on_ && parts_.timeline.empty();
  may_send_ = false;
  const Bytes bytes = writer.take();
  (void)parts_.peers.tell(
      world_->member(0),
      {.kind = wire::ControlKind::kTimeline,
       .code = said_last_ ? kLast : kMore,
       .lane = world_->key,
       .rank = world_->own_world_rank(),
       .op = static_cast<uint64_t>(stamp(now)),
       .text = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
}

void TimelineExchange::hear(MemberId from, const wire::Control& control, Time now) {
  const bool answers = control.text.empty();  // Events have a head.
  if (answers) {
    may_send_ = true;
    last_answer_ = stamp(now) - static_cast<int64_t>(control.op);
  } else if (collects()) {
    if (const int32_t rank = world_->index_of(from); rank > 0) take_batch(rank, control, now);
  } else if (control.code == kMore) {
    early_.push_back(from);
  }
}

void TimelineExchange::take_batch(int32_t rank, const wire::Control& control, Time now) {
  Sender& sender = senders_[static_cast<size_t>(rank)];
  ByteReader reader(std::as_bytes(std::span(control.text)));
  const auto answer = reader.read<int64_t>();
  const auto has_answer = reader.read<uint8_t>();
  const auto dropped = reader.read<uint64_t>();
  if (!answer || !has_answer || !dropped) return;
  sender.waits = true;
  sender.open = control.code == kMore;
  sender.clock.heard(stamp(now) - static_cast<int64_t>(control.op));
  if (*has_answer != 0) sender.clock.answered(*answer);
  const auto events = reader.read_bytes(reader.remaining());
  const bool one_clock = same_host(rank);
  came_.push_back({.rank = world_->world_rank(rank),
                   .events = Bytes(events->begin(), events->end()),
                   .offset_ns = one_clock ? 0 : sender.clock.nanoseconds(),
                   .error_ns = one_clock ? 0 : sender.clock.error_ns(),
                   .dropped = *dropped});
}

bool TimelineExchange::same_host(int32_t rank) const {
  return parts_.peers.peer(world_->member(rank)).segment != nullptr;
}

std::vector<TimelineBatch> TimelineExchange::take(Time now) {
  if (!collects()) return {};
  for (size_t rank = 1; rank < senders_.size(); ++rank) {
    // Who has said its last word says the next when both ranks have started again.
    if (!senders_[rank].open || !std::exchange(senders_[rank].waits, false)) continue;
    allow(static_cast<int32_t>(rank), now);
  }
  std::vector<TimelineBatch> taken = std::exchange(came_, {});
  while (!parts_.timeline.empty()) {
    taken.push_back({.rank = world_->own_world_rank(),
                     .events = parts_.timeline.take(),
                     .dropped = parts_.timeline.dropped()});
  }
  return taken;
}

void TimelineExchange::allow(int32_t rank, Time now) {
  (void)parts_.peers.tell(world_->member(rank), {.kind = wire::ControlKind::kTimeline,
                                                 .lane = world_->key,
                                                 .rank = world_->own_world_rank(),
                                                 .op = static_cast<uint64_t>(stamp(now))});
}

bool TimelineExchange::over() const {
  if (world_ == nullptr) return true;
  if (!collects()) return said_last_ || !parts_.peers.present(world_->member(0));
  if (!came_.empty() || !parts_.timeline.empty()) return false;
  for (size_t rank = 1; rank < senders_.size(); ++rank) {
    const bool waited_for =
        senders_[rank].open && parts_.peers.present(world_->member(static_cast<int32_t>(rank)));
    if (waited_for) return false;
  }
  return true;
}

}  // namespace corro::runtime
