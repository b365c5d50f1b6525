// The memory of a flight recorder: one header, the metrics, what the program logs, histograms of its
// steps, what went to each peer, then `capacity` records. Private to obs/. Byte tables: docs/wire.md.
//
// Every field is a lock-free atomic, so a reader in the same process, in another one, or after the
// writer's death sees whole words. A record is valid when its `sequence` is the same, and not 0,
// before and after its fields were read: begin() stores 0 first and each field with release, so a
// reader that acquires a new field also sees that 0 (or what followed it). No fences: the thread
// sanitizer understands all of it.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "obs/flight_recorder.h"
#include "obs/flight_trace.h"
#include "obs/links.h"
#include "obs/metrics.h"
#include "obs/step_log.h"

namespace corro::obs {

inline constexpr uint64_t kFlightMagic = 0x36544C464F52524FULL;    // "ORROFLT6"
inline constexpr uint64_t kFlightKind = kFlightMagic << 8U >> 8U;  // Without the version.
inline constexpr uint32_t kMaxFlightCapacity = 1U << 16U;
inline constexpr size_t kFlightNameBytes = 32;
inline constexpr size_t kFlightLaneBytes = 24;
inline constexpr const char* kFlightMemfdName = "corro-flight";

struct alignas(64) FlightHeader {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> capacity;
  std::atomic<int32_t> rank;
  std::atomic<int32_t> size;
  std::atomic<int32_t> pid;
  std::atomic<uint32_t> metric_count;  ///< How many metrics the writer knows.
};

/// The cell of Metric::kOps is the sequence of the newest record; stored before the record is
/// filled.
struct FlightMetrics {
  alignas(64) MetricCells cells;
};

struct LoggedCell {
  std::atomic<uint64_t> sequence;  ///< 0: no name; odd while its writer is at it.
  std::atomic<uint64_t> value;     ///< The bits of a binary64.
  std::atomic<uint64_t> step;
  std::array<std::atomic<uint64_t>, (kLoggedNameBytes + 1) / sizeof(uint64_t)> name;  ///< As above.
};

struct alignas(64) FlightLogged {
  std::atomic<uint64_t> steps;  ///< Of the whole training; 0: not said.
  std::atomic<uint64_t> ahead;  ///< What a step for `steps` has more than Metric::kStep.
  std::array<LoggedCell, kMostLogged> cells;  ///< Those with a name come first.
};

using StepBuckets = std::array<std::atomic<uint64_t>, kDurationBuckets>;

/// Only grow. Their sums are Metric::kStepNs and kStepWaitNs.
struct alignas(64) FlightSteps {
  StepBuckets taken;
  StepBuckets waited;
};

inline constexpr int64_t kOthersCell = -1;

struct LinkCell {
  std::atomic<int64_t> peer;   ///< 0: nobody's; kOthersCell; else one more than the peer's rank.
  std::atomic<uint64_t> sent;  ///< Bytes.
};

struct alignas(64) FlightLinks {
  std::array<LinkCell, kMostLinks> cells;  ///< Those of somebody come first.
};

struct alignas(64) FlightRecord {
  std::atomic<uint64_t> sequence;  ///< 0 while begin() fills the record.
  std::atomic<uint64_t> op_id;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> what;   ///< pack_what(), and the step above it.
  std::atomic<uint64_t> where;  ///< Lane in the low half, root in the high half.
  std::atomic<uint64_t> state;  ///< pack_state(): phase, code and peer change together.
  std::atomic<uint64_t> queued_ns;
  std::atomic<uint64_t> started_ns;
  std::atomic<uint64_t> done_ns;
  std::array<std::atomic<uint64_t>, kFlightNameBytes / sizeof(uint64_t)> name;  ///< Zero-padded.
  /// The same; empty but for firings.
  std::array<std::atomic<uint64_t>, kFlightLaneBytes / sizeof(uint64_t)> plan_lane;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<int32_t>::is_always_lock_free);
static_assert(offsetof(FlightHeader, capacity) == 8 && offsetof(FlightHeader, rank) == 12 &&
              offsetof(FlightHeader, size) == 16 && offsetof(FlightHeader, pid) == 20 &&
              offsetof(FlightHeader, metric_count) == 24 && sizeof(FlightHeader) == 64 &&
              sizeof(FlightMetrics) == 512);
static_assert(offsetof(FlightRecord, op_id) == 8 && offsetof(FlightRecord, count) == 16 &&
              offsetof(FlightRecord, what) == 24 && offsetof(FlightRecord, where) == 32 &&
              offsetof(FlightRecord, state) == 40 && offsetof(FlightRecord, queued_ns) == 48 &&
              offsetof(FlightRecord, started_ns) == 56 && offsetof(FlightRecord, done_ns) == 64 &&
              offsetof(FlightRecord, name) == 72 && offsetof(FlightRecord, plan_lane) == 104 &&
              sizeof(FlightRecord) == 128);
static_assert(offsetof(FlightLogged, ahead) == 8 && offsetof(FlightLogged, cells) == 16 &&
              offsetof(LoggedCell, value) == 8 && offsetof(LoggedCell, step) == 16 &&
              offsetof(LoggedCell, name) == 24 && sizeof(LoggedCell) == 56 &&
              sizeof(FlightLogged) == 960);
static_assert(offsetof(FlightSteps, waited) == 136 && sizeof(FlightSteps) == 320);
static_assert(offsetof(LinkCell, sent) == 8 && sizeof(FlightLinks) == 2048);

inline constexpr size_t kFlightMetricsAt = sizeof(FlightHeader);
inline constexpr size_t kFlightLoggedAt = kFlightMetricsAt + sizeof(FlightMetrics);
inline constexpr size_t kFlightStepsAt = kFlightLoggedAt + sizeof(FlightLogged);
inline constexpr size_t kFlightLinksAt = kFlightStepsAt + sizeof(FlightSteps);
inline constexpr size_t kFlightRecordsAt = kFlightLinksAt + sizeof(FlightLinks);

/// Stores the text, cut where a 0 still follows it.
template <size_t N>
void store_text(std::array<std::atomic<uint64_t>, N>& words, std::string_view text) {
  std::array<char, N * sizeof(uint64_t)> bytes{};
  text.copy(bytes.data(), bytes.size() - 1);
  const auto values = std::bit_cast<std::array<uint64_t, N>>(bytes);
  for (size_t i = 0; i < N; ++i) words[i].store(values[i], std::memory_order_release);
}

struct FlightState {
  Phase phase = Phase::kNone;
  Code code = Code::kOk;
  int32_t waiting_for = -1;
};

[[nodiscard]] uint64_t pack_state(FlightState state);
[[nodiscard]] uint64_t pack_what(const OpRecord& op, uint64_t step);
[[nodiscard]] constexpr size_t flight_bytes(uint32_t capacity) {
  return kFlightRecordsAt + size_t{capacity} * sizeof(FlightRecord);
}

/// Reads one slot; nothing if it is empty, being overwritten, or holds values that no writer
/// stores.
[[nodiscard]] std::optional<TracedOp> read_record(const FlightRecord& record);
/// What a program has logged, in the order in which its names came. A value that is being written is
/// read again a few times, and left out if its writer has stopped there.
[[nodiscard]] std::vector<LoggedValue> read_logged(const FlightLogged& logged);
/// Of each peer to which something went.
[[nodiscard]] std::vector<LinkTraffic> read_links(const FlightLinks& links);
/// Reads the header, the metrics, what was logged and every valid record. `capacity` has been
/// checked against the memory's size.
[[nodiscard]] ProcessSnapshot read_memory(const std::byte* memory, uint32_t capacity);
/// The same with the step of each record: oldest first.
[[nodiscard]] ProcessTrace trace_memory(const std::byte* memory, uint32_t capacity);

}  // namespace corro::obs
