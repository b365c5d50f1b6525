// The pairwise path of a board: an allreduce whose folds need whole vectors (Adasum). Ranks at
// distances 1, 2, 4, ... hand each other what they have, both fold it, and so on; as
// recursive_doubling() does it over messages, to the same bits.
//
// A vector travels through its rank's staging buffers, chunk c through stage[c % kStages]. All
// ranks count the chunks of all rounds alike (board.h, staged_chunks), also those in which they
// give or take nothing. A rank puts a chunk once everyone is through with the one that was there
// before, and only in the round it is in: what it gives in the next one is not folded yet. Of the
// ranks that have taken least, the rank that each waits for may put its chunk, so one of them
// always goes on.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "base/power_of_two.h"
#include "collective/board/board_exchange.h"
#include "collective/operation/fold.h"

namespace corro::collective {
namespace {

constexpr int kPairwiseChunks = 8;
constexpr int32_t kNobody = -1;

/// What a rank does in a round.
struct Round {
  int32_t gives_to = kNobody;
  int32_t takes_from = kNobody;
  bool folds = false;  ///< Else what it takes is the result.
  bool last = false;   ///< What it folds is the result.
};

/// The rounds of one rank; as many for every rank.
std::vector<Round> rounds_of(int32_t rank, int32_t size) {
  const PowerOfTwo ids(size);
  const bool extra = ids.is_extra(rank), has_extra = ids.has_extra(rank);
  std::vector<Round> rounds;
  if (ids.extras > 0) {
    Round& first = rounds.emplace_back();
    if (extra) first.gives_to = rank - 1;
    if (has_extra) first = {.takes_from = rank + 1, .folds = true};
  }
  for (int32_t distance = 1; distance < ids.active; distance *= 2) {
    Round& round = rounds.emplace_back();
    if (extra) continue;
    const int32_t other = ids.rank_of(ids.id_of(rank) ^ distance);
    round = {
        .gives_to = other, .takes_from = other, .folds = true, .last = 2 * distance == ids.active};
  }
  if (ids.extras > 0) {
    Round& last = rounds.emplace_back();
    if (extra) last.takes_from = rank - 1;
    if (has_extra) last.gives_to = rank + 1;
  }
  return rounds;
}

class PairwisePath final : public Operation {
 public:
  explicit PairwisePath(const BoardExchange& exchange)
      : exchange_(exchange),
        request_(exchange.request()),
        rank_(exchange.rank()),
        rounds_(rounds_of(exchange.rank(), exchange.size())),
        bytes_(request_.count * exchange.element()),
        chunks_((bytes_ + kStageBytes - 1) / kStageBytes),
        total_(chunks_ * rounds_.size()),
        have_(request_.input),
        base_(exchange.board().staged_chunks) {
    phase_ = obs::Phase::kTransfer;
    torn_ = true;
    exchange_.board().staged_chunks += total_;
    if (input_scale(request_) != 1) {
      copy_contribution(request_, request_.output, request_.input, request_.count);
      have_ = request_.output;
    }
    if (rounds_.empty()) fold_final(request_, 1, request_.output, {&have_, 1}, request_.count);
  }

  Progress poll(bool /*oldest*/) override {
    bool moved = false;
    for (int i = 0; i < kPairwiseChunks && taken_ < total_; ++i) {
      const bool put = put_chunk();
      const auto taken = take_chunk();
      if (!taken.ok()) return give_group_up(taken.status());
      if (!put && !*taken) break;
      moved = true;
    }
    if (taken_ == total_) return finish({});
    return moved ? Progress::kMoved : Progress::kIdle;
  }

 private:
  [[nodiscard]] uint64_t round() const { return taken_ / chunks_; }
  /// Where a chunk of a vector begins, and how long it is, in bytes.
  [[nodiscard]] std::pair<uint64_t, uint64_t> range_of(uint64_t chunk) const {
    const uint64_t begin = chunk % chunks_ * kStageBytes;
    return {begin, std::min<uint64_t>(kStageBytes, bytes_ - begin)};
  }

  bool put_chunk() {
    if (put_ == total_ || put_ / chunks_ > round()) return false;
    const uint64_t next = base_ + put_ + 1;
    if (next > kStages && known_taken_ < next - kStages) {
      const Board::Least least = exchange_.board().least_of(&GroupSection::taken);
      known_taken_ = least.value;
      if (known_taken_ < next - kStages) {
        wait(obs::Phase::kTransfer, least.rank);
        return false;
      }
    }
    if (rounds_[round()].gives_to != kNobody) {
      const auto [begin, length] = range_of(put_);
      auto* stages = exchange_.board().stages_of(rank_).value();
      std::memcpy(stages->stage[(base_ + put_) % kStages], have_ + begin, length);
    }
    ++put_;
    exchange_.board().publish(exchange_.board().own().put, base_ + put_);
    return true;
  }

  Result<bool> take_chunk() {
    const Round& round_now = rounds_[round()];
    // A round is over once this rank has given its part of it, too.
    if (put_ <= taken_) return false;
    const int32_t from = round_now.takes_from;
    if (from != kNobody) {
      const auto& put = exchange_.board().member(from).section->put;
      if (put.load(std::memory_order_seq_cst) <= base_ + taken_) {
        wait(obs::Phase::kTransfer, from);
        return false;
      }
      CORRO_ASSIGN(const Stages* stages, exchange_.board().stages_of(from));
      if (stages == nullptr) return exchange_.impossible(from, "its stages are not in its arena");
      std::byte* into = round_now.folds ? others() : request_.output;
      const auto [begin, length] = range_of(taken_);
      std::memcpy(into + begin, stages->stage[(base_ + taken_) % kStages], length);
    }
    const bool ends_round = (taken_ + 1) % chunks_ == 0;
    if (ends_round && round_now.folds) fold(round_now);
    ++taken_;
    exchange_.board().publish(exchange_.board().own().taken, base_ + taken_);
    return true;
  }

  /// Where another rank's vector is gathered; not for those that never fold.
  std::byte* others() {
    if (others_ == nullptr) others_ = std::make_unique_for_overwrite<std::byte[]>(bytes_);
    return others_.get();
  }

  void fold(const Round& round) {
    const bool lower = rank_ < round.takes_from;
    const std::array<const std::byte*, 2> sources = {lower ? have_ : others(),
                                                     lower ? others() : have_};
    if (round.last) {
      fold_final(request_, exchange_.size(), request_.output, sources, request_.count);
    } else {
      fold_partial(request_, request_.output, sources, request_.count);
    }
    have_ = request_.output;
  }

  const BoardExchange& exchange_;
  const OpRequest& request_;
  const int32_t rank_;
  const std::vector<Round> rounds_;
  const uint64_t bytes_;   ///< Of a vector: more than a slot has.
  const uint64_t chunks_;  ///< Of a vector.
  const uint64_t total_;   ///< Chunks of all rounds.
  const std::byte* have_;  ///< The fold of the ranks so far.
  const uint64_t base_;
  std::unique_ptr<std::byte[]> others_;
  uint64_t put_ = 0, taken_ = 0, known_taken_ = 0;
};

}  // namespace

std::unique_ptr<Operation> make_pairwise_path(const BoardExchange& exchange) {
  return std::make_unique<PairwisePath>(exchange);
}

}  // namespace corro::collective
