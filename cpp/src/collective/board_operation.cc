#include <algorithm>
#include <array>
#include <cstring>

#include <fmt/format.h>

#include "collective/board.h"
#include "collective/fold.h"

namespace corro::collective {
namespace {

using Sources = std::array<const std::byte*, kMaxBoardRanks>;

constexpr uint64_t kMappedChunkBytes = 32U
                                       << 10U;  ///< Stays in L1/L2 between the fold and the stores.
constexpr uint64_t kBytesPerPoll = 1U << 20U;   ///< Bounds how long one poll takes.
constexpr int kChunksPerPoll = 8;
constexpr uint32_t kPollsPerFailureCheck = 256;

/// True if the kind's result goes to every rank's output slice by slice (owners write others'
/// memory).
bool is_sliced(OpKind kind) { return kind == OpKind::kAllreduce || kind == OpKind::kReduce; }

class BoardOperation final : public Operation {
 public:
  BoardOperation(Board& board, uint64_t op, const OpRequest& request)
      : board_(board),
        op_(op),
        request_(request),
        rank_(board.rank()),
        size_(board.size()),
        element_(size_of(request.dtype)),
        shape_(request, rank_, size_),
        signature_(signature_of(request, size_).pack()) {}

  Progress poll(bool oldest) override {
    Progress total = Progress::kIdle;
    while (true) {
      const Progress now = step(oldest);
      if (now == Progress::kDone) return now;
      if (now == Progress::kIdle) break;
      total = Progress::kMoved;
      if (state_ == State::kMapped || state_ == State::kStaged)
        break;  // a bounded amount of work was done
    }
    if (total == Progress::kIdle && ++idle_polls_ % kPollsPerFailureCheck == 0)
      return check_members();
    return total;
  }

 private:
  enum class State { kAdmit, kGather, kMapped, kFinish, kStaged };

  Progress step(bool oldest) {
    switch (state_) {
      case State::kAdmit:
        return admit();
      case State::kGather:
        return gather(oldest);
      case State::kMapped:
        return work_mapped();
      case State::kFinish:
        return await_finished();
      case State::kStaged:
        return work_staged();
    }
    return Progress::kIdle;
  }

  Progress check_members() {
    const auto failure = board_.find_failure();
    if (!failure) return Progress::kIdle;
    return finish({failure->code,
                   fmt::format("{}: rank {} gave the group up", name_of(request_.kind),
                               board_.member(failure->reporter).world_rank),
                   {.rank = failure->culprit}});
  }

  // -- publish the own line ---------------------------------------------------------------------

  Progress admit() {
    if (const int32_t missing = board_.missing_member(); missing >= 0) {
      wait(obs::Phase::kQueued, missing);
      return Progress::kIdle;
    }
    if (!board_.line_free(op_)) {
      wait(obs::Phase::kQueued, board_.holds_back());
      return Progress::kIdle;
    }
    publish_line();
    state_ = State::kGather;
    return Progress::kMoved;
  }

  [[nodiscard]] const Line& line_of(int32_t r) const {
    return board_.member(r).section->lines[op_ % kLines];
  }
  [[nodiscard]] std::byte* slot_of(int32_t r) const {
    return board_.member(r).section->slots[op_ % kLines];
  }

  void publish_line() {
    Line& line = board_.own().lines[op_ % kLines];
    line.signature = signature_;
    const uint64_t bytes = shape_.contribution() * element_;
    const uint64_t most = largest_contribution() * element_ + table_bytes();
    if (most <= kLineBytes && shape_.agreed()) {
      line.where = Where::kLine;
      copy_contribution(request_, line.data, request_.input, shape_.contribution());
    } else if (most <= kSlotBytes) {
      line.where = Where::kSlot;
      write_table();
      copy_contribution(request_, slot_of(rank_) + table_bytes(), request_.input,
                        shape_.contribution());
    } else {
      write_table();
      publish_place(line, bytes);
    }
    board_.publish(line.stamp, op_ + 1);
  }

  /// The largest contribution of any rank where all know it; the own one for an uneven alltoall.
  [[nodiscard]] uint64_t largest_contribution() const {
    if (!shape_.agreed()) return shape_.contribution();
    const auto ranks = static_cast<uint64_t>(size_);
    if (request_.kind == OpKind::kReducescatter || request_.kind == OpKind::kScatter) {
      return signature_of(request_, size_).count;
    }
    return shape_.split() ? shape_.largest_block() * ranks : shape_.largest_block();
  }

  void publish_place(Line& line, uint64_t bytes) {
    line.where = Where::kPrivate;
    line.largest_block = largest_own_block();
    const bool needs_output = is_sliced(request_.kind) && shape_.takes();
    const uint64_t output_bytes = shape_.output_count() * element_;
    const auto& own = *board_.member(rank_).segment;
    const auto input =
        bytes > 0 ? own.offset_of(request_.input, bytes) : std::optional<uint64_t>(0);
    const auto output =
        needs_output ? own.offset_of(request_.output, output_bytes) : std::optional<uint64_t>(0);
    if (!input || !output || request_.prescale != 1 || overlaps(bytes, output_bytes)) return;
    line.where = Where::kMapped;
    line.input_offset = *input;
    line.output_offset = *output;
  }

  /// True if writing the own result could destroy input that others have not read yet.
  [[nodiscard]] bool overlaps(uint64_t input_bytes, uint64_t output_bytes) const {
    if (is_sliced(request_.kind))
      return request_.input != request_.output && ranges_meet(input_bytes, output_bytes);
    if (request_.kind == OpKind::kBroadcast) return false;
    const bool gathers = request_.kind == OpKind::kAllgather || request_.kind == OpKind::kGather;
    const bool in_place =
        gathers && request_.input == request_.output + shape_.take_offset(rank_) * element_;
    return !in_place && ranges_meet(input_bytes, output_bytes);
  }
  [[nodiscard]] bool ranges_meet(uint64_t input_bytes, uint64_t output_bytes) const {
    const auto input = reinterpret_cast<uintptr_t>(request_.input);
    const auto output = reinterpret_cast<uintptr_t>(request_.output);
    return input < output + output_bytes && output < input + input_bytes;
  }

  // -- uneven alltoall: everyone publishes what it sends and expects ------------------------------

  [[nodiscard]] uint64_t table_bytes() const {
    return shape_.agreed() ? 0 : static_cast<uint64_t>(size_) * 2 * sizeof(uint64_t);
  }
  void write_table() {
    if (shape_.agreed()) return;
    auto* table = slot_of(rank_);
    for (int32_t r = 0; r < size_; ++r) {
      const std::array<uint64_t, 2> entry = {shape_.put_count(r), shape_.take_count(r)};
      std::memcpy(table + static_cast<size_t>(r) * sizeof entry, entry.data(), sizeof entry);
    }
  }
  /// What rank `from` sends to `to` (index 0), or expects from it (index 1).
  [[nodiscard]] uint64_t table_entry(int32_t from, int32_t to, size_t index) const {
    uint64_t value = 0;
    std::memcpy(&value, slot_of(from) + (static_cast<size_t>(to) * 2 + index) * sizeof value,
                sizeof value);
    return value;
  }
  [[nodiscard]] uint64_t largest_own_block() const {
    uint64_t largest = shape_.largest_block();
    for (int32_t r = 0; r < size_; ++r) {
      largest = std::max({largest, shape_.put_count(r), shape_.take_count(r)});
    }
    return largest;
  }
  Status check_tables() const {
    if (shape_.agreed()) return {};
    for (int32_t from = 0; from < size_; ++from) {
      for (int32_t to = 0; to < size_; ++to) {
        const uint64_t sent = table_entry(from, to, 0);
        const uint64_t expected = table_entry(to, from, 1);
        if (sent != expected) {
          return mismatch(fmt::format("rank {} sends {} elements to rank {}, which expects {}",
                                      board_.member(from).world_rank, sent,
                                      board_.member(to).world_rank, expected));
        }
      }
    }
    return {};
  }

  // -- read everyone's line and choose the path --------------------------------------------------

  Progress gather(bool oldest) {
    const int32_t before = arrived_;
    while (arrived_ < size_ && line_of(arrived_).stamp.load(std::memory_order_seq_cst) == op_ + 1) {
      ++arrived_;
    }
    if (arrived_ < size_) {
      wait(obs::Phase::kExchange, arrived_);
      return arrived_ > before ? Progress::kMoved : Progress::kIdle;
    }
    if (Status agreed = check_signatures(); !agreed.ok()) return finish(std::move(agreed));
    if (all_small()) return take_small();
    if (!oldest) {
      wait(obs::Phase::kQueued, -1);
      return Progress::kIdle;
    }
    phase_ = obs::Phase::kTransfer;
    return start_large();
  }

  Status check_signatures() const {
    for (int32_t r = 0; r < size_; ++r) {
      if (line_of(r).signature == line_of(0).signature) continue;
      return mismatch(fmt::format(
          "rank {} called {}, rank {} called {}", board_.member(0).world_rank,
          Signature::unpack(line_of(0).signature).describe(), board_.member(r).world_rank,
          Signature::unpack(line_of(r).signature).describe()));
    }
    return check_tables();
  }

  Status mismatch(const std::string& difference) const {
    return {Code::kInvalidArgument,
            fmt::format("{}: ranks disagree on operation #{} of this group: {}",
                        name_of(request_.kind), op_ + 1, difference),
            {.rank = -1, .op = std::string(name_of(request_.kind)), .phase = "exchange"}};
  }

  [[nodiscard]] bool all_small() const {
    for (int32_t r = 0; r < size_; ++r) {
      if (line_of(r).where > Where::kSlot) return false;
    }
    return true;
  }

  // -- small: contributions are in lines and slots ------------------------------------------------

  [[nodiscard]] const std::byte* small_data(int32_t r) const {
    const Line& line = line_of(r);
    return line.where == Where::kLine ? line.data : slot_of(r) + table_bytes();
  }

  Progress take_small() {
    if (!shape_.takes()) return finish({});
    if (shape_.folds()) {
      Sources sources;
      for (int32_t r = 0; r < size_; ++r) {
        sources[static_cast<size_t>(r)] = small_data(r) + shape_.put_offset(rank_) * element_;
      }
      fold_final(request_, size_, request_.output, {sources.data(), static_cast<size_t>(size_)},
                 shape_.output_count());
      return finish({});
    }
    for (int32_t r = 0; r < size_; ++r) copy_block(r, small_data(r));
    return finish({});
  }

  /// Copies rank r's block for this rank out of r's whole contribution.
  void copy_block(int32_t r, const std::byte* contribution) {
    const uint64_t bytes = shape_.take_count(r) * element_;
    std::byte* into = request_.output + shape_.take_offset(r) * element_;
    const std::byte* from = contribution + block_offset_in(r) * element_;
    if (bytes > 0 && into != from) std::memmove(into, from, bytes);
  }

  /// Where the block for this rank starts in rank r's contribution, in elements.
  [[nodiscard]] uint64_t block_offset_in(int32_t r) const {
    if (shape_.agreed()) return shape_.put_offset(rank_);
    uint64_t offset = 0;
    for (int32_t d = 0; d < rank_; ++d) offset += table_entry(r, d, 0);
    return offset;
  }

  // -- large: everyone's data is in mapped memory, or it is staged
  // ---------------------------------

  Progress start_large() {
    torn_ = true;
    bool mapped = true;
    for (int32_t r = 0; r < size_; ++r) mapped = mapped && line_of(r).where == Where::kMapped;
    if (mapped && resolve_places()) {
      state_ = State::kMapped;
      return Progress::kMoved;
    }
    if (Status ready = board_.prepare_stages(); !ready.ok()) {
      return finish(ready.with_context(name_of(request_.kind)));
    }
    set_up_stages();
    state_ = State::kStaged;
    return Progress::kMoved;
  }

  bool resolve_places() {
    inputs_.resize(static_cast<size_t>(size_));
    outputs_.resize(static_cast<size_t>(size_));
    bool inside = true;
    for (int32_t r = 0; r < size_; ++r) {
      const Line& line = line_of(r);
      const Segment& segment = *board_.member(r).segment;
      const auto i = static_cast<size_t>(r);
      if (shape_.contributes(r)) {
        const uint64_t elements = largest_contribution_of(r);
        inputs_[i] = elements == 0 ? nullptr : segment.at(line.input_offset, elements * element_);
        inside = inside && (elements == 0 || inputs_[i] != nullptr);
      }
      const bool gets = request_.kind == OpKind::kAllreduce || r == request_.root;
      if (is_sliced(request_.kind) && gets) {
        outputs_[i] = segment.at(line.output_offset, request_.count * element_);
        inside = inside && outputs_[i] != nullptr;
      }
    }
    // Foreign offsets outside the heap: every rank sees the same line, so every rank stages
    // instead.
    return inside;
  }

  [[nodiscard]] uint64_t largest_contribution_of(int32_t r) const {
    if (shape_.agreed()) return r == rank_ ? shape_.contribution() : block_end_in(r);
    uint64_t total = 0;
    for (int32_t d = 0; d < size_; ++d) total += table_entry(r, d, 0);
    return total;
  }
  [[nodiscard]] uint64_t block_end_in(int32_t r) const {
    return is_sliced(request_.kind) ? request_.count : block_offset_in(r) + shape_.take_count(r);
  }

  Progress work_mapped() {
    if (is_sliced(request_.kind) ? !fold_own_slice() : !take_own_blocks()) return Progress::kMoved;
    board_.publish(board_.own().finished, op_ + 1);
    state_ = State::kFinish;
    arrived_ = 0;
    return Progress::kMoved;
  }

  /// Folds chunks of the slice this rank owns and stores them to every result; true when the slice
  /// is complete.
  bool fold_own_slice() {
    const auto [begin, end] = slice_of(rank_);
    const uint64_t chunk = kMappedChunkBytes / element_;
    Sources sources;
    for (uint64_t budget = kBytesPerPoll / element_; begin + done_ < end;
         budget -= std::min(budget, chunk)) {
      if (budget == 0) return false;
      const uint64_t at = begin + done_;
      const uint64_t count = std::min(chunk, end - at);
      for (int32_t r = 0; r < size_; ++r) {
        const auto i = static_cast<size_t>(r);
        sources[i] = inputs_[i] + at * element_;
      }
      const auto first =
          static_cast<size_t>(request_.kind == OpKind::kReduce ? request_.root : rank_);
      std::byte* into = outputs_[first] + at * element_;
      fold_final(request_, size_, into, {sources.data(), static_cast<size_t>(size_)}, count);
      for (size_t i = 0; i < outputs_.size(); ++i) {
        if (outputs_[i] != nullptr && i != first) {
          std::memcpy(outputs_[i] + at * element_, into, count * element_);
        }
      }
      done_ += count;
    }
    return true;
  }

  /// Rank r's slice of `count` elements: as even as possible, the first ones get the remainder.
  [[nodiscard]] std::pair<uint64_t, uint64_t> slice_of(int32_t r) const {
    const auto ranks = static_cast<uint64_t>(size_);
    const auto i = static_cast<uint64_t>(r);
    const uint64_t each = request_.count / ranks;
    const uint64_t rest = request_.count % ranks;
    const uint64_t begin = i * each + std::min(i, rest);
    return {begin, begin + each + (i < rest ? 1 : 0)};
  }

  /// Takes this rank's blocks straight from the others' inputs; true when all is here.
  bool take_own_blocks() {
    if (!shape_.takes()) return true;
    if (!shape_.folds()) {
      for (int32_t r = 0; r < size_; ++r) {
        if (shape_.take_count(r) > 0) copy_block(r, inputs_[static_cast<size_t>(r)]);
      }
      return true;
    }
    const uint64_t chunk = kMappedChunkBytes / element_;
    const uint64_t offset = shape_.put_offset(rank_);
    Sources sources;
    for (uint64_t budget = kBytesPerPoll / element_; done_ < shape_.output_count();
         budget -= std::min(budget, chunk)) {
      if (budget == 0) return false;
      const uint64_t count = std::min(chunk, shape_.output_count() - done_);
      for (int32_t r = 0; r < size_; ++r) {
        const auto i = static_cast<size_t>(r);
        sources[i] = inputs_[i] + (offset + done_) * element_;
      }
      fold_final(request_, size_, request_.output + done_ * element_,
                 {sources.data(), static_cast<size_t>(size_)}, count);
      done_ += count;
    }
    return true;
  }

  Progress await_finished() {
    const int32_t before = arrived_;
    while (arrived_ < size_ &&
           board_.member(arrived_).section->finished.load(std::memory_order_seq_cst) >= op_ + 1) {
      ++arrived_;
    }
    if (arrived_ == size_) return finish({});
    wait(obs::Phase::kFinish, arrived_);
    return arrived_ > before ? Progress::kMoved : Progress::kIdle;
  }

  // -- staged: chunk c of every block travels through stage[c % kStages]
  // ---------------------------

  void set_up_stages() {
    const auto blocks = static_cast<uint64_t>(split_in_stage() ? size_ : 1);
    quantum_ = std::max<uint64_t>(kStageBytes / element_ / blocks, 1);
    uint64_t largest = is_sliced(request_.kind) ? slice_of(0).second : shape_.largest_block();
    if (!shape_.agreed()) {
      for (int32_t r = 0; r < size_; ++r) {
        for (int32_t d = 0; d < size_; ++d) largest = std::max(largest, table_entry(r, d, 0));
      }
    }
    chunks_ = (largest + quantum_ - 1) / quantum_;
    base_ = board_.staged_chunks;
    board_.staged_chunks += chunks_;
  }

  [[nodiscard]] bool split_in_stage() const { return shape_.split() || is_sliced(request_.kind); }

  Progress work_staged() {
    bool moved = false;
    for (int i = 0; i < kChunksPerPoll && taken_ < chunks_; ++i) {
      const bool put = put_chunk();
      const bool folded = is_sliced(request_.kind) && fold_chunk();
      const bool taken = take_chunk();
      if (!put && !folded && !taken) break;
      moved = true;
    }
    if (taken_ == chunks_) return finish({});
    return moved ? Progress::kMoved : Progress::kIdle;
  }

  /// True once `counter` of every member is at least `wanted`, counted as the group's chunks are:
  /// over all operations.
  template <typename Counter>
  bool all_reached(Counter GroupSection::* counter, uint64_t wanted, uint64_t& known) {
    if (known >= wanted) return true;
    uint64_t lowest = UINT64_MAX;
    for (int32_t r = 0; r < size_; ++r) {
      const uint64_t value = (board_.member(r).section->*counter).load(std::memory_order_seq_cst);
      if (value < lowest) {
        lowest = value;
        if (value < wanted) wait(obs::Phase::kTransfer, r);
      }
    }
    known = lowest;
    return known >= wanted;
  }

  [[nodiscard]] std::byte* stage_of(int32_t r, uint64_t chunk) const {
    return board_.member(r).section->stage[(base_ + chunk) % kStages];
  }
  [[nodiscard]] std::byte* result_of(int32_t r, uint64_t chunk) const {
    return board_.member(r).section->results[(base_ + chunk) % kStages];
  }
  /// Elements of chunk c of a block of `count`.
  [[nodiscard]] uint64_t chunk_count(uint64_t chunk, uint64_t count) const {
    const uint64_t start = chunk * quantum_;
    return start >= count ? 0 : std::min(quantum_, count - start);
  }

  bool put_chunk() {
    if (put_ == chunks_) return false;
    // The buffer may still hold a chunk of the operation before, which is over here, not there.
    const uint64_t next = base_ + put_ + 1;
    if (next > kStages && !all_reached(&GroupSection::taken, next - kStages, known_taken_))
      return false;
    if (shape_.contributes(rank_)) {
      for (int32_t d = 0; d < (split_in_stage() ? size_ : 1); ++d) {
        const auto [offset, count] = put_range(d);
        const uint64_t n = chunk_count(put_, count);
        if (n == 0) continue;
        const uint64_t place = split_in_stage() ? static_cast<uint64_t>(d) * quantum_ : 0;
        copy_contribution(request_, stage_of(rank_, put_) + place * element_,
                          request_.input + (offset + put_ * quantum_) * element_, n);
      }
    }
    ++put_;
    board_.publish(board_.own().put, base_ + put_);
    return true;
  }

  [[nodiscard]] std::pair<uint64_t, uint64_t> put_range(int32_t d) const {
    if (!is_sliced(request_.kind)) return {shape_.put_offset(d), shape_.put_count(d)};
    const auto [begin, end] = slice_of(d);
    return {begin, end - begin};
  }

  /// allreduce and reduce: folds chunk `folded_` of the own slice into the results buffer.
  bool fold_chunk() {
    if (folded_ == chunks_ || !all_reached(&GroupSection::put, base_ + folded_ + 1, known_put_))
      return false;
    const auto [begin, end] = slice_of(rank_);
    Sources sources;
    for (int32_t r = 0; r < size_; ++r) {
      sources[static_cast<size_t>(r)] =
          stage_of(r, folded_) + static_cast<uint64_t>(rank_) * quantum_ * element_;
    }
    fold_final(request_, size_, result_of(rank_, folded_),
               {sources.data(), static_cast<size_t>(size_)}, chunk_count(folded_, end - begin));
    ++folded_;
    board_.publish(board_.own().folded, base_ + folded_);
    return true;
  }

  bool take_chunk() {
    if (taken_ == chunks_) return false;
    if (is_sliced(request_.kind)) {
      if (!all_reached(&GroupSection::folded, base_ + taken_ + 1, known_folded_)) return false;
      if (shape_.takes()) take_results();
    } else {
      if (!all_reached(&GroupSection::put, base_ + taken_ + 1, known_put_)) return false;
      if (shape_.takes()) take_blocks();
    }
    ++taken_;
    board_.publish(board_.own().taken, base_ + taken_);
    return true;
  }

  void take_results() {
    for (int32_t r = 0; r < size_; ++r) {
      const auto [begin, end] = slice_of(r);
      const uint64_t n = chunk_count(taken_, end - begin);
      if (n == 0) continue;
      std::memcpy(request_.output + (begin + taken_ * quantum_) * element_, result_of(r, taken_),
                  n * element_);
    }
  }

  void take_blocks() {
    const uint64_t place =
        split_in_stage() ? static_cast<uint64_t>(rank_) * quantum_ * element_ : 0;
    const uint64_t start = taken_ * quantum_;
    if (shape_.folds()) {
      Sources sources;
      for (int32_t r = 0; r < size_; ++r)
        sources[static_cast<size_t>(r)] = stage_of(r, taken_) + place;
      fold_final(request_, size_, request_.output + start * element_,
                 {sources.data(), static_cast<size_t>(size_)},
                 chunk_count(taken_, shape_.output_count()));
      return;
    }
    for (int32_t r = 0; r < size_; ++r) {
      const uint64_t n = chunk_count(taken_, shape_.take_count(r));
      if (n == 0) continue;
      std::memcpy(request_.output + (shape_.take_offset(r) + start) * element_,
                  stage_of(r, taken_) + place, n * element_);
    }
  }

  Board& board_;
  const uint64_t op_;
  const OpRequest& request_;
  const int32_t rank_;
  const int32_t size_;
  const uint64_t element_;
  const Shape shape_;
  const uint64_t signature_;
  State state_ = State::kAdmit;
  int32_t arrived_ = 0;
  uint32_t idle_polls_ = 0;
  std::vector<std::byte*> inputs_, outputs_;
  uint64_t done_ = 0;
  uint64_t quantum_ = 0, chunks_ = 0, base_ = 0, put_ = 0, folded_ = 0, taken_ = 0;
  uint64_t known_put_ = 0, known_folded_ = 0, known_taken_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_board_operation(Board& board, uint64_t op,
                                                const OpRequest& request) {
  return std::make_unique<BoardOperation>(board, op, request);
}

}  // namespace corro::collective
