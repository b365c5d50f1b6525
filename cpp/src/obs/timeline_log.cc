#include "obs/timeline_log.h"

#include <algorithm>

namespace corro::obs {
namespace {

using Kind = TimelineEvent::Kind;

/// The most bytes of an event without its name, the same of a firing without its two, and of what a
/// span still has to say once it is noted.
constexpr size_t kEventBytes = 32;
constexpr size_t kFiringBytes = 48;
constexpr size_t kRestOfSpan = 2 * kEventBytes;

/// In place of the kind of an operation: it is none.
constexpr uint8_t kNoOp = 0xFF;

uint64_t stamp_of(Time time) { return static_cast<uint64_t>(time.since_start.count()); }

uint64_t time_of_event() { return stamp_of(monotonic_now()); }

bool has_name(Kind kind) {
  return kind == Kind::kNegotiate || kind == Kind::kBegin || kind == Kind::kFiring;
}

bool read_what(ByteReader& reader, TimelineEvent& event) {
  const auto op = reader.read<uint8_t>();
  const auto dtype = reader.read<uint8_t>();
  const auto count = reader.read<uint64_t>();
  auto name = reader.read_string(kMostSpanName);
  if (!op || !dtype || !count || !name || *dtype >= kDTypeCount) return false;
  const bool none = event.kind == Kind::kFiring && *op == kNoOp;
  if (*op >= kOpKindCount && !none) return false;
  event.op = none ? std::optional<OpKind>() : static_cast<OpKind>(*op);
  event.dtype = static_cast<DType>(*dtype);
  event.count = *count;
  event.name = std::move(*name);
  return true;
}

bool read_code(ByteReader& reader, TimelineEvent& event) {
  const auto code = reader.read<uint8_t>();
  if (!code || *code > static_cast<uint8_t>(Code::kUnauthenticated)) return false;
  event.code = static_cast<Code>(*code);
  return true;
}

bool read_firing(ByteReader& reader, TimelineEvent& event) {
  const auto began = reader.read<uint64_t>();
  auto lane = reader.read_string(kMostSpanName);
  if (!began || !lane || !read_code(reader, event)) return false;
  event.began_ns = *began;
  event.lane = std::move(*lane);
  return true;
}

}  // namespace

std::optional<TimelineEvent> read_timeline_event(ByteReader& reader) {
  const auto kind = reader.read<uint8_t>();
  const auto time = reader.read<uint64_t>();
  const auto span = reader.read<uint64_t>();
  if (!kind || !time || !span) return std::nullopt;
  TimelineEvent event{.kind = static_cast<Kind>(*kind), .time_ns = *time, .span = *span};
  if (*kind < static_cast<uint8_t>(Kind::kNegotiate) || *kind > static_cast<uint8_t>(Kind::kFiring))
    return std::nullopt;
  if (has_name(event.kind) && !read_what(reader, event)) return std::nullopt;
  if (event.kind == Kind::kEnd && !read_code(reader, event)) return std::nullopt;
  if (event.kind == Kind::kFiring && !read_firing(reader, event)) return std::nullopt;
  return event;
}

void TimelineLog::start(TimelineLogOptions options) {
  on_ = true;
  options_ = options;
  chunks_.clear();
  last_ = {};
  bytes_ = open_ = 0;
  first_ = next_;
  dropped_ = 0;
}

bool TimelineLog::has_room(size_t more) const {
  return bytes_ + more + (open_ + 1) * kRestOfSpan <= options_.most_bytes;
}

uint64_t TimelineLog::add(Kind kind, const OpRecord& op) {
  if (!has_room(kEventBytes + std::min(op.name.size(), kMostSpanName))) {
    ++dropped_;
    return kNoSpan;
  }
  const uint64_t span = next_++;
  ++open_;
  const size_t before = last_.bytes().size();
  last_.write(static_cast<uint8_t>(kind));
  last_.write(time_of_event());
  last_.write(span);
  write_what(op);
  bytes_ += last_.bytes().size() - before;
  close_chunk();
  return span;
}

void TimelineLog::write_what(const OpRecord& op) {
  last_.write(op.kind ? static_cast<uint8_t>(*op.kind) : kNoOp);
  last_.write(static_cast<uint8_t>(op.dtype));
  last_.write(op.count);
  last_.write_string(op.name.substr(0, kMostSpanName));
}

void TimelineLog::add_firing(const OpRecord& firing, Time since, Time until, Code code) {
  const std::string_view lane = firing.plan_lane.substr(0, kMostSpanName);
  if (!has_room(kFiringBytes + std::min(firing.name.size(), kMostSpanName) + lane.size())) {
    ++dropped_;
    return;
  }
  const size_t before = last_.bytes().size();
  last_.write(static_cast<uint8_t>(Kind::kFiring));
  last_.write(stamp_of(until));
  last_.write(firing.op_id);
  write_what(firing);
  last_.write(stamp_of(since));
  last_.write_string(lane);
  last_.write(static_cast<uint8_t>(code));
  bytes_ += last_.bytes().size() - before;
  close_chunk();
}

void TimelineLog::add(Kind kind, uint64_t span) {
  const size_t before = last_.bytes().size();
  last_.write(static_cast<uint8_t>(kind));
  last_.write(time_of_event());
  last_.write(span);
  bytes_ += last_.bytes().size() - before;
}

void TimelineLog::agreed(uint64_t span) {
  if (!on_ || !known(span)) return;
  add(Kind::kAgreed, span);
  close_chunk();
}

void TimelineLog::end(uint64_t span, Code code) {
  if (!on_ || !known(span)) return;
  --open_;
  add(Kind::kEnd, span);
  last_.write(static_cast<uint8_t>(code));
  ++bytes_;
  close_chunk();
}

void TimelineLog::cycle() {
  if (!on_ || !options_.marks_cycles || !has_room(kEventBytes)) return;
  add(Kind::kCycle, 0);
  close_chunk();
}

/// Begins another chunk where the next event might not fit.
void TimelineLog::close_chunk() {
  constexpr size_t kFull = kChunk - 2 * kMostSpanName - kFiringBytes;
  if (last_.bytes().size() >= kFull) chunks_.push_back(std::exchange(last_, {}).take());
}

Bytes TimelineLog::take() {
  Bytes taken;
  if (chunks_.empty()) {
    taken = std::exchange(last_, {}).take();
  } else {
    taken = std::move(chunks_.front());
    chunks_.pop_front();
  }
  bytes_ -= taken.size();
  return taken;
}

}  // namespace corro::obs
