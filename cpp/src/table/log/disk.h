// Disk: what a log does to the file that it lies in. Tests put a failing one in its place.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
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

  /// Called for each of the reads, in the order in which they end, while others go on: it is filled,
  /// or DATA_LOSS. It reads nothing.
  using Done = std::function<void(const Read& read, const Status& status)>;
  virtual void read(std::span<const Read> reads, const Done& done) = 0;
  /// The first failure of one.
  [[nodiscard]] Status read_all(std::span<const Read> reads);
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
