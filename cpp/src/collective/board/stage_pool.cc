#include "collective/board/stage_pool.h"

#include "collective/board/board.h"

namespace corro::collective {
namespace {

constexpr uint64_t kAreaUnit = 4096;

}  // namespace

StagePool::~StagePool() {
  for (const auto& area : areas_) segment_.free(area->memory);
}

bool StagePool::idle(const Area& area) {
  return area.board == nullptr || area.board->completed_by_all(area.op);
}

/// The smallest that fits. A small operation does not take the area that the next large one needs.
StagePool::Area* StagePool::find_idle(uint64_t bytes) const {
  Area* found = nullptr;
  for (const auto& area : areas_) {
    const bool fits = area->bytes >= bytes && is_large(area->bytes) == is_large(bytes);
    if (fits && (found == nullptr || area->bytes < found->bytes) && idle(*area)) found = area.get();
  }
  return found;
}

Result<StagePool::Area*> StagePool::lend(Board& board, uint64_t op, uint64_t bytes) {
  if (is_large(bytes)) {
    const Area* before = large_of(board);
    if (before != nullptr && !idle(*before)) return nullptr;
  }
  Area* area = find_idle(bytes);
  if (area == nullptr) {
    const uint64_t size = (bytes + kAreaUnit - 1) / kAreaUnit * kAreaUnit;
    CORRO_ASSIGN(std::byte * memory, segment_.allocate(size));
    const uint64_t place = *segment_.offset_of(memory, size);
    area = areas_.emplace_back(std::make_unique<Area>(Area{memory, place, size})).get();
  }
  area->board = &board;
  area->op = op;
  free_surplus();
  return area;
}

StagePool::Area* StagePool::large_of(const Board& board) const {
  for (const auto& area : areas_)
    if (area->board == &board && is_large(area->bytes)) return area.get();
  return nullptr;
}

StagePool::Area* StagePool::renew(const Board& board, uint64_t op) {
  Area* area = large_of(board);
  if (area == nullptr) return nullptr;
  area->op = op;
  free_surplus();
  return area;
}

void StagePool::take_back(const Board& board, bool unread) {
  if (!unread) {
    std::erase_if(areas_, [&board](const auto& area) { return area->board == &board; });
    return;
  }
  for (const auto& area : areas_)
    if (area->board == &board) area->board = nullptr;
  free_surplus();
}

void StagePool::free_surplus() {
  uint64_t kept = 0;
  for (const auto& area : areas_) kept += area->bytes;
  std::erase_if(areas_, [&](const auto& area) {
    if (kept <= kMostKeptBytes || !idle(*area)) return false;
    kept -= area->bytes;
    segment_.free(area->memory);
    return true;
  });
}

}  // namespace corro::collective
