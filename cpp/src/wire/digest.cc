#include "wire/digest.h"

#include <sodium.h>

#include <cstring>

#include "io/random.h"

namespace corro::wire {

Digest digest_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  Digest digest;
  std::memcpy(digest.data(), hash.data(), digest.size());
  return digest;
}

std::string to_hex(BytesView bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  for (const std::byte byte : bytes) {
    hex += kDigits[std::to_integer<unsigned>(byte) >> 4U];
    hex += kDigits[std::to_integer<unsigned>(byte) & 15U];
  }
  return hex;
}

std::string random_hex(size_t bytes) {
  Bytes random(bytes);
  io::fill_random(random);
  return to_hex(random);
}

}  // namespace corro::wire
