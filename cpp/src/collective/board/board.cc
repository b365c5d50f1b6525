#include "collective/board/board.h"

#include <algorithm>
#include <new>

#include <fmt/format.h>

namespace corro::collective {

Board::Board(const LaneKey& key, int32_t rank, std::vector<Member> members, Wake wake,
             StagePool& stages)
    : key_(key),
      rank_(rank),
      members_(std::move(members)),
      wake_(std::move(wake)),
      stages_(stages) {
  reads_everyone_ = std::all_of(members_.begin(), members_.end(),
                                [](const Member& member) { return member.pid != 0; });
}

Result<std::unique_ptr<Board>> Board::create(const LaneKey& key, int32_t rank,
                                             std::vector<Member> members, Wake wake,
                                             StagePool& stages) {
  auto board =
      std::unique_ptr<Board>(new Board(key, rank, std::move(members), std::move(wake), stages));
  Member& self = board->members_[static_cast<size_t>(rank)];
  std::vector<int32_t> world_ranks;
  for (const Member& member : board->members_) world_ranks.push_back(member.world_rank);
  CORRO_ASSIGN(self.view, self.segment->open_section(key, describe_members(world_ranks)));
  self.section = self.view.section;
  return board;
}

/// Unless all are out the section stays as it is, until the segment goes.
Board::~Board() {
  const Member& self = members_[static_cast<size_t>(rank_)];
  if (self.section == nullptr) return;
  self.segment->hide_section(self.view);
  stages_.take_back(*this, forsaken_);
  if (forsaken_) self.segment->free_section(self.view);
}

Result<int32_t> Board::missing_member() {
  for (Member& member : members_) {
    if (member.section != nullptr) continue;
    const auto view = member.segment->find_section(key_);
    if (!view.ok()) return cannot_reach(member, view.status());
    if (!*view) return static_cast<int32_t>(&member - members_.data());
    member.view = **view;
    member.section = member.view.section;
    compare(member);
  }
  return -1;
}

/// Nothing is wrong with the member: this process could not map its memory.
Status Board::cannot_reach(const Member& member, const Status& why) const {
  return why.with_context(fmt::format("rank {} cannot reach the shared memory of rank {}",
                                      members_[static_cast<size_t>(rank_)].world_rank,
                                      member.world_rank));
}

Board::Least Board::least_of(std::atomic<uint64_t> GroupSection::* counter) const {
  Least least{UINT64_MAX, -1};
  for (int32_t r = 0; r < size(); ++r) {
    const uint64_t value = (member(r).section->*counter).load(std::memory_order_seq_cst);
    if (value < least.value) least = {value, r};
  }
  return least;
}

Result<Stages*> Board::stages_of(int32_t r) const {
  if (r == rank_) return own_stages_;
  auto stages = member(r).segment->stages_of(*member(r).section);
  if (!stages.ok()) return cannot_reach(member(r), stages.status());
  return stages;
}

Result<std::byte*> Board::memory_of(int32_t r, uint64_t offset, uint64_t bytes) const {
  auto memory = member(r).segment->at(offset, bytes);
  if (!memory.ok()) return cannot_reach(member(r), memory.status());
  return memory;
}

/// A name may be given to groups of different members: their sections have the same key.
void Board::compare(const Member& member) {
  if (!members_agree_.ok()) return;
  const Member& self = members_[static_cast<size_t>(rank_)];
  members_agree_ = compare_members(self.world_rank, members_of(*self.section), member.world_rank,
                                   members_of(*member.section));
}

void Board::leave() {
  keep_stages();
  const Member& self = members_[static_cast<size_t>(rank_)];
  // Who has not looked for the section yet need not find it, but for a failure that it can tell.
  if (self.section->failed.load(std::memory_order_relaxed) == 0)
    self.segment->hide_section(self.view);
  self.section->left.store(1, std::memory_order_seq_cst);
}

/// A member opens its own section before it looks for others. So one whose section is not there has
/// not found this rank's either, if that was hidden before. Of one that cannot be mapped nothing is
/// known.
bool Board::is_out(Member& member) const {
  if (member.section == nullptr) {
    const auto view = member.segment->find_section(key_);
    if (!view.ok()) return false;
    if (!*view) return own().failed.load(std::memory_order_relaxed) == 0;
    member.view = **view;
    member.section = member.view.section;
  }
  return !Segment::names(member.view) || member.section->left.load(std::memory_order_seq_cst) != 0;
}

bool Board::forsaken(const std::function<bool(int32_t world_rank)>& gone) {
  forsaken_ = std::all_of(members_.begin(), members_.end(), [&](Member& member) {
    return &member == &members_[static_cast<size_t>(rank_)] || gone(member.world_rank) ||
           is_out(member);
  });
  return forsaken_;
}

/// True once everyone has completed the operation `distance` before `op`.
bool Board::completed_before(uint64_t op, uint64_t distance) {
  if (op >= all_completed_ + distance) look_at_completed();
  return op < all_completed_ + distance;
}

bool Board::completed_by_all(uint64_t op) {
  if (keeps_stages_) return false;  // Members' sections may be gone.
  if (op >= all_completed_) look_at_completed();
  return op < all_completed_;
}

void Board::look_at_completed() {
  uint64_t lowest = UINT64_MAX;
  for (int32_t r = 0; r < size(); ++r) {
    const uint64_t completed = member(r).section->completed.load(std::memory_order_seq_cst);
    if (completed < lowest) {
      lowest = completed;
      slowest_ = r;
    }
  }
  all_completed_ = lowest;
}

void Board::set_completed(uint64_t op) { store_and_wake(own().completed, op, kAsleepForLines); }

void Board::publish(std::atomic<uint64_t>& word, uint64_t value) {
  store_and_wake(word, value, kAsleep);
}

void Board::store_and_wake(std::atomic<uint64_t>& word, uint64_t value, uint32_t deepest) {
  // Sequentially consistent on both sides: either the sleeper sees the value when it looks once
  // more, or this rank sees its sleeping word.
  word.store(value, std::memory_order_seq_cst);
  for (int32_t r = 0; r < size(); ++r) {
    if (r == rank_) continue;
    const Member& other = member(r);
    if (other.segment->header().sleeping.load(std::memory_order_seq_cst) >= deepest) {
      wake_(other.world_rank);
    }
  }
}

bool Board::set_failed(Code code, int32_t culprit_world_rank) {
  const bool first = !find_failure(own().completed.load(std::memory_order_relaxed));
  keep_stages();
  publish(own().failed, static_cast<uint64_t>(code) | static_cast<uint64_t>(culprit_world_rank + 1)
                                                          << 8U);
  return first;
}

std::optional<Board::Failure> Board::find_failure(uint64_t op) const {
  for (int32_t r = 0; r < size(); ++r) {
    if (r == rank_ || member(r).section == nullptr) continue;
    const uint64_t word = member(r).section->failed.load(std::memory_order_acquire);
    if (word == 0) continue;
    const uint64_t code = word & 0xFFU;
    const bool known = code != 0 && code <= static_cast<uint64_t>(Code::kUnauthenticated);
    const Failure failure{.reporter = r,
                          .code = known ? static_cast<Code>(code) : Code::kUnknown,
                          .culprit = member_or_nobody((word >> 8U) - 1)};
    const bool left = failure.code == Code::kUnavailable && failure.culprit == member(r).world_rank;
    if (left && member(r).section->completed.load(std::memory_order_acquire) > op) continue;
    return failure;
  }
  return std::nullopt;
}

int32_t Board::member_or_nobody(uint64_t world_rank) const {
  const bool found = std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return static_cast<uint64_t>(member.world_rank) == world_rank;
  });
  return found ? static_cast<int32_t>(world_rank) : -1;
}

std::byte* Board::scratch(size_t bytes) {
  if (scratch_.size() < bytes) scratch_.resize(bytes);
  return scratch_.data();
}

void Board::set_apart(uint64_t op, std::byte* memory, size_t size) {
  const auto may_store = [&](const Member& other) {
    return &other != &members_[static_cast<size_t>(rank_)] && other.section != nullptr &&
           other.section->failed.load(std::memory_order_acquire) == 0 &&
           other.section->finished.load(std::memory_order_acquire) <= 2 * op;
  };
  if (std::none_of(members_.begin(), members_.end(), may_store)) return;
  // It fails where the system keeps account of private memory and has none left; then nothing
  // better can be done for a buffer that is lost anyway.
  (void)members_[static_cast<size_t>(rank_)].segment->set_apart(memory, size);
}

/// While the lane has its area, the counters of chunks say what of it is free again, so members may
/// still be in the operation before. The area goes to another lane only once none is: so whoever
/// looks for the place finds that of its own operation.
Status Board::prepare_stages(uint64_t op) {
  if (stages_.renew(*this, op) != nullptr) return {};
  CORRO_ASSIGN(const StagePool::Area* area, borrow(op, sizeof(Stages)));
  own_stages_ = std::launder(reinterpret_cast<Stages*>(area->memory));
  own().stages.store(area->place, std::memory_order_release);
  return {};
}

Status describe_mismatch(const Board& board, uint64_t op, const OpRequest& request,
                         const std::string& difference, int32_t who) {
  return {Code::kInvalidArgument,
          fmt::format("{}: ranks disagree on operation #{} of this group: {}",
                      name_of(request.kind), op + 1, difference),
          {.rank = board.member(who).world_rank,
           .op = std::string(name_of(request.kind)),
           .phase = "exchange"}};
}

Status describe_impossible(const Board& board, uint64_t op, const OpRequest& request, int32_t who,
                           std::string_view what) {
  const int32_t world_rank = board.member(who).world_rank;
  return {Code::kDataLoss,
          fmt::format("{}: what rank {} has published of operation #{} of this group cannot be: {}",
                      name_of(request.kind), world_rank, op + 1, what),
          {.rank = world_rank, .op = std::string(name_of(request.kind)), .phase = "exchange"}};
}

std::string Board::last_operation_of(int32_t r) const {
  const GroupSection* section = member(r).section;
  if (section == nullptr) return "it has not made this group yet";
  uint64_t last = 0;
  SignatureBits signature;
  for (const Line& line : section->lines) {
    // The member may go on meanwhile: what it writes anew between the two looks is not taken.
    const uint64_t stamp = line.stamp.load(std::memory_order_acquire);
    if (stamp <= last) continue;
    const SignatureBits called = line.signature();
    std::atomic_thread_fence(std::memory_order_acquire);
    if (line.stamp.load(std::memory_order_relaxed) != stamp) continue;
    last = stamp;
    signature = called;
  }
  if (last == 0) return "it has not called anything on this group yet";
  return fmt::format("its last call on this group was #{} {}", last,
                     Signature::unpack(signature).describe());
}

}  // namespace corro::collective
