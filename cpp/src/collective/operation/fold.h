// The one place where contributions become a result: fold in the given order, average, scale, round
// once.
#pragma once

#include <span>

#include "collective/operation/request.h"

namespace corro::collective {

/// into = all contributions of a group of `size` ranks, complete: average and post-scale applied.
/// An average divides by the ranks that are not `absent`. Where a fold needs whole vectors, `count`
/// is all of the request's.
void fold_final(const OpRequest& request, int32_t size, std::byte* into,
                std::span<const std::byte* const> sources, uint64_t count);
/// into = fold of some contributions, no scaling yet; never where folds_at_once().
void fold_partial(const OpRequest& request, std::byte* into,
                  std::span<const std::byte* const> sources, uint64_t count);
/// Copies a contribution with the request's pre-scale.
void copy_contribution(const OpRequest& request, std::byte* into, const std::byte* from,
                       uint64_t count);
/// Fills with what changes no result of this reduction: 0 for sums, averages and adasum, 1 for
/// products, the largest value for min and the smallest for max (infinities where there are).
void fill_identity(DType dtype, ReduceOp op, std::byte* into, uint64_t count);

}  // namespace corro::collective
