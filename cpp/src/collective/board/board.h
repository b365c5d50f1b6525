// Board: how the ranks of one host run a collective over shared memory.
//
// Each rank publishes one cache line per operation (what it is, where its data is, or the data
// itself) and reads the others'. All see the same lines, so mismatch detection and the choice of
// path need no further message:
//   line, slot   small contributions are in shared memory already: take them.
//   direct       every rank reaches every buffer, in an arena or in its owner's memory.
//   staged       private memory, pipelined through staging buffers, chunk by chunk.
// All paths fold left to right in rank order: the same bits whichever is taken.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "collective/board/segment.h"
#include "collective/board/stage_pool.h"
#include "collective/operation/operation.h"
#include "collective/operation/request.h"

namespace corro::collective {

/// One group's view of the sections of all its members. Loop-confined.
class Board {
 public:
  struct Member {
    Segment* segment = nullptr;       ///< Borrowed from the engine.
    GroupSection* section = nullptr;  ///< Of `view`; null until it was found.
    SectionView view = {};
    int32_t world_rank = -1;
    int32_t pid = 0;  ///< Not 0: this process may read that one's memory.
  };
  /// Rings the doorbell of a world rank that sleeps with operations in flight.
  using Wake = std::function<void(int32_t world_rank)>;

  /// Opens this rank's section. `members` in group rank order, with segment and world_rank set;
  /// `stages`: of this rank's engine.
  static Result<std::unique_ptr<Board>> create(const LaneKey& key, int32_t rank,
                                               std::vector<Member> members, Wake wake,
                                               StagePool& stages);
  ~Board();

  [[nodiscard]] int32_t rank() const { return rank_; }
  [[nodiscard]] int32_t size() const { return static_cast<int32_t>(members_.size()); }
  [[nodiscard]] const Member& member(int32_t r) const { return members_[static_cast<size_t>(r)]; }
  [[nodiscard]] GroupSection& own() const { return *members_[static_cast<size_t>(rank_)].section; }

  /// True if every member's private memory can be read from here.
  [[nodiscard]] bool reads_everyone() const { return reads_everyone_; }
  /// Memory for an operation's own use between polls, at least so large; made on first use.
  [[nodiscard]] std::byte* scratch(size_t bytes);

  /// Looks for sections of members that had not opened theirs yet; returns the first still missing,
  /// or -1. Fails where one cannot be mapped.
  Result<int32_t> missing_member();
  /// INVALID_ARGUMENT once a section was found whose owner made the group of other members.
  [[nodiscard]] const Status& members_agree() const { return members_agree_; }
  /// True once operation `op`'s line may be written: everyone has completed the one that used it
  /// before.
  bool line_free(uint64_t op) { return completed_before(op, kLines); }
  /// The same of its slot.
  bool slot_free(uint64_t op) { return completed_before(op, kSlots); }
  /// True once every member has completed operation `op`; nobody is asked after keep_stages().
  [[nodiscard]] bool completed_by_all(uint64_t op);
  /// The group rank that holds the line or the slot back; only after one was not free.
  [[nodiscard]] int32_t holds_back() const { return slowest_; }

  /// Operations below `op` are over here.
  void set_completed(uint64_t op);
  /// Stores to an atomic of the own section and wakes members asleep.
  void publish(std::atomic<uint64_t>& word, uint64_t value);
  /// Marks the group failed for everyone who still waits on this rank. False if another member had
  /// done so before.
  bool set_failed(Code code, int32_t culprit_world_rank);
  /// The first member that has failed the group, with its cause; nullopt if none. One that has only
  /// left, with later operations in flight, has not failed those that it had completed: it was
  /// through with all buffers, and they with its own.
  struct Failure {
    int32_t reporter;  ///< Group rank.
    Code code;         ///< kUnknown if the word says none.
    int32_t culprit;   ///< World rank of a member, or -1.
  };
  [[nodiscard]] std::optional<Failure> find_failure(uint64_t op) const;
  /// This rank leaves operation `op` before its end, and members were to store results into
  /// `memory`: those who still may do so miss it.
  void set_apart(uint64_t op, std::byte* memory, size_t size);
  /// An area for operation `op` to stage something in; see StagePool::lend().
  [[nodiscard]] Result<StagePool::Area*> borrow(uint64_t op, uint64_t bytes) {
    return stages_.lend(*this, op, bytes);
  }
  /// Puts the own Stages in place for operation `op`, the oldest; stays with those that the lane
  /// still has.
  Status prepare_stages(uint64_t op);
  /// The least value of a counter of all members' sections, and the first group rank that has it.
  struct Least {
    uint64_t value;
    int32_t rank;
  };
  [[nodiscard]] Least least_of(std::atomic<uint64_t> GroupSection::* counter) const;
  /// A member's staging buffers in the operation that is staged, once it has put something there;
  /// null if what it says of them cannot be. Fails where they cannot be mapped.
  [[nodiscard]] Result<Stages*> stages_of(int32_t r) const;
  /// Where `bytes` at an offset of a member's segment are here; null if they are not in its heap.
  /// Fails where they cannot be mapped.
  [[nodiscard]] Result<std::byte*> memory_of(int32_t r, uint64_t offset, uint64_t bytes) const;
  /// The group has failed, or is left: what this lane has of stages stays with it until forsaken().
  void keep_stages() { keeps_stages_ = true; }

  /// This rank is out of the group: it looks at no other section any more.
  void leave();
  /// True once nobody can look at this rank's section any more, which goes with the board then:
  /// every other member has left too, is `gone` (by world rank), or cannot find it. Only after
  /// leave().
  [[nodiscard]] bool forsaken(const std::function<bool(int32_t world_rank)>& gone);
  /// Describes what a member did last on this group, for messages.
  [[nodiscard]] std::string last_operation_of(int32_t r) const;

  /// Chunks staged so far on this group; equal on all members between operations.
  uint64_t staged_chunks = 0;

 private:
  Board(const LaneKey& key, int32_t rank, std::vector<Member> members, Wake wake,
        StagePool& stages);
  bool completed_before(uint64_t op, uint64_t distance);
  void look_at_completed();
  void store_and_wake(std::atomic<uint64_t>& word, uint64_t value, uint32_t deepest);
  [[nodiscard]] bool is_out(Member& member) const;
  void compare(const Member& member);
  [[nodiscard]] Status cannot_reach(const Member& member, const Status& why) const;
  [[nodiscard]] int32_t member_or_nobody(uint64_t world_rank) const;

  LaneKey key_;
  int32_t rank_;
  std::vector<Member> members_;
  Wake wake_;
  StagePool& stages_;
  uint64_t all_completed_ = 0;  ///< Lower bound of every member's completed count.
  int32_t slowest_ = -1;
  Stages* own_stages_ = nullptr;  ///< Of the last operation that was staged.
  bool keeps_stages_ = false;
  bool forsaken_ = false;
  bool reads_everyone_ = false;
  Status members_agree_;
  std::vector<std::byte> scratch_;
};

/// The error of an operation that ranks of a board have called differently. `who`: the group rank
/// that differs.
[[nodiscard]] Status describe_mismatch(const Board& board, uint64_t op, const OpRequest& request,
                                       const std::string& difference, int32_t who);
/// DATA_LOSS: what group rank `who` has published of an operation is not what any rank publishes.
[[nodiscard]] Status describe_impossible(const Board& board, uint64_t op, const OpRequest& request,
                                         int32_t who, std::string_view what);

/// One collective over a board. The request is borrowed and outlives the operation. `published`:
/// its line is out already (BoardExchange::publish()).
[[nodiscard]] std::unique_ptr<Operation> make_board_operation(Board& board, uint64_t op,
                                                              const OpRequest& request,
                                                              bool published = false);

}  // namespace corro::collective
