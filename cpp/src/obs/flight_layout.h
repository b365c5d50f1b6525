// The memory of a flight recorder: one header, then `capacity` records. Private to obs/. Byte
// tables: docs/wire.md.
//
// Every field is a lock-free atomic, so a reader in the same process, in another one, or after the
// writer's death sees whole words. A record is valid when its `sequence` is the same, and not 0,
// before and after its fields were read: begin() stores 0 first and each field with release, so a
// reader that acquires a new field also sees that 0 (or what followed it). No fences: the thread
// sanitizer understands all of it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "obs/flight_recorder.h"

namespace corro::obs {

inline constexpr uint64_t kFlightMagic = 0x31544C464F52524FULL;  // "ORROFLT1"
inline constexpr uint32_t kMaxFlightCapacity = 1U << 16U;
inline constexpr size_t kFlightNameBytes = 32;
inline constexpr const char* kFlightMemfdName = "corro-flight";

struct alignas(64) FlightHeader {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> capacity;
  std::atomic<int32_t> rank;
  std::atomic<int32_t> size;
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> step;
  std::atomic<uint64_t>
      operations;  ///< Sequence of the newest record; stored before the record is filled.
};

struct alignas(64) FlightRecord {
  std::atomic<uint64_t> sequence;  ///< 0 while begin() fills the record.
  std::atomic<uint64_t> op_id;
  std::atomic<uint64_t> count;
  std::atomic<uint64_t> what;   ///< pack_what()
  std::atomic<uint64_t> where;  ///< Lane in the low half, root in the high half.
  std::atomic<uint64_t> state;  ///< pack_state(): phase, code and peer change together.
  std::atomic<uint64_t> queued_ns;
  std::atomic<uint64_t> started_ns;
  std::atomic<uint64_t> done_ns;
  std::array<std::atomic<uint64_t>, kFlightNameBytes / sizeof(uint64_t)> name;  ///< Zero-padded.
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<int32_t>::is_always_lock_free);
static_assert(offsetof(FlightHeader, capacity) == 8 && offsetof(FlightHeader, rank) == 12 &&
              offsetof(FlightHeader, size) == 16 && offsetof(FlightHeader, pid) == 20 &&
              offsetof(FlightHeader, step) == 24 && offsetof(FlightHeader, operations) == 32 &&
              sizeof(FlightHeader) == 64);
static_assert(offsetof(FlightRecord, op_id) == 8 && offsetof(FlightRecord, count) == 16 &&
              offsetof(FlightRecord, what) == 24 && offsetof(FlightRecord, where) == 32 &&
              offsetof(FlightRecord, state) == 40 && offsetof(FlightRecord, queued_ns) == 48 &&
              offsetof(FlightRecord, started_ns) == 56 && offsetof(FlightRecord, done_ns) == 64 &&
              offsetof(FlightRecord, name) == 72 && sizeof(FlightRecord) == 128);

struct FlightState {
  Phase phase = Phase::kNone;
  Code code = Code::kOk;
  int32_t waiting_for = -1;
};

[[nodiscard]] uint64_t pack_state(FlightState state);
[[nodiscard]] uint64_t pack_what(const OpRecord& op);
[[nodiscard]] constexpr size_t flight_bytes(uint32_t capacity) {
  return sizeof(FlightHeader) + size_t{capacity} * sizeof(FlightRecord);
}

/// Reads one slot; nothing if it is empty, being overwritten, or holds values that no writer
/// stores.
[[nodiscard]] std::optional<OpSnapshot> read_record(const FlightRecord& record);
/// Reads the header and every valid record. `header.capacity` has been checked against the memory's
/// size.
[[nodiscard]] ProcessSnapshot read_memory(const FlightHeader& header, const FlightRecord* records,
                                          uint32_t capacity);

}  // namespace corro::obs
