#include "obs/links.h"

#include "obs/flight_layout.h"

namespace corro::obs {

Link Links::open(int32_t peer) const {
  if (cells_ == nullptr) return {};
  const int64_t own = int64_t{peer} + 1;
  for (LinkCell& cell : cells_->cells) {
    const bool is_last = &cell == &cells_->cells.back();
    const int64_t there = cell.peer.load(std::memory_order_relaxed);
    if (there == 0 || is_last)
      cell.peer.store(is_last ? kOthersCell : own, std::memory_order_release);
    if (there == 0 || there == own || is_last)
      return Link(std::shared_ptr<std::atomic<uint64_t>>(cells_, &cell.sent));
  }
  return {};
}

}  // namespace corro::obs
