#include "runtime/bucket_memory.h"

#include <cstring>
#include <utility>

namespace corro::runtime {

BucketMemory::BucketMemory(std::vector<BucketPart> parts, collective::Segment& segment)
    : parts_(std::move(parts)), segment_(segment), reduced_(parts_.front().data) {
  const std::byte* next = reduced_;
  for (const BucketPart& part : parts_) {
    in_place_ = in_place_ && part.data == next;
    next += part.bytes();
    count_ += part.count;
  }
}

Result<std::unique_ptr<BucketMemory>> BucketMemory::create(std::vector<BucketPart> parts,
                                                           collective::Segment& segment) {
  std::unique_ptr<BucketMemory> memory(new BucketMemory(std::move(parts), segment));
  if (memory->in_place_) return memory;
  memory->reduced_ = nullptr;
  if (memory->count_ == 0) return memory;
  CORRO_ASSIGN(memory->reduced_, segment.allocate(memory->bytes().size()));
  return memory;
}

BucketMemory::~BucketMemory() {
  if (!in_place_ && reduced_ != nullptr) segment_.free(reduced_);
}

void BucketMemory::gather() {
  std::byte* next = reduced_;
  for (size_t i = 0; !in_place_ && i < parts_.size(); ++i) {
    const BucketPart& part = parts_[i];
    if (part.count > 0) std::memcpy(next, part.data, part.bytes());
    next += part.bytes();
  }
}

void BucketMemory::scatter() {
  const std::byte* next = reduced_;
  for (size_t i = 0; !in_place_ && i < parts_.size(); ++i) {
    const BucketPart& part = parts_[i];
    if (part.count > 0) std::memcpy(part.data, next, part.bytes());
    next += part.bytes();
  }
}

}  // namespace corro::runtime
