#include "collective/board/segment_pool.h"

#include <algorithm>
#include <bit>

namespace corro::collective {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{64} << 10U;  // Steps that differ a little share buffers.

}  // namespace

SegmentPool::~SegmentPool() {
  for (const Buffer& buffer : all_) segment_->free(buffer.data);
}

Result<SegmentPool::Buffer> SegmentPool::take(uint64_t bytes) {
  const auto fits = [bytes](const Buffer& buffer) { return buffer.capacity >= bytes; };
  if (const auto found = std::find_if(free_.begin(), free_.end(), fits); found != free_.end()) {
    const Buffer buffer = *found;
    free_.erase(found);
    return buffer;
  }
  const uint64_t capacity = std::bit_ceil(std::max(bytes, kLeastBytes));
  CORRO_ASSIGN(std::byte * data, segment_->allocate(capacity));
  all_.push_back({data, capacity});
  return all_.back();
}

}  // namespace corro::collective
