#include "runtime/named_staging.h"

#include <algorithm>
#include <bit>

namespace corro::runtime {
namespace {

constexpr uint64_t kLeastBytes = uint64_t{64} << 10U;  // Steps that differ a little share buffers.

}  // namespace

NamedStaging::~NamedStaging() {
  for (const Buffer& buffer : all_) segment_->free(buffer.data);
}

Result<NamedStaging::Buffer> NamedStaging::take(uint64_t bytes) {
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

}  // namespace corro::runtime
