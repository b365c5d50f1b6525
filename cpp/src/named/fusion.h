// Fusion: cuts an agreed list of operations into buckets that run as one operation each. A pure
// function, so that every rank cuts the same list the same way.
//
//   for (const Bucket& bucket : fuse(signatures_and_scales, {.threshold_bytes = 4 << 20}))
//   run(bucket);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/operation/signature.h"

namespace corro::named {

/// What fusion looks at.
struct Fusible {
  collective::Signature signature;
  double prescale = 1;
  double postscale = 1;
  std::string codec = {};  ///< The name of what it travels by; empty: nothing.
};

struct FusionOptions {
  /// A bucket of several has at most this many bytes; 0: every operation stays alone
  /// (CORRO_FUSION_BYTES).
  uint64_t threshold_bytes = uint64_t{4} << 20U;
  /// Larger ones stay alone: they run where they are, and the copy would cost more than the
  /// operation it saves.
  uint64_t solo_bytes = uint64_t{512} << 10U;
};

/// One operation of a bucket: its place in the list and in the bucket's buffer.
struct BucketPart {
  uint32_t index = 0;         ///< Into the list given to fuse().
  uint64_t offset_bytes = 0;  ///< A multiple of 64; 0 in a bucket of one.
  friend bool operator==(const BucketPart&, const BucketPart&) = default;
};

/// Operations that run as one. A bucket of one is that operation itself, in place. The buffer of a
/// bucket of several holds the parts and, between them, padding that has to be zero.
struct Bucket {
  Fusible as_one;  ///< Its signature counts all elements, padding included.
  std::vector<BucketPart> parts;
};

/// Returns buckets that hold every index once, ordered by their first part; parts keep the order of
/// the list. Fused are allreduce, broadcast and reduce of the same dtype, reduce op, root,
/// scales and codec, if that is one of this library, but not those by Adasum, which looks at each
/// tensor as a whole. A bucket looks past operations that do not match while skipped and fused
/// bytes together stay below the threshold (as in Horovod, Sergeev and Del Balso 2018, section 4,
/// "tensor fusion", and its later look-ahead), and over at most 64 places, so the cost is O(n).
/// Pure.
[[nodiscard]] std::vector<Bucket> fuse(std::span<const Fusible> list, const FusionOptions& options);

}  // namespace corro::named
