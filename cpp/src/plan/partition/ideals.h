// The ideals of a graph: the sets of nodes that hold every predecessor of their members. A pipeline
// of contiguous stages is a chain of ideals, and each stage is what one ideal has beyond another.
//
//   CORRO_ASSIGN(const Ideals ideals, Ideals::create(predecessors));
//   ideals.visit_below(ideals.full(), enter, leave);   // every ideal that is part of the full one
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace corro::plan {

using IdealId = uint32_t;

/// Immutable. Ideals are numbered by their size: a part has a smaller number than the whole, the
/// empty ideal is 0.
class Ideals {
 public:
  /// Removing `node` leaves `below`.
  struct Link {
    uint32_t node;
    IdealId below;
  };

  /// `predecessors[v]` are smaller than v: the nodes stand in topological order. RESOURCE_EXHAUSTED
  /// if there are too many ideals to keep.
  static Result<Ideals> create(const std::vector<std::vector<uint32_t>>& predecessors);

  [[nodiscard]] IdealId count() const { return static_cast<IdealId>(begin_.size() - 1); }
  [[nodiscard]] IdealId full() const { return count() - 1; }
  /// The ideals with one node less, largest node first.
  [[nodiscard]] std::span<const Link> links(IdealId ideal) const {
    return {links_.data() + begin_[ideal], links_.data() + begin_[ideal + 1]};
  }

  [[nodiscard]] bool holds(IdealId ideal, uint32_t node) const {
    return (bits_[ideal * words_ + node / 64] >> (node % 64) & 1U) != 0;
  }

  /// Visits each ideal that is a proper part of `ideal` exactly once: nodes are removed one by one,
  /// largest first, which every part allows and only in one order. enter(node, part) is called when
  /// `node` was removed and `part` is left, and returns whether parts of that part are wanted;
  /// leave(node) is called when `node` is put back.
  template <typename Enter, typename Leave>
  void visit_below(IdealId ideal, Enter&& enter, Leave&& leave) const {
    struct Level {
      const Link* next;
      const Link* end;
      uint32_t removed;
    };
    std::vector<Level> levels;
    const auto open = [&](IdealId part, uint32_t removed) {
      const auto all = links(part);
      const Link* next = all.data();
      const Link* end = next + all.size();
      while (next != end && next->node >= removed) ++next;
      levels.push_back({next, end, removed});
    };
    open(ideal, UINT32_MAX);
    while (!levels.empty()) {
      Level& level = levels.back();
      if (level.next == level.end) {
        const uint32_t removed = level.removed;
        levels.pop_back();
        if (!levels.empty()) leave(removed);
        continue;
      }
      const Link link = *level.next++;
      if (enter(link.node, link.below)) {
        open(link.below, link.node);
      } else {
        leave(link.node);
      }
    }
  }

 private:
  size_t words_ = 0;  ///< Of one ideal in `bits_`.
  std::vector<uint64_t> bits_;
  std::vector<size_t> begin_;  ///< Of each ideal's links, and the end of the last one's.
  std::vector<Link> links_;
};

}  // namespace corro::plan
