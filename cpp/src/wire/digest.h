// Short names for long things: digests and hexadecimal digits.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace corro::wire {

using Digest = std::array<std::byte, 16>;

/// Returns the first half of the text's SHA-256.
[[nodiscard]] Digest digest_of(std::string_view text);

/// BLAKE2b, in 16 bytes, of bytes that come one piece after the other. Value.
class ContentDigest {
 public:
  ContentDigest();
  void add(BytesView bytes);
  /// Returns the digest of all that was added; to be called once, at the end.
  [[nodiscard]] Digest finish();

 private:
  alignas(64) std::array<std::byte, 384> state_;  ///< libsodium's.
};

/// Returns two lower-case digits a byte.
[[nodiscard]] std::string to_hex(BytesView bytes);

/// Returns the digits of `bytes` random bytes, for names that nobody guesses.
[[nodiscard]] std::string random_hex(size_t bytes);

}  // namespace corro::wire
