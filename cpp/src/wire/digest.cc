#include "wire/digest.h"

#include <sodium.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "io/random.h"

namespace corro::wire {

Digest digest_of(std::string_view text) {
  std::array<unsigned char, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
  Digest digest;
  std::memcpy(digest.data(), hash.data(), digest.size());
  return digest;
}

Result<Digest> digest_of_file(int fd) {
  constexpr size_t kBlock = size_t{256} << 10U;
  crypto_generichash_state state;
  Digest digest;
  crypto_generichash_init(&state, nullptr, 0, digest.size());
  std::vector<unsigned char> block(kBlock);
  off_t at = 0;
  while (true) {
    const ssize_t count = pread(fd, block.data(), block.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return status_from_errno("read", errno);
    if (count == 0) break;
    crypto_generichash_update(&state, block.data(), static_cast<size_t>(count));
    at += count;
  }
  crypto_generichash_final(&state, reinterpret_cast<unsigned char*>(digest.data()), digest.size());
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
