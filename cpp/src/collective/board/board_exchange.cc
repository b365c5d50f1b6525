#include "collective/board/board_exchange.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "collective/operation/fold.h"

namespace corro::collective {
namespace {

uint64_t address_of(const std::byte* memory) { return reinterpret_cast<uintptr_t>(memory); }

}  // namespace

BoardExchange::BoardExchange(Board& board, uint64_t op, const OpRequest& request)
    : board_(board),
      op_(op),
      request_(request),
      size_(board.size()),
      element_(size_of(request.dtype)),
      shape_(request, board.rank(), size_),
      signature_(signature_of(request, size_).pack()) {}

// -- publish the own line -------------------------------------------------------------------------

void BoardExchange::publish() {
  Line& line = board_.own().lines[op_ % kLines];
  line.begin(signature_);
  line.reads = board_.reads_everyone() ? 1 : 0;
  const uint64_t bytes = shape_.contribution() * element_;
  const uint64_t most = largest_contribution() * element_ + table_bytes();
  if (in_lines()) {
    line.where = Where::kLine;
    copy_contribution(request_, line.data, request_.input, shape_.contribution());
  } else if (most <= kSlotBytes) {
    line.where = Where::kSlot;
    write_table();
    copy_contribution(request_, slot_of(rank()) + table_bytes(), request_.input,
                      shape_.contribution());
  } else {
    write_table();
    publish_place(line, bytes);
  }
  board_.publish(line.stamp, op_ + 1);
}

bool BoardExchange::needs_slot() const {
  const bool gets_ends = is_sliced(request_.kind) && shape_.takes();
  return !in_lines() && (gets_ends || !shape_.agreed() || certainly_small());
}

void BoardExchange::withdraw() {
  if (!others_store_) return;
  others_store_ = false;
  board_.set_apart(op_, request_.output, shape_.output_count() * element_);
}

/// The largest contribution of any rank where all know it; the own one for an uneven alltoall.
uint64_t BoardExchange::largest_contribution() const {
  if (!shape_.agreed()) return shape_.contribution();
  const auto ranks = static_cast<uint64_t>(size_);
  if (request_.kind == OpKind::kReducescatter || request_.kind == OpKind::kScatter) {
    return signature_of(request_, size_).count;
  }
  return shape_.split() ? shape_.largest_block() * ranks : shape_.largest_block();
}

void BoardExchange::publish_place(Line& line, uint64_t bytes) {
  line.where = Where::kPrivate;
  if (folds_whole_vectors(request_)) return;
  const bool needs_output = is_sliced(request_.kind) && shape_.takes();
  const uint64_t output_bytes = shape_.output_count() * element_;
  if (input_scale(request_) != 1 || overlaps(bytes, output_bytes)) return;
  const auto& own = *board_.member(rank()).segment;
  const auto input = bytes > 0 ? own.offset_of(request_.input, bytes) : std::optional<uint64_t>(0);
  const auto output =
      needs_output ? own.offset_of(request_.output, output_bytes) : std::optional<uint64_t>(0);
  if (input && output) {
    line.where = Where::kMapped;
    line.input_place = *input;
    line.output_place = *output;
    others_store_ = needs_output;
  } else if (request_.kind != OpKind::kReduce &&
             std::max(bytes, output_bytes) <= kMostCopiedBytes) {
    line.where = Where::kCopied;
    line.input_place = address_of(request_.input);
    line.output_place = address_of(request_.output);
  }
}

/// True if writing the own result could destroy input that others have not read yet: an operation
/// in place whose result does not lie over the own part of the input alone.
bool BoardExchange::overlaps(uint64_t input_bytes, uint64_t output_bytes) const {
  const uint64_t input = address_of(request_.input);
  const uint64_t output = address_of(request_.output);
  return shape_.split() && input < output + output_bytes && output < input + input_bytes;
}

// -- uneven alltoall: everyone publishes what it sends and expects --------------------------------

uint64_t BoardExchange::table_bytes() const {
  return shape_.agreed() ? 0 : static_cast<uint64_t>(size_) * 2 * sizeof(uint64_t);
}

void BoardExchange::write_table() {
  if (shape_.agreed()) return;
  auto* table = slot_of(rank());
  for (int32_t r = 0; r < size_; ++r) {
    const std::array<uint64_t, 2> entry = {shape_.put_count(r), shape_.take_count(r)};
    std::memcpy(table + static_cast<size_t>(r) * sizeof entry, entry.data(), sizeof entry);
  }
}

uint64_t BoardExchange::table_entry(int32_t from, int32_t to, size_t index) const {
  const auto* table = reinterpret_cast<const uint64_t*>(slot_of(from));
  return std::min(read_once(table[static_cast<size_t>(to) * 2 + index]), kMostElements + 1);
}

// -- read everyone's line -------------------------------------------------------------------------

int32_t BoardExchange::arrived() {
  while (arrived_ < size_ && line_of(arrived_).stamp.load(std::memory_order_seq_cst) == op_ + 1) {
    ++arrived_;
  }
  return arrived_;
}

Status BoardExchange::agreement() const {
  for (int32_t r = 0; r < size_; ++r) {
    if (line_of(r).signature() == line_of(0).signature()) continue;
    return mismatch(describe_difference(board_.member(0).world_rank, line_of(0).signature(),
                                        board_.member(r).world_rank, line_of(r).signature()),
                    r);
  }
  return shape_.agreed() ? Status() : tables_agree();
}

Status BoardExchange::tables_agree() const {
  for (int32_t from = 0; from < size_; ++from) {
    for (int32_t to = 0; to < size_; ++to) {
      const uint64_t sent = table_entry(from, to, 0);
      const uint64_t expected = table_entry(to, from, 1);
      if (sent > kMostElements) return impossible(from, "it sends more than 2^40 elements");
      if (sent == expected) continue;
      return mismatch(
          fmt::format("rank {} sends {} elements to rank {}, which expects {}",
                      board_.member(from).world_rank, sent, board_.member(to).world_rank, expected),
          to);
    }
  }
  return {};
}

Status BoardExchange::mismatch(const std::string& difference, int32_t who) const {
  return describe_mismatch(board_, op_, request_, difference, who);
}

Status BoardExchange::impossible(int32_t r, std::string_view what) const {
  return describe_impossible(board_, op_, request_, r, what);
}

// -- small: contributions are in lines and slots --------------------------------------------------

bool BoardExchange::all_small() const {
  if (shape_.agreed()) return certainly_small();
  for (int32_t r = 0; r < size_; ++r) {
    if (read_once(line_of(r).where) > Where::kSlot) return false;
  }
  return true;
}

const std::byte* BoardExchange::small_data(int32_t r) const {
  return in_lines() ? line_of(r).data : slot_of(r) + table_bytes();
}

Status BoardExchange::take_small() {
  if (!shape_.takes()) return {};
  if (!shape_.folds()) return take_small_blocks();
  Sources sources;
  for (int32_t r = 0; r < size_; ++r) {
    sources[static_cast<size_t>(r)] = small_data(r) + shape_.put_offset(rank()) * element_;
  }
  fold_final(request_, size_, request_.output, {sources.data(), static_cast<size_t>(size_)},
             shape_.output_count());
  return {};
}

Status BoardExchange::take_small_blocks() {
  for (int32_t r = 0; r < size_; ++r) {
    const auto [begin, end] = read_range(r);
    if (begin == end) continue;
    if (!shape_.agreed() && end * element_ > kSlotBytes - table_bytes()) {
      return impossible(r, fmt::format("its block for rank {} is not in its slot",
                                       board_.member(rank()).world_rank));
    }
    std::memcpy(request_.output + shape_.take_offset(r) * element_,
                small_data(r) + begin * element_, (end - begin) * element_);
  }
  return {};
}

// -- where things are -----------------------------------------------------------------------------

std::pair<uint64_t, uint64_t> BoardExchange::slice_of(int32_t r) const {
  const auto ranks = static_cast<uint64_t>(size_);
  const auto i = static_cast<uint64_t>(r);
  const uint64_t each = request_.count / ranks;
  const uint64_t rest = request_.count % ranks;
  const uint64_t begin = i * each + std::min(i, rest);
  return {begin, begin + each + (i < rest ? 1 : 0)};
}

/// Where the block for this rank starts in rank r's contribution, in elements.
uint64_t BoardExchange::block_offset_in(int32_t r) const {
  if (shape_.agreed() || r == rank()) return shape_.put_offset(rank());
  uint64_t offset = 0;
  for (int32_t d = 0; d < rank(); ++d) offset += table_entry(r, d, 0);
  return offset;
}

std::pair<uint64_t, uint64_t> BoardExchange::read_range(int32_t r) const {
  if (is_sliced(request_.kind)) return {0, request_.count};
  const uint64_t begin = block_offset_in(r);
  return {begin, begin + shape_.take_count(r)};
}

}  // namespace corro::collective
