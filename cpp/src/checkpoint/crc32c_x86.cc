// With the instruction of SSE4.2. Compiled for it: nothing here may run before the processor was
// asked.
#include <nmmintrin.h>

#include <cstring>

#include "checkpoint/crc32c.h"

namespace corro::checkpoint {
namespace {

uint32_t crc32c_by_instruction(std::span<const std::byte> bytes) {
  uint64_t sum = ~0U;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    sum = _mm_crc32_u64(sum, word);
  }
  auto rest = static_cast<uint32_t>(sum);
  for (; left > 0; --left, ++at) rest = _mm_crc32_u8(rest, std::to_integer<uint8_t>(*at));
  return ~rest;
}

}  // namespace

Crc32c fastest_crc32c() {
  return __builtin_cpu_supports("sse4.2") != 0 ? crc32c_by_instruction : crc32c_by_tables;
}

}  // namespace corro::checkpoint
