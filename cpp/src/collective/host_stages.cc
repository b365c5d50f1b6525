#include "collective/host_stages.h"

#include <algorithm>

namespace corro::collective {
namespace {

constexpr uint64_t kAreaUnit = 4096;

}  // namespace

Result<StageAreas::Area*> StageAreas::take(uint64_t op, uint64_t bytes) {
  const auto fits = [&](const auto& area) { return area->bytes >= bytes && unused(*area); };
  auto found = std::find_if(areas_.begin(), areas_.end(), fits);
  if (found == areas_.end()) {
    if (is_large(bytes) && !free_large()) return nullptr;
    Segment& segment = *board_.member(board_.rank()).segment;
    const uint64_t size = (bytes + kAreaUnit - 1) / kAreaUnit * kAreaUnit;
    CORRO_ASSIGN(std::byte * memory, segment.allocate(size));
    const uint64_t place = *segment.offset_of(memory, size);
    found =
        areas_.insert(areas_.end(), std::make_unique<Area>(Area{memory, place, size, op, true}));
  }
  Area& area = **found;
  area.op = op;
  area.in_use = true;
  auto& head = *reinterpret_cast<StageHead*>(area.memory);
  for (auto& mark : head.marks) mark.strands.store(0, std::memory_order_relaxed);
  return &area;
}

/// Makes room for a larger one; false while the large one may still be looked at.
bool StageAreas::free_large() {
  const auto large = std::find_if(areas_.begin(), areas_.end(),
                                  [](const auto& area) { return is_large(area->bytes); });
  if (large == areas_.end()) return true;
  if (!unused(**large)) return false;
  board_.member(board_.rank()).segment->free((*large)->memory);
  areas_.erase(large);
  return true;
}

void StageAreas::free_all() {
  for (const auto& area : areas_) board_.member(board_.rank()).segment->free(area->memory);
  areas_.clear();
}

bool HostStages::find(int32_t place, uint64_t offset, uint64_t bytes) {
  std::byte* memory = board_.member(place).segment->at(offset, sizeof(StageHead) + bytes);
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
