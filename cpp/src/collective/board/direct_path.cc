// The direct path of a board: every rank reaches every buffer, in a mapped arena or in the private
// memory of its owner (process_vm_readv), so nothing is staged. Folds are made by the owners of
// slices, who store the result to mapped buffers; private memory is only ever written by its own
// process, which fetches the slices.
//
// A rank may be stopped between any two instructions, and store when the others have long given
// the operation up. So only whole pages of a mapped result are stored to, which their owner takes
// away when it fails (Segment::set_apart); what shares its pages with other data, the edges, goes
// to the slot beside the owner's line, from where the owner takes it at the end.
#include <algorithm>
#include <cstring>

#include "collective/board/board_exchange.h"
#include "collective/operation/fold.h"
#include "io/process.h"

namespace corro::collective {
namespace {

constexpr uint64_t kMappedChunkBytes = 32U << 10U;  ///< Stays in L1 between fold and stores.
constexpr uint64_t kCopiedChunkBytes = 64U << 10U;  ///< Where the kernel's copies are fastest.
constexpr uint64_t kBytesPerPoll = 1U << 20U;       ///< Bounds how long one poll takes.

/// What this rank reads or writes of a rank's buffer: mapped here, or at an address of its process.
struct Place {
  std::byte* mapped = nullptr;
  uint64_t address = 0;
  std::byte* slot = nullptr;  ///< For the edges of another rank's result.
  Edges edges = {.head = 0, .tail = UINT64_MAX};
};

constexpr uint64_t kTailInSlot = kSlotBytes / 2;

struct Run {
  std::byte* place;
  uint64_t bytes;
};

/// Where the bytes of a mapped result from `from` on are stored, as far as they lie together.
Run run_of(const Place& result, uint64_t from, uint64_t until) {
  const auto [head, tail] = result.edges;
  if (from < head) return {result.slot + from, std::min(until, head) - from};
  if (from < tail) return {result.mapped + from, std::min(until, tail) - from};
  return {result.slot + kTailInSlot + (from - tail), until - from};
}

/// Fixed before the work begins: what lines say may change afterwards.
struct Buffers {
  std::vector<Place> inputs, outputs;  ///< By group rank.
  bool copied = false;                 ///< Some are in private memory.
  bool fetches = false;                ///< Nobody else can store to this rank's result.
  Place own_result;                    ///< As the others see it; no edges unless they store there.
};

class DirectPath final : public Operation {
 public:
  DirectPath(const BoardExchange& exchange, Buffers buffers)
      : exchange_(exchange),
        request_(exchange.request()),
        element_(exchange.element()),
        rank_(exchange.rank()),
        size_(exchange.size()),
        chunk_((buffers.copied ? kCopiedChunkBytes : kMappedChunkBytes) / element_),
        fetches_(buffers.fetches),
        own_result_(buffers.own_result),
        inputs_(std::move(buffers.inputs)),
        outputs_(std::move(buffers.outputs)),
        sources_(static_cast<size_t>(size_)) {
    phase_ = obs::Phase::kTransfer;
    torn_ = true;
  }

  Progress poll(bool /*oldest*/) override {
    switch (state_) {
      case State::kWork:
        return move(make_own_part(), State::kFetch);
      case State::kFetch:
        if (!fetches_) return move(true, State::kFinish);
        if (!reached(arrived_, 1)) return Progress::kIdle;
        return move(fetch_slice(arrived_), State::kFinish);
      case State::kFinish:
        while (arrived_ < size_ && reached(arrived_, 2)) ++arrived_;
        if (arrived_ < size_) return Progress::kIdle;
        take_edges();
        return finish({});
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

  /// The same of every rank, in sources_.
  Status look_at_all(uint64_t at, uint64_t count) {
    for (int32_t r = 0; r < size_; ++r) {
      CORRO_ASSIGN(sources_[static_cast<size_t>(r)], look_at(r, at, count));
    }
    return {};
  }

  // -- the work: each returns whether it is complete ----------------------------------------------

  /// allreduce, reduce: folds the slice that this rank owns, and stores it to every mapped result.
  Result<bool> fold_own_slice() {
    const auto [begin, end] = exchange_.slice_of(rank_);
    const int32_t first = request_.kind == OpKind::kReduce ? request_.root : rank_;
    for (uint64_t budget = kBytesPerPoll / element_; begin + done_ < end;) {
      if (budget == 0) return false;
      const uint64_t at = begin + done_;
      const Run run = run_of(outputs_[static_cast<size_t>(first)], at * element_,
                             std::min(at + chunk_, end) * element_);
      const uint64_t count = run.bytes / element_;
      CORRO_TRY(look_at_all(at, count));
      fold_final(request_, size_, run.place, sources_, count);
      for (int32_t r = 0; r < size_; ++r) {
        const Place& other = outputs_[static_cast<size_t>(r)];
        if (r != first && other.mapped != nullptr) store(other, at * element_, run);
      }
      done_ += count;
      budget -= std::min(budget, count);
    }
    return true;
  }

  static void store(const Place& result, uint64_t at, const Run& made) {
    for (uint64_t done = 0; done < made.bytes;) {
      const Run into = run_of(result, at + done, at + made.bytes);
      std::memcpy(into.place, made.place + done, into.bytes);
      done += into.bytes;
    }
  }

  /// Takes what others have stored in the own slot: the edges, but for those in the own slice.
  void take_edges() {
    const auto [head, tail] = own_result_.edges;
    if (own_result_.slot == nullptr) return;
    const auto [first, last] = exchange_.slice_of(rank_);
    const uint64_t begin = first * element_, end = last * element_;
    const uint64_t bytes = request_.count * element_;
    for (const auto& [from, until] : {std::pair(uint64_t{0}, head), std::pair(tail, bytes)}) {
      take_edge(from, std::min(until, begin));
      take_edge(std::max(from, end), until);
    }
  }

  void take_edge(uint64_t from, uint64_t until) {
    if (from >= until) return;
    std::memcpy(request_.output + from, run_of(own_result_, from, until).place, until - from);
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
    for (uint64_t budget = kBytesPerPoll / element_; done_ < shape.output_count();) {
      if (budget == 0) return false;
      const uint64_t count = std::min(chunk_, shape.output_count() - done_);
      CORRO_TRY(look_at_all(done_, count));
      fold_final(request_, size_, request_.output + done_ * element_, sources_, count);
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
      CORRO_TRY(read(r, inputs_[static_cast<size_t>(r)], 0, count, into));
    }
    return true;
  }

  const BoardExchange& exchange_;
  const OpRequest& request_;
  const uint64_t element_;
  const int32_t rank_;
  const int32_t size_;
  const uint64_t chunk_;  ///< Elements.
  const bool fetches_;
  const Place own_result_;
  const std::vector<Place> inputs_, outputs_;
  std::vector<const std::byte*> sources_;  ///< By group rank.
  uint64_t done_ = 0;
  State state_ = State::kWork;
  int32_t arrived_ = 0;
};

/// What a rank offers in its line.
struct Offer {
  Where where;
  bool reads;
  uint64_t input, output;
};

std::vector<Offer> offers_of(const BoardExchange& exchange) {
  std::vector<Offer> offers;
  offers.reserve(static_cast<size_t>(exchange.size()));
  for (int32_t r = 0; r < exchange.size(); ++r) {
    const Line& line = exchange.line_of(r);
    offers.push_back({.where = read_once(line.where),
                      .reads = read_once(line.reads) != 0,
                      .input = read_once(line.input_place),
                      .output = read_once(line.output_place)});
  }
  return offers;
}

/// Decided from the lines alone, so by every rank alike. Kernels fold from aligned places only, and
/// the result of a reduce is stored by all: it has to be mapped.
bool reachable(const BoardExchange& exchange, const std::vector<Offer>& offers) {
  const bool folds = exchange.shape().folds();
  bool copied = false;
  bool all_read = true;
  for (const Offer& offer : offers) {
    const bool mapped = offer.where == Where::kMapped;
    if (!mapped && offer.where != Where::kCopied) return false;
    if (!mapped && exchange.request().kind == OpKind::kReduce) return false;
    if (mapped && folds && (offer.input | offer.output) % exchange.element() != 0) return false;
    copied = copied || !mapped;
    all_read = all_read && offer.reads;
  }
  return !copied || all_read;
}

/// Where elements [begin, end) of another rank's buffer are, which starts at `place`.
Result<Place> reach(const BoardExchange& exchange, int32_t r, Where where, uint64_t place,
                    std::pair<uint64_t, uint64_t> range) {
  const uint64_t start = range.first * exchange.element();
  if (where == Where::kCopied) return Place{.address = place + start};
  CORRO_ASSIGN(std::byte * mapped,
               exchange.board().memory_of(r, place, range.second * exchange.element()));
  if (mapped == nullptr) return exchange.impossible(r, "its buffer is not in its arena");
  return Place{.mapped = mapped + start};
}

Result<Place> input_of(const BoardExchange& exchange, int32_t r, const Offer& offer) {
  const auto range = exchange.read_range(r);
  if (range.first == range.second) return Place{};
  if (r != exchange.rank()) return reach(exchange, r, offer.where, offer.input, range);
  auto* own = const_cast<std::byte*>(exchange.request().input);
  return Place{.mapped = own + range.first * exchange.element()};
}

/// Of those that get a folded result.
Result<Place> output_of(const BoardExchange& exchange, int32_t r, const Offer& offer) {
  const OpRequest& request = exchange.request();
  if (request.kind != OpKind::kAllreduce && r != request.root) return Place{};
  if (r == exchange.rank()) return Place{.mapped = request.output};
  CORRO_ASSIGN(Place place, reach(exchange, r, offer.where, offer.output, {0, request.count}));
  if (place.mapped != nullptr) {
    place.slot = exchange.slot_of(r);
    place.edges = edges_of(offer.output, request.count * exchange.element());
  }
  return place;
}

/// Where others store the own result: what they know of it from the own line.
Place own_result_of(const BoardExchange& exchange) {
  const OpRequest& request = exchange.request();
  const uint64_t bytes = request.count * exchange.element();
  if (!is_sliced(request.kind) || !exchange.shape().takes()) return {};
  const auto offset =
      exchange.board().member(exchange.rank()).segment->offset_of(request.output, bytes);
  if (!offset) return {};
  return {.slot = exchange.slot_of(exchange.rank()), .edges = edges_of(*offset, bytes)};
}

}  // namespace

Result<std::unique_ptr<Operation>> make_direct_path(const BoardExchange& exchange) {
  const std::vector<Offer> offers = offers_of(exchange);
  if (!reachable(exchange, offers)) return std::unique_ptr<Operation>();
  const OpKind kind = exchange.request().kind;
  const bool own_copied = offers[static_cast<size_t>(exchange.rank())].where == Where::kCopied;
  Buffers buffers{.inputs = {},
                  .outputs = {},
                  .fetches = kind == OpKind::kAllreduce && own_copied,
                  .own_result = {}};
  if (!own_copied) buffers.own_result = own_result_of(exchange);
  buffers.inputs.reserve(offers.size());
  buffers.outputs.reserve(offers.size());
  for (int32_t r = 0; r < exchange.size(); ++r) {
    const Offer& offer = offers[static_cast<size_t>(r)];
    buffers.copied = buffers.copied || offer.where == Where::kCopied;
    CORRO_ASSIGN(buffers.inputs.emplace_back(), input_of(exchange, r, offer));
    if (!is_sliced(kind)) continue;
    CORRO_ASSIGN(buffers.outputs.emplace_back(), output_of(exchange, r, offer));
  }
  return std::unique_ptr<Operation>(std::make_unique<DirectPath>(exchange, std::move(buffers)));
}

}  // namespace corro::collective
