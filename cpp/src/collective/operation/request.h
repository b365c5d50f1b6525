// OpRequest: one operation as the caller gave it, checked and completed by the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "collective/operation/codec.h"
#include "collective/operation/signature.h"

namespace corro::collective {

/// The largest count of any kind: with it, products of counts, ranks and sizes stay far below 2^64.
inline constexpr uint64_t kMostElements = uint64_t{1} << 40U;

/// See corro_op in corro.h for the meaning of each field. Buffers are borrowed until the operation
/// is done.
struct OpRequest {
  OpKind kind = OpKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;
  int32_t root = 0;
  uint32_t tag = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  uint64_t count = 0;
  std::vector<uint64_t> counts = {};
  std::vector<uint64_t> send_counts = {};
  double prescale = 1;
  double postscale = 1;
  /// So many members have joined and contribute nothing: an average does not count them. The same
  /// on all ranks, and no part of the signature: it may grow until the last member takes part.
  int32_t absent = 0;
  /// The small form in which it travels, which applies to dtype; null: none.
  std::shared_ptr<const Codec> codec = {};
  bool gives_identity = false;  ///< This rank is one of them: fill_identity() has made its input.
  uint16_t element = 0;         ///< element_number() where dtype does not say what is moved.
  uint64_t shape = 0;           ///< pack_shape() of the dims that all ranks share; 0: not compared.
  Duration timeout{};           ///< Zero: the engine's default.
  std::string name = {};
  uint64_t span = 0;  ///< In obs::TimelineLog, if it was noted before its flight began.
};

/// Refuses what no group could run: roots and counts out of range, byte sizes that overflow.
[[nodiscard]] Status validate_sizes(const OpRequest& request, int32_t rank, int32_t size);

/// True where every element is folded from all contributions at once: an average of integers, whose
/// sum may not fit into their type.
[[nodiscard]] constexpr bool folds_at_once(const OpRequest& request) {
  return request.reduce_op == ReduceOp::kAverage && is_integer(request.dtype);
}

/// True where a fold needs whole vectors: Adasum scales each by what its dot products say.
[[nodiscard]] constexpr bool folds_whole_vectors(const OpRequest& request) {
  return request.reduce_op == ReduceOp::kAdasum && reduces(request.kind);
}

/// The factor of this rank's contribution: what changes no result is not scaled.
[[nodiscard]] constexpr double input_scale(const OpRequest& request) {
  return request.gives_identity ? 1 : request.prescale;
}

/// What all ranks have to agree on.
[[nodiscard]] Signature signature_of(const OpRequest& request, int32_t size);

/// Sizes of an operation on one rank, in elements. Every contribution is a row of blocks; every
/// rank takes, from each contributor, one block. Pure index arithmetic shared by all in-node paths.
class Shape {
 public:
  Shape(const OpRequest& request, int32_t rank, int32_t size);

  /// Elements this rank contributes (0 where it only receives) and receives in total.
  [[nodiscard]] uint64_t contribution() const { return contribution_; }
  [[nodiscard]] uint64_t output_count() const { return output_count_; }
  /// True if this rank / rank `r` puts data; true if this rank takes data.
  [[nodiscard]] bool contributes(int32_t r) const { return contributor_ < 0 || contributor_ == r; }
  [[nodiscard]] bool takes() const { return takes_; }
  /// True if the contribution has one block for each rank (reducescatter, alltoall, scatter), else
  /// one for all.
  [[nodiscard]] bool split() const { return split_; }
  [[nodiscard]] bool folds() const { return folds_; }
  /// Elements of my contribution meant for rank d, and where they start in my input.
  [[nodiscard]] uint64_t put_count(int32_t d) const;
  [[nodiscard]] uint64_t put_offset(int32_t d) const;
  /// Elements I take from rank r, and where they go in my output (0 for folds).
  [[nodiscard]] uint64_t take_count(int32_t r) const;
  [[nodiscard]] uint64_t take_offset(int32_t r) const;
  /// Largest block of any pair, equal on all ranks; needs `agreed` sizes (false for uneven
  /// alltoall).
  [[nodiscard]] uint64_t largest_block() const { return largest_block_; }
  [[nodiscard]] bool agreed() const { return agreed_; }

 private:
  bool split_ = false, folds_ = false, takes_ = true, agreed_ = true;
  int32_t contributor_ = -1;  ///< -1: everyone.
  uint64_t contribution_ = 0, output_count_ = 0, largest_block_ = 0;
  uint64_t even_put_ = 0, even_take_ = 0;
  std::vector<uint64_t> put_, take_, put_start_, take_start_;  ///< Empty: even.
};

/// Refuses missing buffers, and an input and an output that overlap otherwise than in place (see
/// corro_op), for a request of valid sizes.
[[nodiscard]] Status validate_buffers(const OpRequest& request, const Shape& shape, int32_t rank);
/// Both of the above.
[[nodiscard]] Status validate(const OpRequest& request, int32_t rank, int32_t size);

}  // namespace corro::collective
