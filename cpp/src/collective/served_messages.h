// What a rank says to an aggregator, beside the data: which group it is for, and which operation
// comes next. Bytes: docs/wire.md.
#pragma once

#include <cstdint>

#include "base/bytes.h"
#include "base/lane_key.h"
#include "base/status.h"
#include "collective/operation/request.h"
#include "collective/schedule/schedule.h"

namespace corro::collective {

/// The lane of these messages on a connection to an aggregator; no group has it.
inline constexpr LaneKey kServedLane{.epoch = 0, .key = 0};
/// Of a job; a rank takes no more of them.
inline constexpr int32_t kMostAggregators = 1024;

/// The first message of a connection: number 0 of the lane.
struct ServedGroup {
  uint32_t epoch = 0;
  int32_t size = 1;  ///< Ranks of it.
  int32_t rank = 0;  ///< Who says so.
  int32_t aggregators = 1;
  int32_t index = 0;  ///< Of who hears it, among these.
  /// By different ranks of the same group.
  [[nodiscard]] bool agrees_with(const ServedGroup& other) const {
    return epoch == other.epoch && size == other.size && aggregators == other.aggregators &&
           index == other.index;
  }
};
inline constexpr size_t kServedGroupBytes = 20;
[[nodiscard]] Bytes encode(const ServedGroup& group);
/// INVALID_ARGUMENT for what encode() does not write.
[[nodiscard]] Result<ServedGroup> decode_served_group(BytesView bytes);

/// Each later message: an allreduce, which all ranks of the group take part in.
struct ServedCall {
  LaneKey lane;     ///< Of its data.
  uint64_t op = 0;  ///< Of that lane.
  uint64_t count = 0;
  uint64_t shape = 0;
  double prescale = 1, postscale = 1;
  int32_t absent = 0;  ///< Contributors that give nothing: OpRequest::absent.
  DType dtype = DType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  Algorithm folds_as = Algorithm::kTwoShot;
  friend bool operator==(const ServedCall&, const ServedCall&) = default;
};
inline constexpr size_t kServedCallBytes = 60;
[[nodiscard]] Bytes encode(const ServedCall& call);
/// INVALID_ARGUMENT for what encode() does not write.
[[nodiscard]] Result<ServedCall> decode_served_call(BytesView bytes);

/// As a rank that gives nothing sees it, in a group with `aggregators` such ones. `absent` counts
/// them.
[[nodiscard]] OpRequest request_of(const ServedCall& call, int32_t aggregators);

}  // namespace corro::collective
