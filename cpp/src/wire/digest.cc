#include "wire/digest.h"

#include <sodium.h>

#include <cstring>
#include <new>
#include <type_traits>

#include "io/random.h"

namespace corro::wire {
namespace {

template <size_t N>
crypto_generichash_state* state_of(std::array<std::byte, N>& bytes) {
  static_assert(sizeof(crypto_generichash_state) <= N);
  static_assert(alignof(crypto_generichash_state) <= 64);
  static_assert(std::is_trivially_copyable_v<crypto_generichash_state>);
  return std::launder(reinterpret_cast<crypto_generichash_state*>(bytes.data()));
}

}  // namespace

Digest digest_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  Digest digest;
  std::memcpy(digest.data(), hash.data(), digest.size());
  return digest;
}

ContentDigest::ContentDigest() {
  auto* state = new (state_.data()) crypto_generichash_state;
  crypto_generichash_init(state, nullptr, 0, sizeof(Digest));
}

void ContentDigest::add(BytesView bytes) {
  crypto_generichash_update(state_of(state_), reinterpret_cast<const unsigned char*>(bytes.data()),
                            bytes.size());
}

Digest ContentDigest::finish() {
  Digest digest;
  crypto_generichash_final(state_of(state_), reinterpret_cast<unsigned char*>(digest.data()),
                           digest.size());
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
