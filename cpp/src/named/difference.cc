#include "named/difference.h"

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collective/operation/element.h"

namespace corro::named {
namespace {

using Dims = std::vector<uint64_t>;

/// The name that users of Python know: "float32" for f32.
std::string python_name(const collective::Signature& signature) {
  return signature.element == collective::kPlainElement ? collective::long_name(signature.dtype)
                                                        : signature.type();
}

std::string capitals(OpKind kind) {
  std::string name(name_of(kind));
  std::ranges::transform(name, name.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return name;
}

/// Shapes of rows: dim 0 is each rank's own, and not among them.
std::string describe_rows(const Dims& one, const Dims& other) {
  if (one.size() != other.size()) {
    return fmt::format("a tensor of rank {}, but another rank sent a tensor of rank {}.",
                       one.size() + 1, other.size() + 1);
  }
  const auto place = static_cast<size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
  return fmt::format(
      "a tensor with dimension {0} equal to {1}, but another rank sent a tensor with dimension {0} "
      "equal to {2}.",
      place + 1, one[place], other[place]);
}

std::string describe_shapes(const collective::Signature& one, const collective::Signature& other) {
  const auto dims = collective::unpack_shape(one.shape);
  const auto others = collective::unpack_shape(other.shape);
  std::string text = fmt::format("Mismatched {} tensor shapes: One rank sent ", capitals(one.kind));
  if (!dims || !others || *dims == *others) {
    return text + fmt::format("{} elements, but another rank sent {} elements in another shape.",
                              one.count, other.count);
  }
  if (!collective::has_whole_shape(one.kind)) return text + describe_rows(*dims, *others);
  return text + fmt::format("a tensor of shape [{}], but another rank sent a tensor of shape [{}].",
                            fmt::join(*dims, ", "), fmt::join(*others, ", "));
}

}  // namespace

std::string describe_difference(const Fusible& one, const Fusible& other) {
  const collective::Signature &a = one.signature, &b = other.signature;
  if (a.dtype != b.dtype || a.element != b.element) {
    return fmt::format("Mismatched data types: One rank had type {}, but another rank had type {}.",
                       python_name(a), python_name(b));
  }
  if (a.kind != b.kind) {
    return fmt::format("Mismatched operations: One rank did an {}, but another rank did an {}.",
                       capitals(a.kind), capitals(b.kind));
  }
  if (a.shape != b.shape || a.count != b.count) return describe_shapes(a, b);
  if (a.root != b.root) {
    return fmt::format(
        "Mismatched {} root ranks: One rank specified root rank {}, but another rank specified "
        "root rank {}.",
        capitals(a.kind), a.root, b.root);
  }
  if (one.prescale != other.prescale || one.postscale != other.postscale) {
    return fmt::format(
        "Mismatched prescale and/or postscale factors: One rank sent factors ({}, {}), but another "
        "rank sent factors ({}, {}).",
        one.prescale, one.postscale, other.prescale, other.postscale);
  }
  if (a.reduce_op != b.reduce_op) {
    return fmt::format(
        "Mismatched reduction operation: One rank sent reduction op {}, but another rank sent "
        "reduction op {}.",
        name_of(a.reduce_op), name_of(b.reduce_op));
  }
  if (one.codec != other.codec) {
    return fmt::format("Mismatched compression: One rank sent by {}, but another rank by {}.",
                       one.codec.empty() ? "none" : one.codec,
                       other.codec.empty() ? "none" : other.codec);
  }
  return "Mismatched counts per rank.";  // What is left, as a hash in the extras.
}

}  // namespace corro::named
