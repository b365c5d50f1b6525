// What executors run of a plan of several ranks: all of it in one executor, in virtual time, or
// each rank its part. Both are plans of one rank.
//
//   const Plan whole = expand(plan);           // what VirtualLanes run to predict
//   const Part part = cut(plan, rank);         // what this rank's engine loads
//
// A channel whose ends are on different ranks is a ring on either rank and a transfer between them:
// a service of the channel's `transfer` on a lane of its own, so a transfer takes its time whether
// or not the next one waits, and fills the sender's and the receiver's slot meanwhile.
//
//   whole    F0 -> [activation] -> "activation to rank 1" -> [activation at rank 1] -> F1
//   rank 0   F0 -> [activation] -> send half
//   rank 1                                             receive half -> [activation] -> F1
//
// The receive half fires when a slot is free, which is what grants the credit for its generation;
// the send half may fire before that, and waits for the credit on its lane, which is its own, so it
// holds up nothing else. The transfer runs once both have fired, and its end is the end of both.
// Hence the parts, joined by such links, fire exactly when the expanded plan does. The slots that
// are filled at the start lie on the receiver's rank, readable at once, and are not transferred.
//
// A service of several ranks is in each one's part, with the channels that lie there; it has begun
// when it has fired on all of them.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/plan.h"

namespace corro::graph {

/// Returns the whole plan as one executor runs it. Lanes, channels and services keep their numbers;
/// transfers and the receivers' rings follow. Without operations. Pure; requires
/// check_form(plan).ok().
[[nodiscard]] Plan expand(const Plan& plan);

/// What a service of a part is in the whole plan.
enum class Role : uint8_t {
  kService,
  kSend,     ///< Reads the channel on the producer's rank.
  kReceive,  ///< Fills the channel on a consumer's rank.
};

struct PartService {
  Role role = Role::kService;
  /// In the whole plan: the service, or the halves' channel. A channel and a generation name one
  /// transfer between two ranks.
  uint32_t number = 0;
  uint32_t peer = 0;  ///< Of a half: the rank of the other one.
};

/// One rank's share of a plan. What the plan says of a service's operation or of a lane's ranks is
/// found there by number.
struct Part {
  Plan plan;                          ///< Of one rank; without operations.
  std::vector<LaneId> lanes;          ///< Number in the whole plan; the halves' lanes follow.
  std::vector<ChannelId> channels;    ///< Number in the whole plan.
  std::vector<PartService> services;  ///< Services in the order of the plan, then the halves.
};

/// Returns what this rank runs. Pure; requires check_form(plan).ok() and rank < plan.ranks.
[[nodiscard]] Part cut(const Plan& plan, uint32_t rank);

}  // namespace corro::graph
