// Element types and reduction operators, as they appear in the C ABI, on the wire and in Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace corro {

/// Values are part of the wire format and of the C ABI; never renumber.
enum class DType : uint8_t {
  kBool = 0,
  kU8 = 1,
  kI8 = 2,
  kI16 = 3,
  kI32 = 4,
  kI64 = 5,
  kF16 = 6,
  kBF16 = 7,
  kF32 = 8,
  kF64 = 9,
  kU16 = 10,
  kU32 = 11,
  kU64 = 12,
};
inline constexpr int kDTypeCount = 13;

/// kAverage is a sum whose result is multiplied by 1/P (integers: a sum that does not wrap,
/// divided, rounding toward zero). kAdasum: adaptive summation of whole vectors
/// (docs/design/0017-adasum.md); allreduce of floating-point types alone.
enum class ReduceOp : uint8_t {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
  kAdasum = 5,
};
inline constexpr int kReduceOpCount = 6;

/// Values are part of the wire format and of the C ABI; never renumber.
enum class OpKind : uint8_t {
  kAllreduce = 0,
  kAllgather = 1,
  kReducescatter = 2,
  kAlltoall = 3,
  kBroadcast = 4,
  kReduce = 5,
  kGather = 6,
  kScatter = 7,
  kBarrier = 8,
  kSend = 9,
  kRecv = 10,
};
inline constexpr int kOpKindCount = 11;

/// True for what two ranks do among themselves: not a collective.
[[nodiscard]] constexpr bool is_pair(OpKind kind) {
  return kind == OpKind::kSend || kind == OpKind::kRecv;
}

/// True for collectives in which one rank, the root, differs from the others.
[[nodiscard]] constexpr bool has_root(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

/// True for collectives that fold the ranks' contributions with a ReduceOp.
[[nodiscard]] constexpr bool reduces(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReducescatter || kind == OpKind::kReduce;
}

/// True for f16, bf16, f32 and f64.
[[nodiscard]] constexpr bool is_floating(DType dtype) {
  return dtype >= DType::kF16 && dtype <= DType::kF64;
}

/// True for numbers that are not floating-point: not for bool.
[[nodiscard]] constexpr bool is_integer(DType dtype) {
  return dtype != DType::kBool && !is_floating(dtype);
}

/// Returns the size of one element in bytes.
[[nodiscard]] constexpr size_t size_of(DType dtype) {
  constexpr size_t kSizes[kDTypeCount] = {1, 1, 1, 2, 4, 8, 2, 2, 4, 8, 2, 4, 8};
  return kSizes[static_cast<size_t>(dtype)];
}

[[nodiscard]] constexpr std::string_view name_of(DType dtype) {
  constexpr std::string_view kNames[kDTypeCount] = {
      "bool", "u8", "i8", "i16", "i32", "i64", "f16", "bf16", "f32", "f64", "u16", "u32", "u64"};
  return kNames[static_cast<size_t>(dtype)];
}

[[nodiscard]] constexpr std::string_view name_of(ReduceOp op) {
  constexpr std::string_view kNames[kReduceOpCount] = {"sum", "average", "min",
                                                       "max", "product", "adasum"};
  return kNames[static_cast<size_t>(op)];
}

[[nodiscard]] constexpr std::string_view name_of(OpKind kind) {
  constexpr std::string_view kNames[kOpKindCount] = {
      "allreduce", "allgather", "reducescatter", "alltoall", "broadcast", "reduce",
      "gather",    "scatter",   "barrier",       "send",     "recv"};
  return kNames[static_cast<size_t>(kind)];
}

}  // namespace corro
