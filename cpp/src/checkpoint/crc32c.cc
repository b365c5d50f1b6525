#include "checkpoint/crc32c.h"

#include <array>

namespace corro::checkpoint {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

/// tables[k][b]: what the byte b does to the checksum when k more bytes follow. So eight bytes are
/// folded by eight look-ups that do not wait for each other.
constexpr Tables make_tables() {
  constexpr uint32_t kPolynomial = 0x82F63B78;  // bits reversed
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? kPolynomial : 0);
    tables[0][byte] = sum;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8U) ^ tables[0][before & 0xFFU];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  static const Crc32c kFastest = fastest_crc32c();
  return kFastest(bytes);
}

uint32_t crc32c_by_tables(std::span<const std::byte> bytes) {
  uint32_t sum = ~0U;
  while (bytes.size() >= 8) {
    uint32_t next = 0;
    for (size_t i = 0; i < 8; ++i) {
      const auto byte = std::to_integer<uint32_t>(bytes[i]);
      const uint32_t folded = i < 4 ? byte ^ (sum >> (8 * i) & 0xFFU) : byte;
      next ^= kTables[7 - i][folded];
    }
    sum = next;
    bytes = bytes.subspan(8);
  }
  for (const std::byte byte : bytes)
    sum = (sum >> 8U) ^ kTables[0][(sum ^ std::to_integer<uint32_t>(byte)) & 0xFFU];
  return ~sum;
}

}  // namespace corro::checkpoint
