// StagePool: memory in which the operations of a rank stage private data for other ranks, lent by
// the rank's lanes to each other.
//
//   CORRO_ASSIGN(StagePool::Area* area, pool.lend(board, op, bytes));
//
// Only this rank writes an area. Members of the lane read it, and late ones go on reading after
// this rank has ended the operation. So an area stays with its lane until every member has ended
// the operation; from then on any lane may have it. After an error a member may never say so: then
// the area stays until no member can look at the lane's section any more.
//
// A lane must not wait for another one's area: two ranks whose lanes wait for each other crosswise
// would never go on. So there are as many areas as lanes need at once, and the pool frees those too
// many as soon as it can.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"

namespace corro::collective {

class Board;
class Segment;

/// Areas above this are large: a lane has one of them, for its oldest operation.
inline constexpr uint64_t kSmallAreaBytes = uint64_t{64} << 10U;

/// Of one engine. Loop-confined; the segment outlives it, and it outlives the boards.
class StagePool {
 public:
  /// Idle areas are freed while all areas together have more than this.
  static constexpr uint64_t kMostKeptBytes = uint64_t{2} << 20U;

  struct Area {
    std::byte* memory = nullptr;
    uint64_t place = 0;  ///< In the own segment.
    uint64_t bytes = 0;
    Board* board = nullptr;  ///< Of the lane that has it; null: nobody has.
    uint64_t op = 0;         ///< The last operation that uses it.
  };
  explicit StagePool(Segment& segment) : segment_(segment) {}
  StagePool(const StagePool&) = delete;
  StagePool& operator=(const StagePool&) = delete;
  ~StagePool();

  [[nodiscard]] static bool is_large(uint64_t bytes) { return bytes > kSmallAreaBytes; }
  /// An area of at least `bytes` for an operation of the board's lane. Null while members have not
  /// all ended the operation before that has the lane's large area: Board::holds_back() says who.
  /// Fails where memory is short.
  [[nodiscard]] Result<Area*> lend(Board& board, uint64_t op, uint64_t bytes);
  /// The large area that the lane still has from an operation before, for `op` too; null if it has
  /// none.
  [[nodiscard]] Area* renew(const Board& board, uint64_t op);
  /// The board goes. Unless its memory is `unread` from now on, what it has stays in the segment.
  void take_back(const Board& board, bool unread);

 private:
  [[nodiscard]] static bool idle(const Area& area);
  [[nodiscard]] Area* large_of(const Board& board) const;
  [[nodiscard]] Area* find_idle(uint64_t bytes) const;
  void free_surplus();

  Segment& segment_;
  std::vector<std::unique_ptr<Area>> areas_;
};

}  // namespace corro::collective
