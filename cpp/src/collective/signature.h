// Signatures: what an operation is, packed into 64 bits that travel with the data. Decodable, so
// that a mismatch names both sides: kind (bits 0-3), dtype (4-7), reduce op (8-10), root (11-26),
// count (27-63, saturated).
#pragma once

#include <cstdint>
#include <string>

#include "base/dtype.h"

namespace corro::collective {

/// What has to agree among the ranks of one operation.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;
  uint16_t root = 0;
  uint64_t count =
      0;  ///< Elements that all ranks agree on: counts are summed; uneven alltoall has 0.

  [[nodiscard]] uint64_t pack() const;
  /// Foreign bits: values out of range become the nearest valid ones, so describe() is always safe.
  [[nodiscard]] static Signature unpack(uint64_t bits);
  /// For example "allreduce(f32[100], sum)" or "broadcast(i64[3], root 2)".
  [[nodiscard]] std::string describe() const;
};

}  // namespace corro::collective
