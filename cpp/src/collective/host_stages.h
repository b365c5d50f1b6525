// HostStages: memory that the ranks of a host share while an operation runs: a stage a rank, and
// marks that say how far the rank is. Each rank writes its own stage and marks alone.
//
// A rank borrows an area for an operation (board/stage_pool.h), sets all marks to zero, and says in
// its line where the area is; so nobody can take an old mark for a new one. The area is used again
// once every rank of the host has ended that operation. After an error, too: what a late rank reads
// of an area is what was written for that operation, or the marks keep it waiting until it hears of
// the error.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "collective/board/board.h"
#include "collective/schedule/schedule.h"

namespace corro::collective {

/// The start of an area; the stage follows.
struct StageHead {
  struct alignas(64) Count {
    std::atomic<uint64_t> strands;
  };
  Count marks[kMarkCount];
};
static_assert(sizeof(StageHead) == 192);

/// The stages of one operation, of the ranks of one host. Loop-confined; board and topology are
/// borrowed.
class HostStages {
 public:
  /// `board`: of the ranks of this host, ascending.
  HostStages(Board& board, const Topology& topology)
      : board_(board), topology_(topology), heads_(static_cast<size_t>(board.size())) {}

  /// Where the stage of the rank at this place of the host is: in its segment at `offset`; false if
  /// `bytes` there are not in its memory. Fails where they cannot be mapped. First, for every
  /// place.
  [[nodiscard]] Result<bool> find(int32_t place, uint64_t offset, uint64_t bytes);

  /// Of a group rank on this host.
  [[nodiscard]] std::byte* stage_of(int32_t rank) const {
    return reinterpret_cast<std::byte*>(&head_of(rank) + 1);
  }
  [[nodiscard]] bool has_marked(int32_t rank, Mark mark, uint32_t strands) const {
    const auto& marks = head_of(rank).marks;
    return marks[static_cast<size_t>(mark)].strands.load(std::memory_order_seq_cst) >= strands;
  }
  /// Says that `strands` strands are so far; false while fewer than those before them have been
  /// told of.
  bool mark(Mark mark, uint32_t strands);

 private:
  [[nodiscard]] StageHead& head_of(int32_t rank) const {
    return *heads_[static_cast<size_t>(topology_.place_of(rank))];
  }

  Board& board_;
  const Topology& topology_;
  std::vector<StageHead*> heads_;  ///< By place.
  std::array<uint32_t, kMarkCount> told_{};
};

}  // namespace corro::collective
