// Codec: a smaller form in which contributions to an allreduce travel. It belongs to the request,
// and every fabric sees it.
//
//   request.codec = cast_codec(DType::kBF16);
//
// Either the small form is folded as it is, as numbers of a smaller dtype are; or it cannot be, as
// with the largest elements alone: then every rank gathers all small forms, and folds what they
// decode to, in the order of ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/dtype.h"
#include "base/status.h"

namespace corro::collective {

/// Implementations are thread-safe: the engine's thread calls them, for several groups.
class Codec {
 public:
  Codec() = default;
  virtual ~Codec() = default;
  Codec(const Codec&) = delete;
  Codec& operator=(const Codec&) = delete;

  /// What ranks compare: 1 to 32 bytes.
  [[nodiscard]] virtual std::string_view name() const = 0;
  /// False for dtypes whose elements travel as they are.
  [[nodiscard]] virtual bool applies_to(DType dtype) const = 0;
  /// The dtype as whose elements the small form, one for each element, is folded; none: it is not.
  [[nodiscard]] virtual std::optional<DType> folds_as() const = 0;
  /// Bytes of the small form of `count` elements, the same on every rank.
  [[nodiscard]] virtual uint64_t encoded_bytes(DType dtype, uint64_t count) const = 0;
  /// Writes encoded_bytes() bytes; a failure ends the operation on every rank.
  [[nodiscard]] virtual Status encode(DType dtype, const std::byte* from, uint64_t count,
                                      std::byte* into) const = 0;
  /// Writes `count` elements. `from` may be another rank's.
  [[nodiscard]] virtual Status decode(DType dtype, const std::byte* from, uint64_t count,
                                      std::byte* into) const = 0;
};

inline constexpr size_t kMostCodecName = 32;

/// Casts larger floating-point numbers to `into`, which is f16, bf16 or f32; named as the dtype.
[[nodiscard]] std::shared_ptr<const Codec> cast_codec(DType into);
/// The codec of this library with this name, or null.
[[nodiscard]] std::shared_ptr<const Codec> codec_named(std::string_view name);

}  // namespace corro::collective
