// With the instruction of ARMv8's CRC extension. Compiled for it: nothing here may run before the
// processor was asked.
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>

#include <cstring>

#include "checkpoint/crc32c.h"

namespace corro::checkpoint {
namespace {

uint32_t crc32c_by_instruction(std::span<const std::byte> bytes) {
  uint32_t sum = ~0U;
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    uint64_t word = 0;
    std::memcpy(&word, at, sizeof word);
    sum = __crc32cd(sum, word);
  }
  for (; left > 0; --left, ++at) sum = __crc32cb(sum, std::to_integer<uint8_t>(*at));
  return ~sum;
}

}  // namespace

Crc32c fastest_crc32c() {
  return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0 ? crc32c_by_instruction : crc32c_by_tables;
}

}  // namespace corro::checkpoint
