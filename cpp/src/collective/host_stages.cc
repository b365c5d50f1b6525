#include "collective/host_stages.h"

namespace corro::collective {

Result<bool> HostStages::find(int32_t place, uint64_t offset, uint64_t bytes) {
  CORRO_ASSIGN(std::byte * memory, board_.memory_of(place, offset, sizeof(StageHead) + bytes));
  heads_[static_cast<size_t>(place)] = reinterpret_cast<StageHead*>(memory);
  return memory != nullptr && offset % alignof(StageHead) == 0;
}

bool HostStages::mark(Mark mark, uint32_t strands) {
  uint32_t& told = told_[static_cast<size_t>(mark)];
  if (told + 1 == strands) {
    told = strands;
    auto& head = *heads_[static_cast<size_t>(board_.rank())];
    board_.publish(head.marks[static_cast<size_t>(mark)].strands, strands);
  }
  return told >= strands;
}

}  // namespace corro::collective
