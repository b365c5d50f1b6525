// Adasum: the sum of vectors, each scaled by how far it points where another one does.
#pragma once

#include <span>

#include "base/dtype.h"

namespace corro::collective {

/// into = scale * Adasum of whole vectors of `count` elements of f16, bf16, f32 or f64.
///
/// Of two vectors it is (1 - a.b / 2|a|^2) a + (1 - a.b / 2|b|^2) b: their sum if they are
/// orthogonal, their mean if they are equal. A vector of zeros adds nothing. Dot products are made
/// in f64 (of f64, squares have to fit into it), and a sum of two is rounded to `dtype`. Of more,
/// it is taken pairwise over a tree: while they are no power of two, each of the first pairs
/// becomes one (PowerOfTwo); then neighbours, then neighbours of these, the lower one first.
/// recursive_doubling() goes the same way among ranks, to the same bits. One vector alone is
/// itself. `into` may be one of the sources. Source: Maleki et al., "Scaling Distributed Training
/// with Adaptive Summation" (MLSys 2021, arXiv 2006.02924), section 3. Deviation: whole vectors,
/// where its Algorithm 1 halves them among the ranks, and ranks that are no power of two.
void adasum(DType dtype, std::byte* into, std::span<const std::byte* const> sources, uint64_t count,
            double scale);

}  // namespace corro::collective
