// BoardExchange: how every collective on a board begins. Each rank publishes one cache line (its
// signature, and its data or where that is) and reads the others'; small operations end here.
//
//   publish()    the own line of this operation, once there is room: all members are over with the
//                operations that used the line last, and the slot if this one needs it
//   arrived()    looks for the lines of the others, in rank order, and remembers how far it came
//   agreement()  all lines are there: did all call the same?
//   take_small() all contributions are in lines or slots: the result is made of them
//
// A line's stamp is stored last and says which operation the line is of, so whoever has seen the
// stamp may read the rest. All ranks read the same lines, so all find the same mismatch and choose
// the same path without another word. Lines and tables are foreign memory all the same: what bounds
// an access comes from the own request, or is read once and checked.
#pragma once

#include <array>
#include <utility>

#include "collective/board/board.h"

namespace corro::collective {

using Sources = std::array<const std::byte*, kMaxBoardRanks>;

/// True if the result is made slice by slice, each slice by its owner, who also hands it out.
[[nodiscard]] constexpr bool is_sliced(OpKind kind) {
  return kind == OpKind::kAllreduce || kind == OpKind::kReduce;
}

/// Loop-confined, without memory of its own. Board and request are borrowed.
class BoardExchange {
 public:
  BoardExchange(Board& board, uint64_t op, const OpRequest& request);

  /// True if all ranks know beforehand that every contribution fits into a line or a slot.
  [[nodiscard]] bool certainly_small() const {
    return shape_.agreed() && largest_contribution() * element_ <= kSlotBytes;
  }
  /// True once the own line may be published; never false again.
  [[nodiscard]] bool has_room() const {
    return board_.line_free(op_) && (!needs_slot() || board_.slot_free(op_));
  }
  /// Publishes the own line; requires has_room().
  void publish();
  /// This rank leaves before the end: results that others still store miss its buffer.
  void withdraw();
  /// Looks further; the first rank whose line is not there yet, or size() once all are.
  int32_t arrived();
  /// The rest is for when all lines are there. INVALID_ARGUMENT that names both sides where ranks
  /// called different operations.
  [[nodiscard]] Status agreement() const;
  /// True if all contributions are in lines and slots: take_small() makes the result.
  [[nodiscard]] bool all_small() const;
  /// DATA_LOSS, with the result torn, where a rank's table and its slot cannot both be right; never
  /// if certainly_small().
  [[nodiscard]] Status take_small();

  [[nodiscard]] Board& board() const { return board_; }
  [[nodiscard]] const OpRequest& request() const { return request_; }
  [[nodiscard]] const Shape& shape() const { return shape_; }
  [[nodiscard]] uint64_t op() const { return op_; }
  [[nodiscard]] int32_t rank() const { return board_.rank(); }
  [[nodiscard]] int32_t size() const { return size_; }
  [[nodiscard]] uint64_t element() const { return element_; }  ///< Bytes.
  [[nodiscard]] const Line& line_of(int32_t r) const {
    return board_.member(r).section->lines[op_ % kLines];
  }
  /// Rank r's slice of the result, in elements: as even as possible, the first ones get the rest.
  [[nodiscard]] std::pair<uint64_t, uint64_t> slice_of(int32_t r) const;
  /// What rank `from` sends to `to` (index 0), or expects from it (index 1): uneven alltoall.
  /// Foreign: read once, at most kMostElements + 1.
  [[nodiscard]] uint64_t table_entry(int32_t from, int32_t to, size_t index) const;
  /// The elements of rank r's contribution that this rank reads: begin and end. Of an uneven
  /// alltoall foreign, and another one with every call: nothing says yet that r has so many.
  [[nodiscard]] std::pair<uint64_t, uint64_t> read_range(int32_t r) const;
  /// DATA_LOSS: what rank r has published is not what any rank publishes.
  [[nodiscard]] Status impossible(int32_t r, std::string_view what) const;

  [[nodiscard]] std::byte* slot_of(int32_t r) const {
    return board_.member(r).section->slots[op_ % kSlots];
  }

 private:
  [[nodiscard]] uint64_t largest_contribution() const;
  [[nodiscard]] uint64_t table_bytes() const;
  void write_table();
  void publish_place(Line& line, uint64_t bytes);
  [[nodiscard]] uint64_t block_offset_in(int32_t r) const;
  [[nodiscard]] bool overlaps(uint64_t input_bytes, uint64_t output_bytes) const;
  /// `who`: the group rank that differs from those before it.
  [[nodiscard]] Status mismatch(const std::string& difference, int32_t who) const;
  [[nodiscard]] Status tables_agree() const;
  /// True if all contributions are in lines, as all ranks know beforehand.
  [[nodiscard]] bool in_lines() const {
    return shape_.agreed() && largest_contribution() * element_ <= kLineBytes;
  }
  /// True if this rank or another may store to the own slot: the contribution or its table, or the
  /// ends of the result.
  [[nodiscard]] bool needs_slot() const;
  [[nodiscard]] const std::byte* small_data(int32_t r) const;
  [[nodiscard]] Status take_small_blocks();

  Board& board_;
  const uint64_t op_;
  const OpRequest& request_;
  const int32_t size_;
  const uint64_t element_;
  const Shape shape_;
  const SignatureBits signature_;
  int32_t arrived_ = 0;
  bool others_store_ = false;  ///< The own line offers a mapped buffer for the result.
};

/// The large paths, chosen by every rank alike once all lines are there. The exchange is borrowed.
/// Direct: every buffer can be read and written by every rank; else null. DATA_LOSS where a buffer
/// is not in its owner's arena; fails where it cannot be mapped.
[[nodiscard]] Result<std::unique_ptr<Operation>> make_direct_path(const BoardExchange& exchange);
/// Staged: private memory, chunk by chunk through staging buffers. For the oldest operation only.
[[nodiscard]] std::unique_ptr<Operation> make_staged_path(const BoardExchange& exchange);
/// Pairwise: folds_whole_vectors(); through the same buffers, from rank to rank. For the oldest
/// operation only.
[[nodiscard]] std::unique_ptr<Operation> make_pairwise_path(const BoardExchange& exchange);

}  // namespace corro::collective
