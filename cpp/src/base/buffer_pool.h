// BufferPool: memory that is used again and again. A large block that comes from the system and
// goes back to it costs a page fault for every 4 KiB each time, more than the data in it.
//
//   BufferPool pool(16U << 20U);
//   BufferPool::Buffer buffer = pool.take(1U << 20U);
//   pool.give(std::move(buffer));
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <utility>

namespace corro {

/// Externally synchronized.
class BufferPool {
 public:
  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    size_t capacity = 0;
    [[nodiscard]] std::byte* data() const { return bytes.get(); }
  };

  /// Keeps at most `most_kept` bytes that nobody uses.
  explicit BufferPool(size_t most_kept) : most_kept_(most_kept) {}

  /// A buffer of at least `size` bytes with anything in it; without memory for size 0.
  [[nodiscard]] Buffer take(size_t size);
  /// Keeps it for the next one, in the place of the oldest if need be.
  void give(Buffer buffer);
  [[nodiscard]] size_t kept() const { return kept_; }

 private:
  size_t most_kept_;
  size_t kept_ = 0;
  std::deque<Buffer> spare_;  ///< The oldest first.
};

}  // namespace corro
