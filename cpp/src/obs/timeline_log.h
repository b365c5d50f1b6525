// TimelineLog: when each operation of this rank was submitted, was agreed on, ended. What is noted
// waits here, as bytes, until somebody takes it to rank 0, where the timeline is written.
//
//   log.start({.marks_cycles = true});
//   const uint64_t span = log.negotiate({.kind = OpKind::kAllreduce, .name = "x"});
//   log.agreed(span);
//   log.end(span, Code::kOk);
//   send(log.take());
//
// A span is one operation on one rank. Its memory is bounded: a span that does not fit is dropped
// whole, and counted; one that was noted always has room for its end. A firing of a plan is noted at
// once, when it is over.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "obs/flight_recorder.h"

namespace corro::obs {

/// No span, and none will be made: it was dropped, or its parts have their own.
inline constexpr uint64_t kNoSpan = UINT64_MAX;
/// Longer names are cut.
inline constexpr size_t kMostSpanName = 255;

struct TimelineEvent {
  enum class Kind : uint8_t {
    kNegotiate = 1,  ///< Submitted under its name: waits until all ranks have.
    kAgreed = 2,     ///< All have: it begins.
    kBegin = 3,      ///< One that no rank negotiates: it begins.
    kEnd = 4,
    kCycle = 5,   ///< Named operations were started together.
    kFiring = 6,  ///< Of a service of a plan: it is over.
  };
  Kind kind = Kind::kCycle;
  uint64_t time_ns = 0;  ///< CLOCK_MONOTONIC of the rank.
  uint64_t span = 0;     ///< Not of a cycle; of a firing its micro-batch.
  // Of kNegotiate, kBegin and kFiring alone:
  std::optional<OpKind> op = OpKind::kBarrier;  ///< None: a firing that is no operation.
  DType dtype = DType::kU8;
  uint64_t count = 0;
  std::string name = {};
  Code code = Code::kOk;  ///< Of kEnd and kFiring alone.
  // Of kFiring alone:
  uint64_t began_ns = 0;  ///< On the clock of time_ns.
  std::string lane = {};
};

/// Reads the next event of what take() has returned; nothing if the bytes are none.
[[nodiscard]] std::optional<TimelineEvent> read_timeline_event(ByteReader& reader);

struct TimelineLogOptions {
  bool marks_cycles = false;
  size_t most_bytes = size_t{1} << 20U;  ///< Of what waits to be taken.
};

/// One thread at a time (the holder of the baton). Never blocks. While it is off a call costs one
/// comparison.
class TimelineLog {
 public:
  /// What take() returns is no longer.
  static constexpr size_t kChunk = size_t{32} << 10U;

  /// Forgets what is there.
  void start(TimelineLogOptions options);
  /// What is there can be taken still.
  void stop() { on_ = false; }
  [[nodiscard]] bool on() const { return on_; }

  /// Returns the span's number; kNoSpan for one that was dropped, 0 while the log is off.
  uint64_t negotiate(const OpRecord& op) {
    return on_ ? add(TimelineEvent::Kind::kNegotiate, op) : 0;
  }
  uint64_t begin(const OpRecord& op) { return on_ ? add(TimelineEvent::Kind::kBegin, op) : 0; }
  /// Does nothing for 0, for kNoSpan, and for spans of before start(), as does end().
  void agreed(uint64_t span);
  /// Once a span.
  void end(uint64_t span, Code code);
  void cycle();
  /// A firing that is over, and when it was in flight. `firing` has a plan_lane.
  void fired(const OpRecord& firing, Time since, Time until, Code code) {
    if (on_) add_firing(firing, since, until, code);
  }

  /// Events, the oldest first; empty if there are none.
  [[nodiscard]] Bytes take();
  [[nodiscard]] bool empty() const { return bytes_ == 0; }
  /// Spans, and firings, that were dropped since start().
  [[nodiscard]] uint64_t dropped() const { return dropped_; }

 private:
  [[nodiscard]] bool known(uint64_t span) const { return span >= first_ && span != kNoSpan; }
  [[nodiscard]] bool has_room(size_t more) const;
  uint64_t add(TimelineEvent::Kind kind, const OpRecord& op);
  void add_firing(const OpRecord& firing, Time since, Time until, Code code);
  void write_what(const OpRecord& op);
  void add(TimelineEvent::Kind kind, uint64_t span);
  void close_chunk();

  bool on_ = false;
  TimelineLogOptions options_;
  std::deque<Bytes> chunks_;  ///< Full ones.
  ByteWriter last_;
  size_t bytes_ = 0;   ///< In all of them.
  size_t open_ = 0;    ///< Spans that have not ended.
  uint64_t next_ = 1;  ///< Span.
  uint64_t first_ = 1;
  uint64_t dropped_ = 0;
};

}  // namespace corro::obs
