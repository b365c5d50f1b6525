#include "obs/timeline_log.h"

#include <algorithm>

#include "base/clock.h"

namespace corro::obs {
namespace {

using Kind = TimelineEvent::Kind;

/// The most bytes of an event without its name, and of what a span still has to say once it is
/// noted.
constexpr size_t kEventBytes = 32;
constexpr size_t kRestOfSpan = 2 * kEventBytes;

uint64_t time_of_event() { return static_cast<uint64_t>(monotonic_now().since_start.count()); }

bool has_name(Kind kind) { return kind == Kind::kNegotiate || kind == Kind::kBegin; }

bool read_what(ByteReader& reader, TimelineEvent& event) {
  const auto op = reader.read<uint8_t>();
  const auto dtype = reader.read<uint8_t>();
  const auto count = reader.read<uint64_t>();
  auto name = reader.read_string(kMostSpanName);
  if (!op || !dtype || !count || !name || *op >= kOpKindCount || *dtype >= kDTypeCount)
    return false;
  event.op = static_cast<OpKind>(*op);
  event.dtype = static_cast<DType>(*dtype);
  event.count = *count;
  event.name = std::move(*name);
  return true;
}

}  // namespace

std::optional<TimelineEvent> read_timeline_event(ByteReader& reader) {
  const auto kind = reader.read<uint8_t>();
  const auto time = reader.read<uint64_t>();
  const auto span = reader.read<uint64_t>();
  if (!kind || !time || !span) return std::nullopt;
  TimelineEvent event{.kind = static_cast<Kind>(*kind), .time_ns = *time, .span = *span};
  if (*kind < static_cast<uint8_t>(Kind::kNegotiate) || *kind > static_cast<uint8_t>(Kind::kCycle))
    return std::nullopt;
  if (has_name(event.kind) && !read_what(reader, event)) return std::nullopt;
  if (event.kind == Kind::kEnd) {
    const auto code = reader.read<uint8_t>();
    if (!code || *code > static_cast<uint8_t>(Code::kUnauthenticated)) return std::nullopt;
    event.code = static_cast<Code>(*code);
  }
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
  const std::string_view name = op.name.substr(0, kMostSpanName);
  if (!has_room(kEventBytes + name.size())) {
    ++dropped_;
    return kNoSpan;
  }
  const uint64_t span = next_++;
  ++open_;
  const size_t before = last_.bytes().size();
  last_.write(static_cast<uint8_t>(kind));
  last_.write(time_of_event());
  last_.write(span);
  last_.write(static_cast<uint8_t>(op.kind));
  last_.write(static_cast<uint8_t>(op.dtype));
  last_.write(op.count);
  last_.write_string(name);
  bytes_ += last_.bytes().size() - before;
  close_chunk();
  return span;
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
  constexpr size_t kFull = kChunk - kMostSpanName - kEventBytes;
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
