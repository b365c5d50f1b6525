// Runner: executes a schedule over endpoints, and the two point-to-point operations.
//
// Strands run beside each other, up to the schedule's window; within a strand one round runs at a
// time:
//
//   a round is launched: receives are posted, then sends, folds and copies are made
//   a round is complete: every message of it has left or come, every mark is told or seen
//   the next round of the strand is launched, or the strand is over and another one is opened
//
// Receives come first, so that a message of a peer that is ahead finds its place. A strand is
// opened only within the window of the oldest one that is not over, since it shares that one's
// scratch. A message of a rank that called something else is a mismatch: the operation fails with
// what both called. The first step that is not done says for whom the operation waits.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/buffer_pool.h"
#include "collective/host_stages.h"
#include "collective/operation/operation.h"
#include "collective/operation/request.h"
#include "collective/schedule/schedule.h"
#include "transport/endpoint.h"

namespace corro::collective {

/// Bytes that a group keeps for its next operation over messages.
inline constexpr size_t kMostKept = size_t{32} << 20U;

/// How a lane's messages travel. Loop-confined; outlives its operations.
struct Links {
  LaneKey lane = {};
  int32_t rank = 0;
  std::vector<transport::Endpoint*> endpoints;  ///< By group rank; the own entry is null.
  std::vector<int32_t> world_ranks;             ///< By group rank.
  BufferPool buffers{kMostKept};                ///< For what operations keep between their steps.
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(endpoints.size()); }
};

/// Operations of the lane below `op` are over here.
void retire_below(const Links& links, uint64_t op);
/// What a group rank did last as far as its messages show, for people.
[[nodiscard]] std::string describe_last_message(const Links& links, int32_t r);

/// One direction of send and recv between two ranks with one tag: a lane of its own, so that
/// whatever is wrong with one message stays with its tag.
struct PairLink {
  LaneKey lane = {};
  transport::Endpoint* endpoint = nullptr;
  int32_t own_world_rank = -1;
  int32_t peer_world_rank = -1;
};

/// A collective by its schedule. Request, links and stages are borrowed and outlive the operation;
/// the schedule is shared with the lane's cache. `stages`: of this host's ranks; null for a
/// schedule without marks and stages.
[[nodiscard]] std::unique_ptr<Operation> make_schedule_operation(
    Links& links, uint64_t op, const OpRequest& request, std::shared_ptr<const Schedule> schedule,
    HostStages* stages = nullptr);
/// send or recv with group rank request.root; `sequence` counts the operations of this link.
[[nodiscard]] std::unique_ptr<Operation> make_pair_operation(const PairLink& link,
                                                             uint64_t sequence,
                                                             const OpRequest& request);

}  // namespace corro::collective
