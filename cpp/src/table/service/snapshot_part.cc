#include "table/service/snapshot_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "table/row_layout.h"

namespace corro::table {
namespace {

/// "CTS1": the version is the last byte.
constexpr uint32_t kPartMagic = 0x31535443;
constexpr size_t kMostHeadBytes = 8192;
constexpr size_t kDateBytes = sizeof(uint32_t);

Status damaged(std::string_view why) {
  return {Code::kDataLoss, fmt::format("no part of a snapshot: {}", why)};
}

Result<PartHead> decode_part_head(BytesView bytes) {
  ByteReader reader(bytes);
  const auto step = reader.read<uint64_t>();
  const auto rest = reader.read_bytes(reader.remaining());
  if (!step || !rest) return damaged("its head is cut");
  const auto open = decode_open(*rest);
  if (!open.ok() || !check(open->spec).ok()) return damaged("its head names no table");
  return PartHead{open->spec, *step};
}

}  // namespace

Bytes encode_part_head(const PartHead& head) {
  const Bytes open = encode_open({.spec = head.spec});
  ByteWriter writer;
  writer.write(kPartMagic);
  writer.write(static_cast<uint32_t>(sizeof(uint64_t) + open.size()));
  writer.write(head.step);
  writer.write_bytes(open);
  return writer.take();
}

std::array<std::byte, kPartFrameBytes> frame_of(BytesView page) {
  std::array<std::byte, kPartFrameBytes> frame{};
  const uint64_t bytes = page.size();
  std::memcpy(frame.data(), &bytes, sizeof bytes);
  return frame;
}

// -- a table out of rows --------------------------------------------------------------------------

Result<RowLoader> RowLoader::create(const LoadOptions& options, std::vector<uint64_t> steps,
                                    uint64_t rows_there) {
  CORRO_ASSIGN(auto rows, LocalTable::create(options.spec));
  CORRO_TRY(rows->unpack({}, {}, steps.back()));
  const size_t shards = std::min(options.shards.count(), options.shard_count);
  rows->reserve(rows_there * shards / options.shard_count);
  return RowLoader(options, std::move(steps), std::move(rows));
}

RowLoader::RowLoader(const LoadOptions& options, std::vector<uint64_t> steps,
                     std::unique_ptr<LocalTable> rows)
    : options_(options), steps_(std::move(steps)), step_(steps_.front()), rows_(std::move(rows)) {
  const RowLayout layout = layout_of(options.spec);
  weight_bytes_ = layout.weight_bytes;
  std::vector<float> state(layout.state_count);
  write_initial_state(options.spec, state);
  fresh_.resize(kDateBytes + layout.bytes());
  const auto from = std::as_bytes(std::span(state));
  std::ranges::copy(from, fresh_.begin() + static_cast<ptrdiff_t>(kDateBytes + weight_bytes_));
}

Status RowLoader::take_head(const PartHead& head) {
  TableSpec here = options_.spec;
  // How rows are kept and pushed may be another matter by now.
  here.retention.most_bytes = head.spec.retention.most_bytes;
  here.retention.spill = head.spec.retention.spill;
  here.mode = head.spec.mode;
  here.staleness = head.spec.staleness;
  here.optimizer.lr = head.spec.optimizer.lr;
  as_it_is_ = !options_.weights_only || head.spec.optimizer == here.optimizer;
  if (options_.weights_only) here.optimizer = head.spec.optimizer;
  CORRO_TRY(check_alike(here, head.spec));
  if (head.step < step_ || !std::ranges::binary_search(steps_, head.step))
    return damaged(fmt::format("it is of step {}, not {}", head.step, fmt::join(steps_, ", ")));
  step_ = head.step;
  there_bytes_ = kDateBytes + layout_of(head.spec).bytes();
  return {};
}

Status RowLoader::take_page(Bytes& page) {
  const auto packed = decode_packed(page);
  if (!packed.ok()) return damaged("a page is none");
  if (packed->row_bytes != there_bytes_ || packed->steps != step_)
    return damaged("a page does not fit its head");
  if (as_it_is_ && options_.shards.count() >= options_.shard_count)
    return rows_->unpack(packed->keys, packed->rows, steps_.back());
  keys_.clear();
  packed_.clear();
  for (size_t i = 0; i < packed->keys.size(); ++i)
    if (options_.shards.test(shard_of(packed->keys[i], options_.shard_count)))
      take_row(packed->keys[i], packed->rows.subspan(i * there_bytes_, there_bytes_));
  return rows_->unpack(keys_, packed_, steps_.back());
}

void RowLoader::take_row(uint64_t key, BytesView row) {
  keys_.push_back(key);
  if (as_it_is_) {
    packed_.insert(packed_.end(), row.begin(), row.end());
    return;
  }
  const auto begin = static_cast<ptrdiff_t>(packed_.size());
  packed_.insert(packed_.end(), fresh_.begin(), fresh_.end());
  std::ranges::copy(row.first(kDateBytes + weight_bytes_), packed_.begin() + begin);
}

// -- a file ---------------------------------------------------------------------------------------

size_t PartReader::unit_bytes() const {
  switch (awaits_) {
    case Awaits::kLength:
    case Awaits::kFrame:
      return kPartFrameBytes;
    case Awaits::kHead:
    case Awaits::kPage:
      return length_;
    case Awaits::kNothing:
      return 0;
  }
  return 0;
}

Status PartReader::take(BytesView bytes) {
  while (!bytes.empty()) {
    if (awaits_ == Awaits::kNothing) return damaged("it goes on behind its end");
    const size_t count = std::min(bytes.size(), unit_bytes() - buffer_.size());
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(count));
    bytes = bytes.subspan(count);
    if (buffer_.size() < unit_bytes()) return {};
    CORRO_TRY(take_unit());
    buffer_.clear();
  }
  return {};
}

Status PartReader::take_unit() {
  ByteReader reader(buffer_);
  if (awaits_ == Awaits::kLength) {
    if (reader.read<uint32_t>() != kPartMagic) return damaged("it begins otherwise");
    length_ = reader.read<uint32_t>().value_or(0);
    if (length_ == 0 || length_ > kMostHeadBytes) return damaged("its head is too long");
    awaits_ = Awaits::kHead;
    return {};
  }
  if (awaits_ == Awaits::kFrame) {
    const uint64_t length = reader.read<uint64_t>().value_or(0);
    if (length > kMaxBodyBytes) return damaged("a page is too long");
    length_ = static_cast<size_t>(length);
    awaits_ = length == 0 ? Awaits::kNothing : Awaits::kPage;
    return {};
  }
  const bool is_head = awaits_ == Awaits::kHead;
  awaits_ = Awaits::kFrame;
  if (is_head) {
    CORRO_ASSIGN(const PartHead head, decode_part_head(buffer_));
    return sink_.take_head(head);
  }
  return sink_.take_page(buffer_);
}

Status PartReader::finish() const {
  return awaits_ == Awaits::kNothing ? Status() : damaged("it ends too early");
}

}  // namespace corro::table
