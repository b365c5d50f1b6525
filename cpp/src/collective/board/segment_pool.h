// SegmentPool: buffers in the segment that operations run in, kept for the next ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "collective/board/segment.h"

namespace corro::collective {

/// Loop-confined. The segment outlives it.
class SegmentPool {
 public:
  struct Buffer {
    std::byte* data = nullptr;
    uint64_t capacity = 0;
  };

  explicit SegmentPool(Segment& segment) : segment_(&segment) {}
  SegmentPool(const SegmentPool&) = delete;
  SegmentPool& operator=(const SegmentPool&) = delete;
  ~SegmentPool();

  /// A buffer of at least `bytes` that nobody uses; its content is arbitrary. Allocates only where
  /// none of the kept ones fits.
  Result<Buffer> take(uint64_t bytes);
  /// Keeps a buffer for later. One that peers may still write to is not given back: it lives as
  /// long as this.
  void give_back(Buffer buffer) { free_.push_back(buffer); }

 private:
  Segment* segment_;
  std::vector<Buffer> all_, free_;
};

}  // namespace corro::collective
