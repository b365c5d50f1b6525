#include "testing/simulation/simulated_memory.h"

#include <algorithm>

namespace corro::collective {

BufferSizes buffer_sizes(const Problem& problem) {
  const Layout layout(problem.counts, problem.count, problem.size);
  const bool at_root = problem.rank == problem.root;
  const uint64_t own = layout.count(problem.rank);
  switch (problem.kind) {
    case OpKind::kAllreduce: {
      const bool contributes = problem.rank < problem.size - problem.aggregators;
      return contributes ? BufferSizes{problem.count, problem.count} : BufferSizes{};
    }
    case OpKind::kAllgather:
      return {own, layout.total()};
    case OpKind::kReducescatter:
      return {layout.total(), own};
    case OpKind::kAlltoall:
      return {Layout(problem.send_counts, problem.count, problem.size).total(), layout.total()};
    case OpKind::kBroadcast:
      return {at_root ? problem.count : 0, problem.count};
    case OpKind::kReduce:
      return {problem.count, at_root ? problem.count : 0};
    case OpKind::kGather:
      return {own, at_root ? layout.total() : 0};
    case OpKind::kScatter:
      return {at_root ? layout.total() : 0, own};
    case OpKind::kBarrier:
      return {};
    case OpKind::kSend:
      return {problem.count, 0};
    case OpKind::kRecv:
      return {0, problem.count};
  }
  return {};
}

SimulatedMemory::SimulatedMemory(const Problem& problem, const Schedule& schedule)
    : sizes_(buffer_sizes(problem)),
      scratch_size_(schedule.scratch_count),
      stage_size_(schedule.stage_count) {
  const uint64_t own_offset =
      Layout(problem.counts, problem.count, problem.size).offset(problem.rank);
  const bool at_root = problem.rank == problem.root;
  const OpKind kind = problem.kind;
  if (!problem.in_place) {
    output_base_ = sizes_.input;
  } else if (kind == OpKind::kAllgather || (kind == OpKind::kGather && at_root)) {
    input_base_ = own_offset;
  } else if (kind == OpKind::kScatter && at_root) {
    output_base_ = own_offset;
  }
  scratch_base_ = std::max(input_base_ + sizes_.input, output_base_ + sizes_.output);
  stage_base_ = scratch_base_ + scratch_size_;
}

uint64_t SimulatedMemory::base(Buffer buffer) const {
  switch (buffer) {
    case Buffer::kInput:
      return input_base_;
    case Buffer::kOutput:
      return output_base_;
    case Buffer::kScratch:
      return scratch_base_;
    case Buffer::kStage:
      return stage_base_;
  }
  return 0;
}

bool SimulatedMemory::contains(const Block& block) const {
  const uint64_t size = block.buffer == Buffer::kInput    ? sizes_.input
                        : block.buffer == Buffer::kOutput ? sizes_.output
                        : block.buffer == Buffer::kStage  ? stage_size_
                                                          : scratch_size_;
  return block.count == 0 || (block.offset <= size && block.count <= size - block.offset);
}

}  // namespace corro::collective
