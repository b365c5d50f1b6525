// Image: a rank's file in memory, as it will be written. Its memory begins at a page, as writing
// past the page cache needs it, and is used again for the next checkpoint: only the first one has
// to wait for the kernel to clear it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "io/memory.h"

namespace corro::checkpoint {

/// Externally synchronized.
class Image {
 public:
  /// Makes room for so many bytes; they hold anything. RESOURCE_EXHAUSTED if there is no memory.
  [[nodiscard]] Status resize(uint64_t bytes);
  /// Valid until resize().
  [[nodiscard]] std::span<std::byte> bytes() const { return {memory_.data(), size_}; }

 private:
  io::Mapping memory_;
  uint64_t size_ = 0;
};

}  // namespace corro::checkpoint
