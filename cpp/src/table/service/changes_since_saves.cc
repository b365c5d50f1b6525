#include "table/service/changes_since_saves.h"

#include <algorithm>
#include <utility>

namespace corro::table {
namespace {

/// The one that goes on, and those from the last snapshots on, of which the newest may have failed.
constexpr size_t kMostStretches = 3;

}  // namespace

std::shared_ptr<const ChangedKeys> ChangesSinceSaves::begin_save(uint64_t step, uint64_t rows,
                                                                 std::optional<uint64_t> base) {
  const auto first = base ? std::ranges::find(stretches_, *base, &Stretch::from) : stretches_.end();
  std::shared_ptr<ChangedKeys> changed;
  if (first != stretches_.end()) {
    changed = std::make_shared<ChangedKeys>(first->changed);
    for (auto next = std::next(first); next != stretches_.end(); ++next)
      changed->add(next->changed);
    stretches_.erase(stretches_.begin(), first);
  }
  if (!stretches_.empty() && stretches_.back().from == step) return changed;  // Tried once more.
  stretches_.push_back({step, changed ? changed->emptied() : ChangedKeys::for_rows(rows)});
  if (stretches_.size() > kMostStretches) stretches_.pop_front();
  return changed;
}

}  // namespace corro::table
