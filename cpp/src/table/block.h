// Block: a piece of memory from the system, in huge pages if it is large.
#pragma once

#include <cstddef>

namespace corro::table {

inline constexpr size_t kHugePage = size_t{2} << 20U;

/// Owns memory that is all zeros at first, aligned to a cache line, or to a huge page from
/// `kHugePage` bytes on. Throws std::bad_alloc without memory. Immutable but for what is written
/// into it.
class Block {
 public:
  Block() = default;
  explicit Block(size_t bytes);
  ~Block();
  Block(Block&& other) noexcept;
  Block& operator=(Block&& other) noexcept;

  /// What a block of so many bytes really has.
  [[nodiscard]] static size_t size_of(size_t bytes);

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return size_; }

 private:
  void release();

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace corro::table
