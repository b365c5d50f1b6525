#include "table/service/row_snapshot.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "table/service/messages.h"

namespace corro::table {
namespace {

/// Rows of a group, about: to list them takes one look at each key of the table.
constexpr uint64_t kRowsOfGroup = uint64_t{1} << 20U;
constexpr uint64_t kMostGroups = 64;
/// Of a copy beside its bytes.
constexpr size_t kCopyBytes = 64;
constexpr size_t kLeastKept = size_t{64} << 20U;

size_t groups_for(uint64_t rows, size_t shard_count) {
  const uint64_t wanted = std::min(kMostGroups, std::bit_ceil(rows / kRowsOfGroup + 1));
  return std::min<size_t>(wanted, shard_count);
}

}  // namespace

RowSnapshot::RowSnapshot(const LocalTable& rows, const ShardSet& shards, uint64_t step,
                         size_t shard_count, std::shared_ptr<const ChangedKeys> changed)
    : rows_(rows),
      shards_(shards),
      step_(step),
      shard_count_(shard_count),
      changed_(std::move(changed)),
      most_kept_(std::max(kLeastKept, static_cast<size_t>(rows.stats().bytes / 10))),
      copies_(groups_for(rows.stats().rows, shard_count)) {}

bool RowSnapshot::is_wanted(uint64_t key, size_t shard) const {
  return shards_.test(shard) && (changed_ == nullptr || changed_->contains(key));
}

bool RowSnapshot::is_ahead(uint64_t key, size_t shard) const {
  if (!is_wanted(key, shard)) return false;
  const size_t group = group_of(shard);
  if (group != group_ || !listed_) return group >= group_;
  return next_ < keys_.size() && key >= keys_[next_];
}

Status RowSnapshot::keep(std::span<const uint64_t> keys) {
  for (const uint64_t key : keys) CORRO_TRY(keep_one(key));
  return {};
}

Status RowSnapshot::keep_one(uint64_t key) {
  const size_t shard = shard_of(key, shard_count_);
  if (!is_ahead(key, shard) || copies_[group_of(shard)].contains(key)) return {};
  Bytes copy;
  if (rows_.has_row(key)) {
    copy.resize(rows_.packed_bytes());
    CORRO_TRY(rows_.pack(std::span(&key, 1), copy));
  }
  kept_bytes_ += kCopyBytes + copy.size();
  copies_[group_of(shard)].emplace(key, std::move(copy));
  return {};
}

/// False if there is none any more.
bool RowSnapshot::list_next_group() {
  if (listed_) {
    for (const auto& [key, copy] : copies_[group_]) kept_bytes_ -= kCopyBytes + copy.size();
    copies_[group_] = {};
    ++group_;
  }
  listed_ = false;
  keys_.clear();
  next_ = 0;
  if (group_ == copies_.size()) return false;
  keys_ = rows_.keys_with_rows([this](uint64_t key) {
    const size_t shard = shard_of(key, shard_count_);
    return group_of(shard) == group_ && is_wanted(key, shard);
  });
  listed_ = true;
  return true;
}

/// The next keys of the group that had a row.
std::vector<uint64_t> RowSnapshot::keys_of_page(size_t most) {
  const Copies& copies = copies_[group_];
  std::vector<uint64_t> keys;
  for (; next_ < keys_.size() && keys.size() < most; ++next_) {
    const auto copy = copies.find(keys_[next_]);
    if (copy == copies.end() || !copy->second.empty()) keys.push_back(keys_[next_]);
  }
  return keys;
}

/// From the copies, and all others from the table at once: it may have to read them.
Status RowSnapshot::pack(std::span<const uint64_t> keys, std::span<std::byte> into) const {
  const size_t row_bytes = rows_.packed_bytes();
  const Copies& copies = copies_[group_];
  std::vector<uint64_t> others;
  for (const uint64_t key : keys)
    if (!copies.contains(key)) others.push_back(key);
  Bytes rows(others.size() * row_bytes);
  CORRO_TRY(rows_.pack(others, rows));
  auto other = rows.begin();
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto to = into.begin() + static_cast<ptrdiff_t>(i * row_bytes);
    if (const auto copy = copies.find(keys[i]); copy != copies.end()) {
      std::ranges::copy(copy->second, to);
    } else {
      std::copy_n(other, row_bytes, to);
      other += static_cast<ptrdiff_t>(row_bytes);
    }
  }
  return {};
}

Result<std::optional<Bytes>> RowSnapshot::next(size_t most_bytes) {
  const size_t row_bytes = rows_.packed_bytes();
  const size_t most = std::max<size_t>(1, most_bytes / (sizeof(uint64_t) + row_bytes));
  while (group_ < copies_.size()) {
    if ((!listed_ || next_ == keys_.size()) && !list_next_group()) break;
    const std::vector<uint64_t> keys = keys_of_page(most);
    if (keys.empty()) continue;
    handed_out_ += keys.size();
    const PackedRows packed{
        .steps = step_, .row_bytes = static_cast<uint32_t>(row_bytes), .keys = keys, .rows = {}};
    Bytes page = encode_packed(packed);
    CORRO_TRY(pack(keys, rows_of(page, packed)));
    return std::optional(std::move(page));
  }
  return std::optional<Bytes>();
}

}  // namespace corro::table
