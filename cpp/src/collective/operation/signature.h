// Signatures: what an operation is, packed into 176 bits that travel with the data. Decodable, so
// that a mismatch names both sides. Bit tables: docs/wire.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/signature_bits.h"

namespace corro::collective {

/// What has to agree among the ranks of one operation.
struct Signature {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;
  uint16_t root = 0;
  uint64_t count =
      0;  ///< Elements that all ranks agree on: counts are summed; uneven alltoall has 0.
  uint64_t shape = 0;    ///< pack_shape() of the caller's dims; 0: not given.
  uint32_t extras = 0;   ///< hash_extras() of what the words above do not say.
  uint16_t element = 0;  ///< element_number() of what is moved as bytes; 0: of this dtype.

  [[nodiscard]] SignatureBits pack() const;
  /// Foreign bits: values out of range become the nearest valid ones, so describe() is always safe.
  [[nodiscard]] static Signature unpack(const SignatureBits& bits);
  /// What the user calls the type of an element: "f32", "complex64", "float32 as bf16" of what a
  /// codec has made smaller.
  [[nodiscard]] std::string type() const;
  /// For example "allreduce(f32[2,3], sum)" or "broadcast(i64[3], root 2)".
  [[nodiscard]] std::string describe() const;
  friend bool operator==(const Signature&, const Signature&) = default;
};

/// Packs dims into a word that is never 0: the dims themselves where they fit (four of 2^10, say),
/// else a hash of them.
[[nodiscard]] uint64_t pack_shape(std::span<const uint64_t> dims);

/// The dims of a packed shape; none if it is a hash or 0. Foreign bits: a list that does not fit
/// ends early.
[[nodiscard]] std::optional<std::vector<uint64_t>> unpack_shape(uint64_t shape);

/// True if the shape in a signature is that of the whole tensor; else it is that of one row: dim 0
/// differs between ranks.
[[nodiscard]] constexpr bool has_whole_shape(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReduce || kind == OpKind::kBroadcast ||
         kind == OpKind::kReducescatter;
}

/// A hash of scales and counts per rank; 0 if the scales are 1 and the counts even.
[[nodiscard]] uint32_t hash_extras(double prescale, double postscale,
                                   std::span<const uint64_t> counts);

/// Both sides of a disagreement in words: "rank 0 called allreduce(f32[4], sum), rank 1 called
/// ...".
[[nodiscard]] std::string describe_difference(int32_t rank, const SignatureBits& signature,
                                              int32_t other_rank, const SignatureBits& other);

}  // namespace corro::collective
