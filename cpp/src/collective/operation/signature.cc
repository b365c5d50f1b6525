#include "collective/operation/signature.h"

#include <algorithm>
#include <bit>
#include <functional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/operation/element.h"

namespace corro::collective {
namespace {

constexpr uint64_t kMaxCount = (uint64_t{1} << 37U) - 1;

// A shape: tag (2 bits), then number of dims (4) and each dim as its width (5) and its bits; or a
// hash.
constexpr uint64_t kListed = 1;
constexpr uint64_t kHashed = 2;
constexpr unsigned kTagBits = 2, kDimsBits = 4, kWidthBits = 5;

constexpr uint64_t mask(unsigned bits) { return (uint64_t{1} << bits) - 1; }

/// Folds a word into a hash (multiply and shift, as the finalizer of MurmurHash3 does).
constexpr uint64_t mix(uint64_t hash, uint64_t word) {
  hash = (hash ^ word) * 0xFF51AFD7ED558CCD;
  return hash ^ hash >> 32U;
}
constexpr uint64_t kSeed = 0x9E3779B97F4A7C15;

std::string describe_elements(const Signature& signature) {
  const auto dims = unpack_shape(signature.shape);
  if (dims && has_whole_shape(signature.kind)) return fmt::format("[{}]", fmt::join(*dims, ","));
  const bool is_moved = signature.dtype == DType::kU8;
  const uint64_t units = is_moved ? element_bytes(signature.element) : 1;
  std::string text = fmt::format("[{}]", signature.count / units);
  if (dims) return text + fmt::format(", rows [{}]", fmt::join(*dims, ","));
  if (signature.shape != 0) text += fmt::format(" of shape #{:x}", signature.shape >> kTagBits);
  return text;
}

}  // namespace

SignatureBits Signature::pack() const {
  return {.call = static_cast<uint64_t>(kind) | static_cast<uint64_t>(dtype) << 4U |
                  static_cast<uint64_t>(reduce_op) << 8U | static_cast<uint64_t>(root) << 11U |
                  std::min(count, kMaxCount) << 27U,
          .shape = shape,
          .extras = extras,
          .element = element};
}

Signature Signature::unpack(const SignatureBits& bits) {
  const auto field = [&bits](unsigned shift, uint64_t most, int limit) {
    return static_cast<uint8_t>(
        std::min<uint64_t>(bits.call >> shift & most, static_cast<uint64_t>(limit - 1)));
  };
  return {.kind = static_cast<OpKind>(field(0, 15, kOpKindCount)),
          .dtype = static_cast<DType>(field(4, 15, kDTypeCount)),
          .reduce_op = static_cast<ReduceOp>(field(8, 7, kReduceOpCount)),
          .root = static_cast<uint16_t>(bits.call >> 11U),
          .count = bits.call >> 27U,
          .shape = bits.shape,
          .extras = bits.extras,
          .element = bits.element};
}

std::string Signature::type() const {
  if (element == kPlainElement) return std::string(name_of(dtype));
  const std::string name = element_name(element);
  return dtype == DType::kU8 ? name : fmt::format("{} as {}", name, name_of(dtype));
}

std::string Signature::describe() const {
  if (kind == OpKind::kBarrier) return "barrier()";
  std::string text = fmt::format("{}({}{}", name_of(kind), type(), describe_elements(*this));
  if (reduces(kind)) text += fmt::format(", {}", name_of(reduce_op));
  if (has_root(kind)) text += fmt::format(", root {}", root);
  return text + ")";
}

uint64_t pack_shape(std::span<const uint64_t> dims) {
  uint64_t word = kListed | static_cast<uint64_t>(dims.size()) << kTagBits;
  unsigned at = kTagBits + kDimsBits;
  bool fits = dims.size() <= mask(kDimsBits);
  uint64_t hash = kSeed;
  for (const uint64_t dim : dims) {
    hash = mix(hash, dim);
    const auto width = static_cast<unsigned>(std::bit_width(dim));
    fits = fits && width <= mask(kWidthBits) && at + kWidthBits + width <= 64;
    if (!fits) continue;
    word |= static_cast<uint64_t>(width) << at;
    at += kWidthBits;
    if (width > 0) word |= dim << at;
    at += width;
  }
  return fits ? word : hash << kTagBits | kHashed;
}

std::optional<std::vector<uint64_t>> unpack_shape(uint64_t shape) {
  if ((shape & mask(kTagBits)) != kListed) return std::nullopt;
  std::vector<uint64_t> dims(shape >> kTagBits & mask(kDimsBits));
  unsigned at = kTagBits + kDimsBits;
  for (uint64_t& dim : dims) {
    if (at + kWidthBits > 64) break;
    const auto width = static_cast<unsigned>(shape >> at & mask(kWidthBits));
    at += kWidthBits;
    if (at + width > 64) break;
    dim = width == 0 ? 0 : shape >> at & mask(width);
    at += width;
  }
  return dims;
}

uint32_t hash_extras(double prescale, double postscale, std::span<const uint64_t> counts) {
  const bool even =
      std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  if (prescale == 1 && postscale == 1 && even) return 0;
  uint64_t hash =
      mix(mix(kSeed, std::bit_cast<uint64_t>(prescale)), std::bit_cast<uint64_t>(postscale));
  if (!even) {
    for (const uint64_t count : counts) hash = mix(hash, count);
  }
  return std::max(static_cast<uint32_t>(hash), 1U);
}

std::string describe_difference(int32_t rank, const SignatureBits& signature, int32_t other_rank,
                                const SignatureBits& other) {
  const std::string one = Signature::unpack(signature).describe();
  const std::string two = Signature::unpack(other).describe();
  const char* unseen = one == two ? " with other scales or other counts per rank" : "";
  return fmt::format("rank {} called {}, rank {} called {}{}", rank, one, other_rank, two, unseen);
}

}  // namespace corro::collective
