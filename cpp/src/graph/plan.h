// Plan: services, channels and lanes of one epoch as data, and what can be known about them before
// anything runs.
//
//   Plan plan;
//   const LaneId gpu = plan.add_lane({.name = "gpu"});
//   const ChannelId stash = plan.add_channel({.name = "stash", .slots = 4, .slot_bytes = 1 << 20});
//   plan.add_service({.name = "F", .lane = gpu, .priority = 1, .outputs = {stash}, .launch =
//   forward}); plan.add_service({.name = "B", .lane = gpu, .priority = 0, .inputs = {stash},
//   .launch = backward}); CORRO_TRY(check(plan, {.max_slot_bytes = 1ULL << 30}));
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "graph/service.h"

namespace corro::graph {

/// Who goes next when a lane has room.
enum class LaneOrder : uint8_t {
  kPriority,  ///< Of those ready, the least priority value; among equals the first in the plan.
  /// The services in plan order, one generation after the other, whoever is ready; one-shots in
  /// order of submission. Communicators: every rank starts in the same order.
  kAgreed,
};

struct LaneSpec {
  std::string name = {};
  LaneOrder order = LaneOrder::kPriority;
  uint32_t depth = 1;  ///< Firings in flight at a time.
};

/// A ring of `slots` buffers from one producer to every service that names it as input. A peer on
/// another rank is a service here: the receive is the producer of its local channel, the send a
/// consumer.
struct ChannelSpec {
  std::string name = {};
  uint32_t slots = 1;  ///< Credits: how far the producer may run ahead.
  uint32_t initial =
      0;  ///< Slots readable before the first firing (for example version 0 of the parameters).
  uint64_t slot_bytes = 0;
};

/// Fires when every input is readable, every output has a free slot and its lane has room; never
/// overlaps itself.
struct ServiceSpec {
  std::string name = {};
  LaneId lane = 0;
  int32_t priority = 0;  ///< Less goes first (LaneOrder::kPriority).
  Duration duration{};   ///< Predicted; what virtual lanes take.
  std::vector<ChannelId> inputs = {};
  std::vector<ChannelId> outputs = {};
  Launch launch = {};  ///< Not part of the plan's hash; virtual lanes do without.
};

/// A timed marked graph: all services fire equally often. Copied into the executor, which never
/// changes it.
struct Plan {
  uint32_t epoch = 0;
  std::vector<LaneSpec> lanes;
  std::vector<ChannelSpec> channels;
  std::vector<ServiceSpec> services;

  LaneId add_lane(LaneSpec spec);
  ChannelId add_channel(ChannelSpec spec);
  ServiceId add_service(ServiceSpec spec);
};

struct PlanLimits {
  uint64_t max_slot_bytes = std::numeric_limits<uint64_t>::max();
};

/// Returns INVALID_ARGUMENT for a plan that is not well formed (every channel needs one producer
/// and a consumer), FAILED_PRECONDITION with the services' names for a cycle without a token (it
/// would stand still for ever), RESOURCE_EXHAUSTED when the slots need more bytes than the limit.
/// Pure; O(services + channels' ends).
[[nodiscard]] Status check(const Plan& plan, const PlanLimits& limits = {});

/// Returns the sum over channels of slots * slot_bytes: all memory the plan can ever hold
/// (saturated).
[[nodiscard]] uint64_t slot_bytes(const Plan& plan);

/// Returns a hash of everything but the launches: equal on ranks that hold the same plan (FNV-1a,
/// 64 bits).
[[nodiscard]] uint64_t hash_of(const Plan& plan);

/// Returns the services of a cycle without a token, in order, or nothing. Marked graphs are live
/// exactly when there is none (Commoner, Holt, Even, Pnueli, "Marked directed graphs", 1971). A
/// channel is an edge to each consumer with `initial` tokens and one back with the free slots; a
/// lane in agreed order is a cycle with one token. Requires a well formed plan.
[[nodiscard]] std::vector<ServiceId> find_token_free_cycle(const Plan& plan);

/// Returns a time that no schedule of the plan can beat, per generation: the maximum over cycles of
/// durations / tokens, and over lanes of durations / depth. Lanes in agreed order of depth one
/// reach it, priorities may not. Nanoseconds, exact up to the final division. Newton's iteration on
/// the ratio with Bellman-Ford as the cycle finder (Lawler, "Combinatorial optimization",
/// ch. 3.13). Requires check(plan).ok().
[[nodiscard]] double minimum_period_ns(const Plan& plan);

}  // namespace corro::graph
