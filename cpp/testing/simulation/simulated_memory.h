// The buffers of one rank in a simulation, as one address space.
#pragma once

#include <cstdint>

#include "collective/schedule/patterns.h"
#include "collective/schedule/schedule.h"

namespace corro::collective {

/// Elements of a rank's buffers, as corro_op defines them.
struct BufferSizes {
  uint64_t input = 0;
  uint64_t output = 0;
};
[[nodiscard]] BufferSizes buffer_sizes(const Problem& problem);

/// Where the buffers lie: apart, or over each other as Problem::in_place says.
class SimulatedMemory {
 public:
  SimulatedMemory(const Problem& problem, const Schedule& schedule);

  [[nodiscard]] uint64_t size() const { return stage_base_ + stage_size_; }
  [[nodiscard]] bool contains(const Block& block) const;
  /// In a stage: the same place in each rank's.
  [[nodiscard]] Range addresses(const Block& block) const {
    return {base(block.buffer) + block.offset, block.count};
  }

 private:
  [[nodiscard]] uint64_t base(Buffer buffer) const;

  BufferSizes sizes_;
  uint64_t input_base_ = 0;
  uint64_t output_base_ = 0;
  uint64_t scratch_base_ = 0;
  uint64_t scratch_size_ = 0;
  uint64_t stage_base_ = 0;
  uint64_t stage_size_ = 0;
};

}  // namespace corro::collective
