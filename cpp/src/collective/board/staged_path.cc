// The staged path of a board: private memory travels through shared staging buffers, chunk c of
// every block through stage[c % kStages], so that putting, folding and taking overlap among the
// ranks.
#include <algorithm>
#include <array>
#include <cstring>

#include "collective/board/board_exchange.h"
#include "collective/operation/fold.h"

namespace corro::collective {
namespace {

constexpr int kChunksPerPoll = 8;

class StagedPath final : public Operation {
 public:
  explicit StagedPath(const BoardExchange& exchange)
      : exchange_(exchange),
        request_(exchange.request()),
        rank_(exchange.rank()),
        size_(exchange.size()),
        element_(exchange.element()),
        split_(exchange.shape().split() || is_sliced(request_.kind)) {
    phase_ = obs::Phase::kTransfer;
    torn_ = true;
    const auto blocks = static_cast<uint64_t>(split_ ? size_ : 1);
    quantum_ = std::max<uint64_t>(kStageBytes / element_ / blocks, 1);
    chunks_ = (largest_block() + quantum_ - 1) / quantum_;
    stages_[static_cast<size_t>(rank_)] = exchange_.board().stages_of(rank_).value();
    base_ = exchange_.board().staged_chunks;
    exchange_.board().staged_chunks += chunks_;
  }

  Progress poll(bool /*oldest*/) override {
    bool moved = false;
    if (!stages_known_ && all_reached(&GroupSection::put, base_ + 1, known_put_)) {
      if (Status found = find_stages(); !found.ok()) return give_group_up(std::move(found));
    }
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

 private:
  /// Looks for everyone's stages, who all have put something there.
  Status find_stages() {
    for (int32_t r = 0; r < size_; ++r) {
      Stages*& stages = stages_[static_cast<size_t>(r)];
      CORRO_ASSIGN(stages, exchange_.board().stages_of(r));
      if (stages == nullptr) return exchange_.impossible(r, "its stages are not in its arena");
    }
    stages_known_ = true;
    return {};
  }

  /// Elements of the largest block of any pair of ranks: all count the same chunks.
  [[nodiscard]] uint64_t largest_block() const {
    if (is_sliced(request_.kind)) return exchange_.slice_of(0).second;
    uint64_t largest = exchange_.shape().largest_block();
    if (exchange_.shape().agreed()) return largest;
    for (int32_t r = 0; r < size_; ++r) {
      for (int32_t d = 0; d < size_; ++d)
        largest = std::max(largest, exchange_.table_entry(r, d, 0));
    }
    return largest;
  }

  /// True once `counter` of every member is at least `wanted`, counted as the group's chunks are:
  /// over all operations.
  bool all_reached(std::atomic<uint64_t> GroupSection::* counter, uint64_t wanted,
                   uint64_t& known) {
    if (known >= wanted) return true;
    const Board::Least least = exchange_.board().least_of(counter);
    known = least.value;
    if (known < wanted) wait(obs::Phase::kTransfer, least.rank);
    return known >= wanted;
  }

  [[nodiscard]] std::byte* stage_of(int32_t r, uint64_t chunk) const {
    return stages_[static_cast<size_t>(r)]->stage[(base_ + chunk) % kStages];
  }
  [[nodiscard]] std::byte* result_of(int32_t r, uint64_t chunk) const {
    return stages_[static_cast<size_t>(r)]->results[(base_ + chunk) % kStages];
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
    if (exchange_.shape().contributes(rank_)) {
      for (int32_t d = 0; d < (split_ ? size_ : 1); ++d) {
        const auto [offset, count] = put_range(d);
        const uint64_t n = chunk_count(put_, count);
        if (n == 0) continue;
        const uint64_t place = split_ ? static_cast<uint64_t>(d) * quantum_ : 0;
        copy_contribution(request_, stage_of(rank_, put_) + place * element_,
                          request_.input + (offset + put_ * quantum_) * element_, n);
      }
    }
    ++put_;
    exchange_.board().publish(exchange_.board().own().put, base_ + put_);
    return true;
  }

  [[nodiscard]] std::pair<uint64_t, uint64_t> put_range(int32_t d) const {
    if (!is_sliced(request_.kind))
      return {exchange_.shape().put_offset(d), exchange_.shape().put_count(d)};
    const auto [begin, end] = exchange_.slice_of(d);
    return {begin, end - begin};
  }

  /// allreduce and reduce: folds chunk `folded_` of the own slice into the results buffer.
  bool fold_chunk() {
    if (folded_ == chunks_ || !stages_known_ ||
        !all_reached(&GroupSection::put, base_ + folded_ + 1, known_put_))
      return false;
    const auto [begin, end] = exchange_.slice_of(rank_);
    Sources sources;
    for (int32_t r = 0; r < size_; ++r) {
      sources[static_cast<size_t>(r)] =
          stage_of(r, folded_) + static_cast<uint64_t>(rank_) * quantum_ * element_;
    }
    fold_final(request_, size_, result_of(rank_, folded_),
               {sources.data(), static_cast<size_t>(size_)}, chunk_count(folded_, end - begin));
    ++folded_;
    exchange_.board().publish(exchange_.board().own().folded, base_ + folded_);
    return true;
  }

  bool take_chunk() {
    if (taken_ == chunks_ || !stages_known_) return false;
    if (is_sliced(request_.kind)) {
      if (!all_reached(&GroupSection::folded, base_ + taken_ + 1, known_folded_)) return false;
      if (exchange_.shape().takes()) take_results();
    } else {
      if (!all_reached(&GroupSection::put, base_ + taken_ + 1, known_put_)) return false;
      if (exchange_.shape().takes()) take_blocks();
    }
    ++taken_;
    exchange_.board().publish(exchange_.board().own().taken, base_ + taken_);
    return true;
  }

  void take_results() {
    for (int32_t r = 0; r < size_; ++r) {
      const auto [begin, end] = exchange_.slice_of(r);
      const uint64_t n = chunk_count(taken_, end - begin);
      if (n == 0) continue;
      std::memcpy(request_.output + (begin + taken_ * quantum_) * element_, result_of(r, taken_),
                  n * element_);
    }
  }

  /// reducescatter: folds chunk `taken_` of the block for this rank, which is at `place` in a
  /// stage.
  void fold_block(uint64_t place) {
    const uint64_t n = chunk_count(taken_, exchange_.shape().output_count());
    if (n == 0) return;
    Sources sources;
    for (int32_t r = 0; r < size_; ++r)
      sources[static_cast<size_t>(r)] = stage_of(r, taken_) + place;
    fold_final(request_, size_, request_.output + taken_ * quantum_ * element_,
               {sources.data(), static_cast<size_t>(size_)}, n);
  }

  void take_blocks() {
    const uint64_t place = split_ ? static_cast<uint64_t>(rank_) * quantum_ * element_ : 0;
    const uint64_t start = taken_ * quantum_;
    if (exchange_.shape().folds()) return fold_block(place);
    for (int32_t r = 0; r < size_; ++r) {
      const uint64_t n = chunk_count(taken_, exchange_.shape().take_count(r));
      if (n == 0) continue;
      std::memcpy(request_.output + (exchange_.shape().take_offset(r) + start) * element_,
                  stage_of(r, taken_) + place, n * element_);
    }
  }

  const BoardExchange& exchange_;
  const OpRequest& request_;
  const int32_t rank_;
  const int32_t size_;
  const uint64_t element_;
  const bool split_;  ///< A stage holds a part for each rank, not one for all.
  std::array<Stages*, kMaxBoardRanks> stages_{};
  bool stages_known_ = false;
  uint64_t quantum_ = 0;  ///< Elements of one block in one chunk.
  uint64_t chunks_ = 0, base_ = 0;
  uint64_t put_ = 0, folded_ = 0, taken_ = 0;
  uint64_t known_put_ = 0, known_folded_ = 0, known_taken_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_staged_path(const BoardExchange& exchange) {
  return std::make_unique<StagedPath>(exchange);
}

}  // namespace corro::collective
