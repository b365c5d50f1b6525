// All the shapes that a job can have on a cluster: degrees, micro-batches, schedules, sharding.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/search/decision.h"

namespace corro::plan {

/// Equal hosts, as stages are placed on them.
struct Pool {
  uint32_t type = 0;          ///< Of the cluster's device types.
  uint32_t first_device = 0;  ///< In the cluster's numbering.
  uint32_t devices = 0;
  Machine machine = {};
};

enum class Extent : uint8_t { kNarrowest, kWidest };

/// Groups of hosts that differ in nothing but their number are one pool. The network between hosts
/// of a pool is the narrowest, or the widest, between any two of them.
[[nodiscard]] std::vector<Pool> pools_of(const Request& request,
                                         Extent extent = Extent::kNarrowest);

/// Samples of a step: the request's, or 32 768 tokens for each device, at most four million; where
/// samples are no sequences, 32 for each device, at most 4 096.
[[nodiscard]] uint32_t batch_of(const Request& request);

/// The shapes by families, whose members differ in schedule, sharding and offload alone: what holds
/// for a family need not be asked for each of them. Immutable.
class ShapeSpace {
 public:
  /// The request outlives it.
  ShapeSpace(const Request& request, const std::vector<Pool>& pools);

  /// Each family as one shape of it, in a stable order; some may have no members.
  [[nodiscard]] const std::vector<JobShape>& families() const { return families_; }
  [[nodiscard]] std::vector<JobShape> members(const JobShape& family) const;
  /// Shapes of all families.
  [[nodiscard]] size_t size() const { return size_; }

 private:
  [[nodiscard]] bool may_offload(Offload offload, const JobShape& shape) const;
  template <typename Visit>
  void each_of(const JobShape& family, const Visit& visit) const;

  const Request& request_;
  bool can_offload_;
  std::vector<JobShape> families_;
  size_t size_ = 0;
};

/// Of activations: what is pinned, else the first of bf16, f16 and f32 that all devices compute.
[[nodiscard]] DType dtype_of(const Request& request, const std::vector<Pool>& pools);

/// Every shape on at most the devices of all pools that keeps the request's pins. Where a
/// data-parallel degree does not divide the batch, some ranks have a sample less. Stable order.
[[nodiscard]] std::vector<JobShape> shapes_of(const Request& request,
                                              const std::vector<Pool>& pools);

}  // namespace corro::plan
