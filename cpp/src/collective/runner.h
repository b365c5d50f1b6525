// Runner: executes a schedule over endpoints, and the two point-to-point operations.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/buffer_pool.h"
#include "collective/operation.h"
#include "collective/request.h"
#include "collective/schedule.h"
#include "transport/endpoint.h"

namespace corro::collective {

/// Bytes that a group keeps for its next operation over messages.
inline constexpr size_t kMostKept = size_t{32} << 20U;

/// How a group's messages travel. Loop-confined; outlives its operations.
struct Links {
  uint32_t lane = 0;
  int32_t rank = 0;
  std::vector<transport::Endpoint*> endpoints;  ///< By group rank; the own entry is null.
  std::vector<int32_t> world_ranks;             ///< By group rank.
  BufferPool buffers{kMostKept};                ///< For what operations keep between their steps.
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(endpoints.size()); }
};

/// Lanes of send and recv: the group's lane with the top bit set; operation id = count per (peer,
/// tag), step = tag.
inline constexpr uint32_t kPairLaneBit = 1U << 31U;

/// A collective by its schedule. Request and links are borrowed and outlive the operation; the
/// schedule is shared with the group's cache.
[[nodiscard]] std::unique_ptr<Operation> make_schedule_operation(
    Links& links, uint64_t op, const OpRequest& request, std::shared_ptr<const Schedule> schedule);
/// send or recv with group rank request.root; `sequence` counts the operations of this (peer, tag,
/// direction).
[[nodiscard]] std::unique_ptr<Operation> make_pair_operation(Links& links, uint64_t sequence,
                                                             const OpRequest& request);

}  // namespace corro::collective
