// CRC-32C (Castagnoli), as iSCSI and file systems use it: RFC 3720, appendix B.4. It finds every
// error of up to 32 bits in a row, and all others but one in four billion.
//
//   const uint32_t sum = crc32c(std::as_bytes(std::span("123456789", 9)));  // 0xE3069283
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace corro::checkpoint {

/// Returns the checksum of the bytes, about 8 bytes a nanosecond with the processor's instruction.
/// Thread-safe.
[[nodiscard]] uint32_t crc32c(std::span<const std::byte> bytes);

/// The same by tables, on any processor: about 1 byte a nanosecond. Thread-safe.
[[nodiscard]] uint32_t crc32c_by_tables(std::span<const std::byte> bytes);

using Crc32c = uint32_t (*)(std::span<const std::byte> bytes);
/// The fastest way on this processor, found out at run time. Each kind of processor has a file.
[[nodiscard]] Crc32c fastest_crc32c();

}  // namespace corro::checkpoint
