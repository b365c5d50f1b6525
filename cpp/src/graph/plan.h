// Plan: services, channels and lanes of a job's ranks as data, and what can be known about them
// before anything runs. docs/plan.md describes its file; cut.h makes of a plan of several ranks
// what one executor runs.
//
//   Plan plan;
//   const LaneId gpu = plan.add_lane({.name = "gpu"});
//   const ChannelId stash = plan.add_channel({.name = "stash", .slots = 4, .slot_bytes = 1 << 20});
//   plan.add_service({.name = "F", .lane = gpu, .outputs = {stash}, .launch = forward});
//   plan.add_service({.name = "B", .lane = gpu, .inputs = {stash}, .launch = backward});
//   CORRO_TRY(check(plan, {.max_slot_bytes = 1ULL << 30}));
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "graph/service.h"

namespace corro::graph {

// The most that a plan may say. With them no sum of a plan's times or bytes overflows, and no ring
// of slots is larger than what a typing error would cost.
inline constexpr uint32_t kMostRanks = 1U << 20U;
inline constexpr uint32_t kMostDepth = 1U << 16U;
inline constexpr uint32_t kMostSlots = 1U << 16U;
inline constexpr uint32_t kMostLag = 1U << 16U;
inline constexpr uint32_t kMostEvery = 1U << 16U;
inline constexpr uint64_t kMostFirings = uint64_t{1}
                                         << 22U;  ///< Of a step, where some `every` is above 1.
inline constexpr uint64_t kMostSlotBytes = uint64_t{1} << 48U;
inline constexpr Duration kMostDuration = std::chrono::hours(2);
inline constexpr uint64_t kMostCount = uint64_t{1} << 40U;
inline constexpr uint64_t kMostOffset = uint64_t{1} << 62U;
inline constexpr uint64_t kMostRanges = uint64_t{1} << 32U;
inline constexpr size_t kMostPathBytes = 4095;

/// The service that goes next when a lane has room.
enum class LaneOrder : uint8_t {
  kPriority,  ///< Of those ready, the least priority value; among equals the first in the plan.
  /// The services in plan order, one round after the other, whoever is ready: in round t each fires
  /// generation t - lag. One-shots in order of submission. Every rank starts in the same order.
  kAgreed,
};

[[nodiscard]] constexpr std::string_view name_of(LaneOrder order) {
  return order == LaneOrder::kAgreed ? "agreed" : "priority";
}

struct LaneSpec {
  std::string name = {};
  LaneOrder order = LaneOrder::kPriority;
  uint32_t depth = 1;  ///< Firings in flight at a time.
  /// The ranks that have the lane, ascending. Several: a communicator, which is in agreed order.
  std::vector<uint32_t> ranks = {0};
};

/// A ring of `slots` buffers from one producer to every service that names it as input. It lies on
/// every rank that has its producer and one of its consumers. Where a consumer's one rank is not
/// the producer's one rank, both have a ring, and a transfer joins them (cut.h).
struct ChannelSpec {
  std::string name = {};
  uint32_t slots = 1;  ///< Credits: how far the producer may run ahead.
  uint32_t initial =
      0;  ///< Slots readable before the first firing (for example version 0 of the parameters).
  uint64_t slot_bytes = 0;
  Duration transfer{};  ///< Predicted, from one rank to another.
};

/// The operation that all ranks of a service's lane do together: the part of corro_op that names no
/// memory.
struct OperationSpec {
  OpKind kind = OpKind::kBarrier;  ///< No send or recv: channels between ranks are that.
  DType dtype = DType::kU8;
  uint64_t count = 0;  ///< Elements, as in corro_op; the same for every rank.
  ReduceOp reduce_op = ReduceOp::kSum;
  uint32_t root = 0;  ///< A rank of the plan, where has_root(kind).
};

enum class CopyKind : uint8_t {
  kMemory,  ///< The input's filled bytes into the output's slot.
  kRead,    ///< A range of a file into the output's slot, all of it.
  kWrite,   ///< The input's filled bytes into a range of a file, which is made if there is none.
};

[[nodiscard]] constexpr std::string_view name_of(CopyKind kind) {
  constexpr std::string_view kNames[] = {"memory", "read", "write"};
  return kNames[static_cast<size_t>(kind)];
}

/// What the engine copies as a service, on the one rank of its lane. The range of its firing n, from
/// 0, begins at byte offset + (n modulo count) * stride.
struct CopySpec {
  CopyKind kind = CopyKind::kMemory;
  std::string path = {};  ///< The file of a read or a write, as that rank's process finds it.
  uint64_t offset = 0;
  uint64_t stride = 0;
  uint64_t count = 0;  ///< Ranges until the first one comes again; 0: it never does.
};

/// Fires when every input is readable, every output has a free slot and its lane has room; never
/// overlaps itself. On a lane of several ranks it is one service of all of them: it starts on each
/// when the channels that lie there allow it, and ends on all together.
struct ServiceSpec {
  std::string name = {};
  LaneId lane = 0;
  int32_t priority = 0;  ///< Less goes first (LaneOrder::kPriority).
  uint32_t lag = 0;      ///< Generations behind the lane's round (LaneOrder::kAgreed).
  /// Micro-batches of one firing, which comes with the last of them: an optimizer's step. Every one
  /// of a plan divides the largest; those of a lane in agreed order are equal, and without a lag.
  /// Of a channel from services that fire oftener it takes as many slots as that at a time; what it
  /// fills is read as often.
  uint32_t every = 1;
  Duration duration{};  ///< Predicted; what virtual lanes take.
  std::vector<ChannelId> inputs = {};
  std::vector<ChannelId> outputs = {};
  std::optional<OperationSpec> operation = {};  ///< Every service of several ranks has one.
  std::optional<CopySpec> copy = {};            ///< Not beside an operation.
  Launch launch = {};  ///< Not part of the plan's hash; virtual lanes do without.
};

/// A timed marked graph: all services fire equally often, but for those that fire once `every` so
/// many micro-batches, which its check unrolls. An executor runs plans of one rank; it
/// copies them and never changes them.
struct Plan {
  uint32_t epoch = 0;  ///< The engine's, when it loads the plan; not in the file.
  uint32_t ranks = 1;
  std::vector<LaneSpec> lanes;
  std::vector<ChannelSpec> channels;
  std::vector<ServiceSpec> services;

  LaneId add_lane(LaneSpec spec);
  ChannelId add_channel(ChannelSpec spec);
  ServiceId add_service(ServiceSpec spec);
};

struct PlanLimits {
  uint64_t max_slot_bytes = std::numeric_limits<uint64_t>::max();  ///< Of all its ranks together.
};

/// Returns INVALID_ARGUMENT for a plan that is not well formed. The message begins with the place,
/// in the words of the file: "channels[2].slots: must be ...". Pure; O(services + channels' ends).
[[nodiscard]] Status check_form(const Plan& plan);

/// Returns INVALID_ARGUMENT as check_form() does, FAILED_PRECONDITION with the services' names for
/// a cycle without a token (it would stand still for ever), RESOURCE_EXHAUSTED when the slots need
/// more bytes than the limit. A plan of several ranks is checked as expand() makes it. Pure;
/// O(services + channels' ends), with lags that times services at worst.
[[nodiscard]] Status check(const Plan& plan, const PlanLimits& limits = {});

/// Returns the sum over channels of slots * slot_bytes: all memory that a plan of one rank can ever
/// hold (saturated).
[[nodiscard]] uint64_t slot_bytes(const Plan& plan);

/// Returns the largest `every` of its services: after so many micro-batches slots are marked as at the
/// start.
[[nodiscard]] uint32_t step_of(const Plan& plan);

/// Returns a hash of everything but the launches: equal on ranks that hold the same plan (FNV-1a,
/// 64 bits).
[[nodiscard]] uint64_t hash_of(const Plan& plan);

/// Returns the services of a cycle without a token, in order, or nothing. Marked graphs are live
/// exactly when there is none (Commoner, Holt, Even, Pnueli, "Marked directed graphs", 1971). A
/// channel is an edge to each consumer with `initial` tokens and one back with the free slots; a
/// lane in agreed order is a cycle with one token, whose edges have more or less than none where
/// lags differ. Where services fire once in several generations, each firing of a step is a node (Lee
/// and Messerschmitt, "Synchronous data flow", 1987). Requires a well formed plan of one rank.
[[nodiscard]] std::vector<ServiceId> find_token_free_cycle(const Plan& plan);

}  // namespace corro::graph
