// The direct path of a board: every rank reaches every buffer, in a mapped arena or in the private
// memory of its owner (process_vm_readv), so nothing is staged. Folds are made by the owners of
// slices, who store the result to mapped buffers; private memory is only ever written by its own
// process, which fetches the slices. So a rank that is late after a failure overwrites nothing.
#include <algorithm>
#include <cstring>

#include "collective/board_exchange.h"
#include "collective/fold.h"
#include "io/process.h"

namespace corro::collective {
namespace {

constexpr uint64_t kMappedChunkBytes = 32U << 10U;  ///< Stays in L1 between fold and stores.
constexpr uint64_t kCopiedChunkBytes = 64U << 10U;  ///< Where the kernel's copies are fastest.
constexpr uint64_t kBytesPerPoll = 1U << 20U;       ///< Bounds how long one poll takes.

/// A rank's buffer: mapped here, or at an address of its process.
struct Place {
  std::byte* mapped = nullptr;
  uint64_t address = 0;
};

class DirectPath final : public Operation {
 public:
  DirectPath(const BoardExchange& exchange, std::vector<Place> inputs, std::vector<Place> outputs,
             bool copied)
      : exchange_(exchange),
        request_(exchange.request()),
        element_(exchange.element()),
        rank_(exchange.rank()),
        size_(exchange.size()),
        chunk_((copied ? kCopiedChunkBytes : kMappedChunkBytes) / element_),
        inputs_(std::move(inputs)),
        outputs_(std::move(outputs)) {
    phase_ = obs::Phase::kTransfer;
    torn_ = true;
  }

  Progress poll(bool /*oldest*/) override {
    switch (state_) {
      case State::kWork:
        return move(make_own_part(), State::kFetch);
      case State::kFetch:
        if (!fetches()) return move(true, State::kFinish);
        if (!reached(arrived_, 1)) return Progress::kIdle;
        return move(fetch_slice(arrived_), State::kFinish);
      case State::kFinish:
        while (arrived_ < size_ && reached(arrived_, 2)) ++arrived_;
        return arrived_ == size_ ? finish({}) : Progress::kIdle;
    }
    return Progress::kIdle;
  }

 private:
  /// What the counter GroupSection::finished says: twice the op id, and one more for each of these
  /// that is over.
  enum class State { kWork, kFetch, kFinish };

  Progress move(const Result<bool>& complete, State next) {
    if (!complete.ok()) return refuse(complete.status());
    if (!*complete) return Progress::kMoved;
    const uint64_t over = next == State::kFetch ? 1 : 2;
    exchange_.board().publish(exchange_.board().own().finished, 2 * exchange_.op() + over);
    state_ = next;
    arrived_ = 0;
    return Progress::kMoved;
  }

  /// True once rank r is so far; else this rank waits for it.
  bool reached(int32_t r, uint64_t over) {
    const auto& finished = exchange_.board().member(r).section->finished;
    if (finished.load(std::memory_order_seq_cst) >= 2 * exchange_.op() + over) return true;
    wait(over == 1 ? obs::Phase::kTransfer : obs::Phase::kFinish, r);
    return false;
  }

  Result<bool> make_own_part() {
    if (is_sliced(request_.kind)) return fold_own_slice();
    if (!exchange_.shape().takes()) return true;
    return exchange_.shape().folds() ? fold_own_block() : take_blocks();
  }

  /// True if nobody else can store to this rank's result.
  [[nodiscard]] bool fetches() const {
    return is_sliced(request_.kind) && exchange_.line_of(rank_).where == Where::kCopied;
  }

  /// Another rank's memory could not be read. One that has ended will be missed soon, and by its
  /// right name; anything else ends the group: others may have used what this rank could not.
  Progress refuse(const Status& failure) {
    if (failure.code() == Code::kNotFound) return Progress::kIdle;
    return give_group_up(failure);
  }

  // -- other ranks' memory ------------------------------------------------------------------------

  Status read(int32_t r, const Place& place, uint64_t at, uint64_t count, std::byte* into) {
    if (place.mapped == nullptr) {
      return io::read_process(exchange_.board().member(r).pid, place.address + at * element_, into,
                              count * element_);
    }
    if (into != place.mapped + at * element_)
      std::memmove(into, place.mapped + at * element_, count * element_);
    return {};
  }

  /// `count` elements of a rank's input from `at` on: where they lie, or as a copy in the scratch.
  Result<const std::byte*> look_at(int32_t r, uint64_t at, uint64_t count) {
    const Place& place = inputs_[static_cast<size_t>(r)];
    if (place.mapped != nullptr) return static_cast<const std::byte*>(place.mapped + at * element_);
    std::byte* copy = exchange_.board().scratch(static_cast<size_t>(size_) * kCopiedChunkBytes) +
                      static_cast<size_t>(r) * kCopiedChunkBytes;
    CORRO_TRY(read(r, place, at, count, copy));
    return static_cast<const std::byte*>(copy);
  }

  Result<Sources> look_at_all(uint64_t at, uint64_t count) {
    Sources sources;
    for (int32_t r = 0; r < size_; ++r) {
      CORRO_ASSIGN(sources[static_cast<size_t>(r)], look_at(r, at, count));
    }
    return sources;
  }

  // -- the work: each returns whether it is complete ----------------------------------------------

  /// allreduce, reduce: folds the slice that this rank owns, and stores it to every mapped result.
  Result<bool> fold_own_slice() {
    const auto [begin, end] = exchange_.slice_of(rank_);
    const int32_t first = request_.kind == OpKind::kReduce ? request_.root : rank_;
    for (uint64_t budget = kBytesPerPoll / element_; begin + done_ < end;) {
      if (budget == 0) return false;
      const uint64_t at = begin + done_;
      const uint64_t count = std::min(chunk_, end - at);
      CORRO_ASSIGN(const Sources sources, look_at_all(at, count));
      std::byte* into = outputs_[static_cast<size_t>(first)].mapped + at * element_;
      fold_final(request_, size_, into, {sources.data(), static_cast<size_t>(size_)}, count);
      for (int32_t r = 0; r < size_; ++r) {
        std::byte* other = outputs_[static_cast<size_t>(r)].mapped;
        if (r != first && other != nullptr)
          std::memcpy(other + at * element_, into, count * element_);
      }
      done_ += count;
      budget -= std::min(budget, count);
    }
    return true;
  }

  /// Reads the slice that another rank has made into the own result; true after the last one.
  Result<bool> fetch_slice(int32_t owner) {
    const auto [begin, end] = exchange_.slice_of(owner);
    if (owner != rank_ && begin < end) {
      CORRO_TRY(read(owner, outputs_[static_cast<size_t>(owner)], begin, end - begin,
                     request_.output + begin * element_));
    }
    ++arrived_;
    return arrived_ == size_;
  }

  /// reducescatter: folds the block that is for this rank.
  Result<bool> fold_own_block() {
    const Shape& shape = exchange_.shape();
    const uint64_t offset = shape.put_offset(rank_);
    for (uint64_t budget = kBytesPerPoll / element_; done_ < shape.output_count();) {
      if (budget == 0) return false;
      const uint64_t count = std::min(chunk_, shape.output_count() - done_);
      CORRO_ASSIGN(const Sources sources, look_at_all(offset + done_, count));
      fold_final(request_, size_, request_.output + done_ * element_,
                 {sources.data(), static_cast<size_t>(size_)}, count);
      done_ += count;
      budget -= std::min(budget, count);
    }
    return true;
  }

  /// All other kinds: takes the blocks that are for this rank out of the contributions.
  Result<bool> take_blocks() {
    const Shape& shape = exchange_.shape();
    for (int32_t r = 0; r < size_; ++r) {
      const uint64_t count = shape.take_count(r);
      if (count == 0) continue;
      std::byte* into = request_.output + shape.take_offset(r) * element_;
      CORRO_TRY(
          read(r, inputs_[static_cast<size_t>(r)], exchange_.block_offset_in(r), count, into));
    }
    return true;
  }

  const BoardExchange& exchange_;
  const OpRequest& request_;
  const uint64_t element_;
  const int32_t rank_;
  const int32_t size_;
  const uint64_t chunk_;  ///< Elements.
  const std::vector<Place> inputs_, outputs_;
  uint64_t done_ = 0;
  State state_ = State::kWork;
  int32_t arrived_ = 0;
};

/// Where `elements` of a rank's buffer are; nullopt for an offset outside of its arena.
std::optional<Place> resolve(const BoardExchange& exchange, int32_t r, uint64_t place,
                             const std::byte* own, uint64_t elements) {
  if (r == exchange.rank()) return Place{.mapped = const_cast<std::byte*>(own)};
  if (exchange.line_of(r).where == Where::kCopied) return Place{.address = place};
  std::byte* mapped = exchange.board().member(r).segment->at(place, elements * exchange.element());
  if (mapped == nullptr) return std::nullopt;
  return Place{.mapped = mapped};
}

/// Decided from the lines alone, so by every rank alike.
bool reachable(const BoardExchange& exchange, bool& copied) {
  bool all_read = true;
  for (int32_t r = 0; r < exchange.size(); ++r) {
    const Line& line = exchange.line_of(r);
    if (line.where != Where::kMapped && line.where != Where::kCopied) return false;
    copied = copied || line.where == Where::kCopied;
    all_read = all_read && line.reads != 0;
  }
  return !copied || all_read;
}

}  // namespace

std::unique_ptr<Operation> make_direct_path(const BoardExchange& exchange) {
  bool copied = false;
  if (!reachable(exchange, copied)) return nullptr;
  const OpRequest& request = exchange.request();
  const auto ranks = static_cast<size_t>(exchange.size());
  std::vector<Place> inputs(ranks);
  std::vector<Place> outputs(ranks);
  for (int32_t r = 0; r < exchange.size(); ++r) {
    const Line& line = exchange.line_of(r);
    if (exchange.shape().contributes(r) && exchange.contribution_of(r) > 0) {
      const auto place =
          resolve(exchange, r, line.input_place, request.input, exchange.contribution_of(r));
      if (!place) return nullptr;
      inputs[static_cast<size_t>(r)] = *place;
    }
    const bool gets = request.kind == OpKind::kAllreduce || r == request.root;
    if (is_sliced(request.kind) && gets) {
      const auto place = resolve(exchange, r, line.output_place, request.output, request.count);
      if (!place) return nullptr;
      outputs[static_cast<size_t>(r)] = *place;
    }
  }
  return std::make_unique<DirectPath>(exchange, std::move(inputs), std::move(outputs), copied);
}

}  // namespace corro::collective
