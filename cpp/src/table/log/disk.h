// Disk: what a log does to the file that it lies in. Tests put a failing one in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace corro::table {

/// Offsets, lengths and memory are aligned to this: so the kernel moves bytes without a copy.
inline constexpr size_t kDiskUnit = 4096;

/// Externally synchronized. Everything blocks. Failures name the folder and the kernel's reason.
class Disk {
 public:
  struct Read {
    uint64_t offset = 0;
    std::span<std::byte> into;
  };

  virtual ~Disk() = default;
  Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;

  /// Fills all of them, many at a time, and waits for each of them also if one fails. DATA_LOSS: the
  /// first that cannot be read.
  [[nodiscard]] virtual Status read(std::span<const Read> reads) = 0;
  /// RESOURCE_EXHAUSTED: it cannot be written.
  [[nodiscard]] virtual Status write(uint64_t offset, std::span<const std::byte> from) = 0;
  /// Sees to it that writes to this range find room. RESOURCE_EXHAUSTED: the disk is full.
  [[nodiscard]] virtual Status reserve(uint64_t offset, uint64_t bytes) = 0;
  /// Gives the range's room back; what was in it is lost.
  virtual void release(uint64_t offset, uint64_t bytes) = 0;
};

/// A file without a name in `folder`, which is made, for this user alone, if it is not there: the
/// file is gone with the process, however it ends. FAILED_PRECONDITION or RESOURCE_EXHAUSTED if the
/// folder cannot be used.
[[nodiscard]] Result<std::unique_ptr<Disk>> open_disk(const std::string& folder);

}  // namespace corro::table
