#include "base/buffer_pool.h"

#include <algorithm>

namespace corro {
namespace {

constexpr size_t kSmall = size_t{16} << 10U;  // Below, malloc keeps the memory by itself.
constexpr size_t kMostWaste = 4;              // A buffer may be so many times larger than needed.

}  // namespace

BufferPool::Buffer BufferPool::take(size_t size) {
  if (size == 0) return {};
  const auto fits = [size](const Buffer& buffer) {
    return buffer.capacity >= size && buffer.capacity / kMostWaste <= size;
  };
  // The one given last is the likeliest to be in the cache.
  const auto found = std::find_if(spare_.rbegin(), spare_.rend(), fits);
  if (found == spare_.rend()) return {std::make_unique_for_overwrite<std::byte[]>(size), size};
  Buffer buffer = std::move(*found);
  spare_.erase(std::next(found).base());
  kept_ -= buffer.capacity;
  return buffer;
}

void BufferPool::give(Buffer buffer) {
  if (buffer.capacity < kSmall || buffer.capacity > most_kept_) return;
  kept_ += buffer.capacity;
  spare_.push_back(std::move(buffer));
  while (kept_ > most_kept_) {
    kept_ -= spare_.front().capacity;
    spare_.pop_front();
  }
}

}  // namespace corro
