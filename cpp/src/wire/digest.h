// Short names for long things: digests and hexadecimal digits.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"

namespace corro::wire {

using Digest = std::array<std::byte, 16>;

/// Returns the first half of the text's SHA-256.
[[nodiscard]] Digest digest_of(std::string_view text);

/// Returns BLAKE2b, in 16 bytes, of what a file holds; reads it from its beginning. Blocks.
[[nodiscard]] Result<Digest> digest_of_file(int fd);

/// Returns two lower-case digits a byte.
[[nodiscard]] std::string to_hex(BytesView bytes);

/// Returns the digits of `bytes` random bytes, for names that nobody guesses.
[[nodiscard]] std::string random_hex(size_t bytes);

}  // namespace corro::wire
