// HostStages: memory that the ranks of a host share while an operation runs: a stage a rank, and
// marks that say how far the rank is. Each rank writes its own stage and marks alone.
//
// A rank takes an area of its segment for an operation, with all marks at zero, and says in its
// line where it is; so nobody can take an old mark for a new one. The area is used again, or freed,
// once every rank of the host has ended that operation: then nobody can look at it any more. After
// an error, too: what a late rank reads of an area is what was written for that operation, or the
// marks keep it waiting until it hears of the error.
#pragma once

#include <array>
#include <atomic>
#include <memory>
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

inline constexpr uint64_t kSmallAreaBytes = uint64_t{64} << 10U;

/// The areas of one lane on this rank. Loop-confined; the board outlives it.
class StageAreas {
 public:
  struct Area {
    std::byte* memory = nullptr;
    uint64_t place = 0;  ///< In the own segment.
    uint64_t bytes = 0;
    uint64_t op = 0;  ///< That uses it, or has used it last.
    bool in_use = false;
  };
  explicit StageAreas(Board& board) : board_(board) {}

  /// A lane has one large area, and as many small ones as it has operations in flight.
  [[nodiscard]] static bool is_large(uint64_t bytes) { return bytes > kSmallAreaBytes; }
  /// An area of at least `bytes` (head and stage) with its marks at zero. Fails where memory is
  /// short. Large ones are for the oldest operation only; null while the ranks of this host have
  /// not all ended the one before: then Board::holds_back() says who.
  [[nodiscard]] Result<Area*> take(uint64_t op, uint64_t bytes);
  /// The operation is over here.
  static void give_back(Area& area) { area.in_use = false; }
  /// Frees all; only once no other rank can look at them.
  void free_all();

 private:
  [[nodiscard]] bool unused(const Area& area) const {
    return !area.in_use && board_.completed_by_all(area.op);
  }
  bool free_large();

  Board& board_;
  std::vector<std::unique_ptr<Area>> areas_;
};

/// The stages of one operation, of the ranks of one host. Loop-confined; board and topology are
/// borrowed.
class HostStages {
 public:
  /// `board`: of the ranks of this host, ascending.
  HostStages(Board& board, const Topology& topology)
      : board_(board), topology_(topology), heads_(static_cast<size_t>(board.size())) {}

  /// Where the stage of the rank at this place of the host is: in its segment at `offset`; false if
  /// `bytes` there are not in its memory. First, for every place.
  [[nodiscard]] bool find(int32_t place, uint64_t offset, uint64_t bytes);

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
