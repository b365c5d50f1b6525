// Fusion: cuts an agreed list of operations into buckets. A bucket runs as one operation. A pure
// function, so every rank cuts the same list the same way.
//
//   for (const Bucket& bucket : fuse(list, {.threshold_bytes = 4 << 20})) run(bucket);
//
// fuse() takes the list in order. The first operation that is in no bucket opens one. The bucket
// then looks ahead: it takes each operation that matches the first, and skips the others. It ends
// where fused and skipped bytes together would exceed the threshold, or after 64 skipped places.
// Then the next operation that is in no bucket opens the next one.
//
// Two operations match if kind, dtype, reduce op, root, scales and codec are equal. Only allreduce,
// broadcast and reduce are fused. An operation stays alone if it is larger than solo_bytes, if its
// codec is not of this library, or if it reduces by Adasum, which looks at each tensor as a whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collective/operation/signature.h"

namespace corro::named {

/// An operation as fusion sees it.
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

/// Returns buckets that hold every index once, ordered by their first part. Parts keep the order of
/// the list. The method is Horovod's (Sergeev and Del Balso 2018, section 4, "tensor fusion", and
/// its later look-ahead). The bound on skipped places makes the cost O(n). Pure.
[[nodiscard]] std::vector<Bucket> fuse(std::span<const Fusible> list, const FusionOptions& options);

}  // namespace corro::named
