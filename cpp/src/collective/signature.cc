#include "collective/signature.h"

#include <algorithm>

#include <fmt/format.h>

namespace corro::collective {
namespace {

constexpr uint64_t kMaxCount = (uint64_t{1} << 37U) - 1;

bool reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter || kind == OpKind::kReduce;
}

bool rooted(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

}  // namespace

uint64_t Signature::pack() const {
  return static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 4U |
         static_cast<uint64_t>(reduce_op) << 8U | static_cast<uint64_t>(root) << 11U |
         std::min(count, kMaxCount) << 27U;
}

Signature Signature::unpack(uint64_t bits) {
  const auto field = [bits](unsigned shift, uint64_t mask, int limit) {
    return static_cast<uint8_t>(
        std::min<uint64_t>(bits >> shift & mask, static_cast<uint64_t>(limit - 1)));
  };
  return {.kind = static_cast<OpKind>(field(0, 15, kOpKindCount)),
          .dtype = static_cast<DType>(field(4, 15, kDTypeCount)),
          .reduce_op = static_cast<ReduceOp>(field(8, 7, kReduceOpCount)),
          .root = static_cast<uint16_t>(bits >> 11U),
          .count = bits >> 27U};
}

std::string Signature::describe() const {
  if (kind == OpKind::kBarrier) return "barrier()";
  std::string text = fmt::format("{}({}[{}]", name_of(kind), name_of(dtype), count);
  if (reduces(kind)) text += fmt::format(", {}", name_of(reduce_op));
  if (rooted(kind)) text += fmt::format(", root {}", root);
  return text + ")";
}

}  // namespace corro::collective
