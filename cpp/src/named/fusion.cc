#include "named/fusion.h"

#include "base/dtype.h"
#include "collective/operation/codec.h"

namespace corro::named {
namespace {

constexpr uint64_t kAlignment = 64;   // A cache line; a multiple of every element size.
constexpr uint32_t kMaxSkipped = 64;  // Places a bucket may look past.

uint64_t bytes_of(const Fusible& op) { return op.signature.count * size_of(op.signature.dtype); }

uint64_t aligned(uint64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

bool may_fuse(const Fusible& op, const FusionOptions& options) {
  const OpKind kind = op.signature.kind;
  if (reduces(kind) && op.signature.reduce_op == ReduceOp::kAdasum) return false;
  return (kind == OpKind::kAllreduce || kind == OpKind::kBroadcast || kind == OpKind::kReduce) &&
         bytes_of(op) <= options.solo_bytes &&
         (op.codec.empty() || collective::codec_named(op.codec) != nullptr);
}

bool alike(const Fusible& a, const Fusible& b) {
  return a.signature.kind == b.signature.kind && a.signature.dtype == b.signature.dtype &&
         a.signature.element == b.signature.element &&
         a.signature.reduce_op == b.signature.reduce_op && a.signature.root == b.signature.root &&
         a.prescale == b.prescale && a.postscale == b.postscale && a.codec == b.codec;
}

class Cutter {
 public:
  Cutter(std::span<const Fusible> list, const FusionOptions& options)
      : list_(list), options_(options), taken_(list.size(), false) {}

  std::vector<Bucket> run() {
    for (uint32_t i = 0; i < list_.size(); ++i) {
      if (!taken_[i]) open(i);
    }
    return std::move(buckets_);
  }

 private:
  void open(uint32_t first) {
    Bucket& bucket = buckets_.emplace_back();
    bucket.as_one = list_[first];
    bucket.parts.push_back({first, 0});
    if (!may_fuse(list_[first], options_)) return;
    uint64_t fused = aligned(bytes_of(list_[first]));
    uint64_t skipped = 0;
    uint32_t skipped_places = 0;
    for (uint32_t i = first + 1; i < list_.size() && skipped_places <= kMaxSkipped; ++i) {
      if (taken_[i]) {
        ++skipped_places;
        continue;
      }
      const uint64_t bytes = aligned(bytes_of(list_[i]));
      if (fused + skipped + bytes > options_.threshold_bytes) break;
      if (alike(list_[first], list_[i]) && may_fuse(list_[i], options_)) {
        bucket.parts.push_back({i, fused});
        fused += bytes;
        taken_[i] = true;
      } else {
        skipped += bytes;
        ++skipped_places;
      }
    }
    if (bucket.parts.size() > 1) {
      bucket.as_one.signature.count = fused / size_of(bucket.as_one.signature.dtype);
      bucket.as_one.signature.shape = 0;
    }
  }

  std::span<const Fusible> list_;
  const FusionOptions& options_;
  std::vector<bool> taken_;
  std::vector<Bucket> buckets_;
};

}  // namespace

std::vector<Bucket> fuse(std::span<const Fusible> list, const FusionOptions& options) {
  return Cutter(list, options).run();
}

}  // namespace corro::named
