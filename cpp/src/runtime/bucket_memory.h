// BucketMemory: where the gradients of one bucket lie, and where they are reduced.
//
//   CORRO_ASSIGN(auto memory, BucketMemory::create(parts, segment));
//   memory->gather();  ... an allreduce of memory->bytes() ...  memory->scatter();
//
// Parts that follow each other without a gap are reduced where they are. Else they are gathered in
// memory of the arena.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "collective/board/segment.h"

namespace corro::runtime {

/// One gradient of this rank; its memory is borrowed.
struct BucketPart {
  std::string name;
  uint32_t bucket = 0;
  DType dtype = DType::kF32;
  std::byte* data = nullptr;
  uint64_t count = 0;  ///< Elements.

  [[nodiscard]] size_t bytes() const { return count * size_of(dtype); }
};

/// Loop-confined. The segment outlives it.
class BucketMemory final {
 public:
  /// The parts are of one dtype.
  [[nodiscard]] static Result<std::unique_ptr<BucketMemory>> create(std::vector<BucketPart> parts,
                                                                    collective::Segment& segment);
  BucketMemory(const BucketMemory&) = delete;
  BucketMemory& operator=(const BucketMemory&) = delete;
  ~BucketMemory();

  /// What is reduced.
  [[nodiscard]] std::span<std::byte> bytes() const { return {reduced_, count_ * size_of(dtype())}; }
  [[nodiscard]] uint64_t count() const { return count_; }
  [[nodiscard]] DType dtype() const { return parts_.front().dtype; }
  [[nodiscard]] const std::vector<BucketPart>& parts() const { return parts_; }

  /// Brings the parts to where they are reduced, and back. In place neither does anything.
  void gather();
  void scatter();

 private:
  BucketMemory(std::vector<BucketPart> parts, collective::Segment& segment);

  const std::vector<BucketPart> parts_;
  collective::Segment& segment_;
  uint64_t count_ = 0;
  std::byte* reduced_ = nullptr;
  bool in_place_ = true;
};

}  // namespace corro::runtime
