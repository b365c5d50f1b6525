#include "runtime/bucket_memory.h"

#include <utility>

#include "device/reduce.h"

namespace corro::runtime {

DType travels_as(DType dtype, std::optional<DType> wire) {
  const bool floats = dtype >= DType::kF16;
  return wire && floats && size_of(*wire) < size_of(dtype) ? *wire : dtype;
}

BucketMemory::BucketMemory(std::vector<BucketPart> parts, DType dtype, collective::Segment& segment)
    : parts_(std::move(parts)),
      dtype_(dtype),
      segment_(segment),
      reduced_(parts_.front().data),
      in_place_(dtype == parts_.front().dtype) {
  const std::byte* next = reduced_;
  for (const BucketPart& part : parts_) {
    in_place_ = in_place_ && part.data == next;
    next += part.bytes();
    count_ += part.count;
  }
}

Result<std::unique_ptr<BucketMemory>> BucketMemory::create(std::vector<BucketPart> parts,
                                                           std::optional<DType> wire,
                                                           collective::Segment& segment) {
  const DType dtype = travels_as(parts.front().dtype, wire);
  std::unique_ptr<BucketMemory> memory(new BucketMemory(std::move(parts), dtype, segment));
  if (memory->in_place_) return memory;
  memory->reduced_ = nullptr;
  if (memory->count_ == 0) return memory;
  CORRO_ASSIGN(memory->reduced_, segment.allocate(memory->count_ * size_of(dtype)));
  return memory;
}

BucketMemory::~BucketMemory() {
  if (!in_place_ && reduced_ != nullptr) segment_.free(reduced_);
}

void BucketMemory::gather() {
  std::byte* next = reduced_;
  for (size_t i = 0; !in_place_ && i < parts_.size(); ++i) {
    const BucketPart& part = parts_[i];
    device::cast(part.dtype, part.data, dtype_, next, part.count);
    next += part.count * size_of(dtype_);
  }
}

void BucketMemory::scatter() {
  const std::byte* next = reduced_;
  for (size_t i = 0; !in_place_ && i < parts_.size(); ++i) {
    const BucketPart& part = parts_[i];
    device::cast(dtype_, next, part.dtype, part.data, part.count);
    next += part.count * size_of(dtype_);
  }
}

}  // namespace corro::runtime
