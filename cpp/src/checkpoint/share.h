// Which rank writes what of the tensors that all ranks have alike. Each byte is written once in the
// job, and ranks write nearly the same number of bytes.
//
//   for (const Shared& part : share_of(rank, world, tensors)) use(part.tensor, part.box);
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "checkpoint/box.h"

namespace corro::checkpoint {

struct Tensor {
  DType dtype = DType::kF32;
  Shape shape;
};

struct Shared {
  size_t tensor;  ///< Index among the tensors.
  Box box;        ///< Dense in the tensor: one stretch.
};

/// A tensor is cut between rows, along its first dim that is longer than 1; smaller ones than this
/// are not cut, since a file of many crumbs helps nobody.
inline constexpr uint64_t kLeastCutBytes = uint64_t{1} << 20U;

/// What this rank of `world` writes, in the tensors' order. The same on every rank for the same
/// tensors, so ranks agree without a word.
[[nodiscard]] std::vector<Shared> share_of(uint32_t rank, uint32_t world,
                                           std::span<const Tensor> tensors);

}  // namespace corro::checkpoint
