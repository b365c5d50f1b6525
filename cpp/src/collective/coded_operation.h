// CodedOperation: an allreduce whose contributions travel in the small form of its codec, over any
// fabric.
//
//   encode: the contribution becomes its small form, in memory of the segment
//   travel: small forms are folded by an allreduce; or, where they cannot be, gathered
//   decode: the fold of them, or each of them, becomes the result
//
// A codec that fails ends the group: the other ranks may have what this one has not.
#pragma once

#include <functional>
#include <memory>

#include "collective/board/segment_pool.h"
#include "collective/operation/operation.h"
#include "collective/operation/request.h"

namespace corro::collective {

/// The operation that travels for a request with a codec; its buffers are null.
[[nodiscard]] OpRequest travelling(const OpRequest& request);

/// Starts what travels, which is borrowed and outlives it.
using StartTravelling = std::function<std::unique_ptr<Operation>(const OpRequest& travelling)>;

/// The request has a codec, is borrowed and outlives the operation, as the pool does.
[[nodiscard]] std::unique_ptr<Operation> make_coded_operation(const OpRequest& request,
                                                              int32_t size, SegmentPool& pool,
                                                              const StartTravelling& start);

}  // namespace corro::collective
