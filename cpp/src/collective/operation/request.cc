#include "collective/operation/request.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace corro::collective {
namespace {

uint64_t sum_of(const std::vector<uint64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
}

std::vector<uint64_t> starts_of(const std::vector<uint64_t>& counts) {
  std::vector<uint64_t> starts(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), uint64_t{0});
  return starts;
}

uint64_t largest_of(const std::vector<uint64_t>& counts, uint64_t even) {
  return counts.empty() ? even : *std::max_element(counts.begin(), counts.end());
}

bool needs_root(OpKind kind) { return has_root(kind) || is_pair(kind); }

Status check_counts(const OpRequest& request, const std::vector<uint64_t>& counts, int32_t size,
                    std::string_view what) {
  if (counts.size() != static_cast<size_t>(size)) {
    return {Code::kInvalidArgument, fmt::format("{}: {} has {} entries for a group of {} ranks",
                                                name_of(request.kind), what, counts.size(), size)};
  }
  return {};
}

Status check_adasum(const OpRequest& request) {
  if (!folds_whole_vectors(request)) return {};
  if (request.kind != OpKind::kAllreduce) {
    return {Code::kInvalidArgument,
            fmt::format("{}: adasum is there for allreduce alone", name_of(request.kind))};
  }
  if (is_floating(request.dtype)) return {};
  return {Code::kInvalidArgument, fmt::format("{}: adasum needs f16, bf16, f32 or f64, not {}",
                                              name_of(request.kind), name_of(request.dtype))};
}

Status check_bool(const OpRequest& request) {
  const bool plain =
      request.reduce_op != ReduceOp::kAverage && request.prescale == 1 && request.postscale == 1;
  if (!reduces(request.kind) || request.dtype != DType::kBool || plain) return {};
  return {Code::kInvalidArgument,
          fmt::format("{}: bool has neither averages nor factors; sum and max are \"or\", min and "
                      "product \"and\"",
                      name_of(request.kind))};
}

uint64_t address_of(const std::byte* memory) { return reinterpret_cast<uintptr_t>(memory); }

/// What the message calls a buffer of so many bytes.
std::string range_of(const std::byte* memory, uint64_t bytes) {
  return fmt::format("[{:#x}, {:#x})", address_of(memory), address_of(memory) + bytes);
}

/// Where an output that shares memory with the input may begin.
std::optional<uint64_t> place_of_output(const OpRequest& request, const Shape& shape,
                                        int32_t rank) {
  const uint64_t element = size_of(request.dtype);
  const uint64_t input = address_of(request.input);
  switch (request.kind) {
    case OpKind::kAllgather:
    case OpKind::kGather:
      return input - shape.take_offset(rank) * element;
    case OpKind::kScatter:
      return input + shape.put_offset(rank) * element;
    case OpKind::kAlltoall:
      if (request.counts != request.send_counts) return std::nullopt;
      return input;
    default:
      return input;
  }
}

/// `in`, `out`: elements. A few comparisons where the buffers lie apart, as they mostly do, or are
/// one.
Status check_overlap(const OpRequest& request, const Shape& shape, int32_t rank, uint64_t in,
                     uint64_t out) {
  const uint64_t element = size_of(request.dtype);
  const uint64_t input = address_of(request.input), output = address_of(request.output);
  const bool meet =
      in > 0 && out > 0 && input < output + out * element && output < input + in * element;
  if (!meet || place_of_output(request, shape, rank) == output) return {};
  return {Code::kInvalidArgument,
          fmt::format("{}: input {} and output {} overlap: give memory apart, or the places of an "
                      "operation in place",
                      name_of(request.kind), range_of(request.input, in * element),
                      range_of(request.output, out * element))};
}

}  // namespace

Status validate_sizes(const OpRequest& request, int32_t rank, int32_t size) {
  if (needs_root(request.kind) && (request.root < 0 || request.root >= size)) {
    return {Code::kInvalidArgument, fmt::format("{}: rank {} is not in a group of {} ranks",
                                                name_of(request.kind), request.root, size)};
  }
  CORRO_TRY(check_adasum(request));
  CORRO_TRY(check_bool(request));
  const bool point_to_point = is_pair(request.kind);
  if (point_to_point && request.root == rank) {
    return {Code::kInvalidArgument,
            fmt::format("{}: rank {} cannot exchange with itself", name_of(request.kind), rank)};
  }
  if (!request.counts.empty()) CORRO_TRY(check_counts(request, request.counts, size, "counts"));
  if (!request.send_counts.empty())
    CORRO_TRY(check_counts(request, request.send_counts, size, "send_counts"));
  const auto too_many = [](const std::vector<uint64_t>& counts) {
    return std::any_of(counts.begin(), counts.end(), [](uint64_t c) { return c > kMostElements; });
  };
  if (request.count > kMostElements || too_many(request.counts) || too_many(request.send_counts)) {
    return {Code::kInvalidArgument,
            fmt::format("{}: more than 2^40 elements", name_of(request.kind))};
  }
  return {};
}

Status validate_buffers(const OpRequest& request, const Shape& shape, int32_t rank) {
  const bool sends = request.kind == OpKind::kSend;
  const bool receives = request.kind == OpKind::kRecv;
  const uint64_t in = sends ? request.count : shape.contribution();
  const uint64_t out = receives ? request.count : shape.takes() ? shape.output_count() : 0;
  if (in > 0 && request.input == nullptr)
    return {Code::kInvalidArgument, fmt::format("{}: no input buffer", name_of(request.kind))};
  if (out > 0 && request.output == nullptr)
    return {Code::kInvalidArgument, fmt::format("{}: no output buffer", name_of(request.kind))};
  return check_overlap(request, shape, rank, in, out);
}

Status validate(const OpRequest& request, int32_t rank, int32_t size) {
  CORRO_TRY(validate_sizes(request, rank, size));
  return validate_buffers(request, Shape(request, rank, size), rank);
}

Signature signature_of(const OpRequest& request, int32_t size) {
  Signature signature{
      .kind = request.kind,
      .dtype = request.dtype,
      .reduce_op = request.reduce_op,
      .root = needs_root(request.kind) ? static_cast<uint16_t>(request.root) : uint16_t{0},
      .count = request.count};
  switch (request.kind) {
    case OpKind::kAllgather:
    case OpKind::kReducescatter:
    case OpKind::kGather:
    case OpKind::kScatter:
      signature.count = request.counts.empty() ? request.count * static_cast<uint64_t>(size)
                                               : sum_of(request.counts);
      break;
    case OpKind::kAlltoall:
      if (!request.counts.empty() || !request.send_counts.empty()) signature.count = 0;
      break;
    case OpKind::kBarrier:
      return {.kind = OpKind::kBarrier};
    default:
      break;
  }
  const bool folds = request.kind == OpKind::kAllreduce || request.kind == OpKind::kReduce ||
                     request.kind == OpKind::kReducescatter;
  if (!folds) signature.reduce_op = ReduceOp::kSum;
  const bool shared_counts = request.kind != OpKind::kAlltoall;
  signature.shape = request.shape;
  signature.element = request.element;
  const auto counts = shared_counts ? std::span(request.counts) : std::span<uint64_t>();
  signature.extras = hash_extras(request.prescale, request.postscale, counts);
  return signature;
}

Shape::Shape(const OpRequest& request, int32_t rank, int32_t size) {
  const auto ranks = static_cast<uint64_t>(size);
  const auto me = static_cast<size_t>(rank);
  even_put_ = even_take_ = request.count;
  switch (request.kind) {
    case OpKind::kAllreduce:
    case OpKind::kReduce:
      folds_ = true;
      takes_ = request.kind == OpKind::kAllreduce || rank == request.root;
      break;
    case OpKind::kReducescatter:
      folds_ = split_ = true;
      put_ = request.counts;
      even_take_ = put_.empty() ? request.count : put_[me];
      break;
    case OpKind::kAllgather:
    case OpKind::kGather:
      take_ = request.counts;
      even_put_ = take_.empty() ? request.count : take_[me];
      takes_ = request.kind == OpKind::kAllgather || rank == request.root;
      break;
    case OpKind::kBroadcast:
      contributor_ = request.root;
      break;
    case OpKind::kScatter:
      contributor_ = request.root;
      split_ = true;
      put_ = request.counts;
      even_take_ = put_.empty() ? request.count : put_[me];
      break;
    case OpKind::kAlltoall:
      split_ = true;
      put_ = request.send_counts;
      take_ = request.counts;
      agreed_ = put_.empty() && take_.empty();
      break;
    case OpKind::kBarrier:
    case OpKind::kSend:
    case OpKind::kRecv:
      even_put_ = even_take_ = 0;
      takes_ = false;
      break;
  }
  if (!put_.empty()) put_start_ = starts_of(put_);
  if (!take_.empty()) take_start_ = starts_of(take_);
  largest_block_ = split_ ? largest_of(put_, even_put_) : largest_of(take_, even_put_);
  if (contributes(rank)) {
    contribution_ = !split_ ? even_put_ : put_.empty() ? even_put_ * ranks : sum_of(put_);
  }
  const bool concatenates = !folds_ && contributor_ < 0;
  output_count_ = !takes_         ? 0
                  : !concatenates ? even_take_
                  : take_.empty() ? even_take_ * ranks
                                  : sum_of(take_);
}

uint64_t Shape::put_count(int32_t d) const {
  return put_.empty() ? even_put_ : put_[static_cast<size_t>(d)];
}

uint64_t Shape::put_offset(int32_t d) const {
  if (!split_) return 0;
  return put_.empty() ? even_put_ * static_cast<uint64_t>(d) : put_start_[static_cast<size_t>(d)];
}

uint64_t Shape::take_count(int32_t r) const {
  if (!takes_ || !contributes(r)) return 0;
  return take_.empty() ? even_take_ : take_[static_cast<size_t>(r)];
}

uint64_t Shape::take_offset(int32_t r) const {
  if (folds_ || contributor_ >= 0) return 0;
  return take_.empty() ? even_take_ * static_cast<uint64_t>(r)
                       : take_start_[static_cast<size_t>(r)];
}

}  // namespace corro::collective
