#include "table/local_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "table/hash.h"
#include "table/index.h"
#include "table/initial.h"
#include "table/kernels.h"
#include "table/row_layout.h"
#include "table/rows.h"

namespace corro::table {
namespace {

constexpr uint32_t kShards = 64;
constexpr unsigned kShardShift = 58;
/// Keys whose memory is asked for before the first of them is used.
constexpr size_t kKeysAhead = 32;

}  // namespace

// How keys are found: a key's hash says its shard (the highest 6 bits), and where in the shard's
// index to begin (index.h). A search waits for memory three times: for the tags, for the entry, for
// the row. So keys are taken in blocks of 32, and each step is done for all keys of a block before
// the next step: the memory of 32 keys is on its way at the same time.
class LocalTable::Body {
 public:
  explicit Body(const TableSpec& spec)
      : spec_(spec),
        layout_(layout_of(spec)),
        hash_seed_(seed_for(Use::kIndex, spec.seed)),
        rounding_seed_(seed_for(Use::kRounding, spec.seed)),
        kernels_(*available_kernels().back()),
        read_(kernels_.read[static_cast<size_t>(spec.dtype)]),
        write_(kernels_.write[static_cast<size_t>(spec.dtype)]),
        update_(kernels_.update[static_cast<size_t>(spec.optimizer.kind)]
                               [static_cast<size_t>(spec.dtype)]),
        arguments_{.dim = spec.dim, .optimizer = spec.optimizer},
        rows_(layout_.bytes()),
        initial_(spec.dim) {
    for (uint32_t shard = 0; shard < kShards; ++shard) shards_.emplace_back(shard);
  }

  [[nodiscard]] const TableSpec& spec() const { return spec_; }

  void pull(std::span<const uint64_t> keys, std::span<float> values) const {
    CORRO_CHECK(values.size() == keys.size() * spec_.dim, keys.size(), values.size(), spec_.dim);
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      pull_block(keys.subspan(begin, count), values.subspan(begin * spec_.dim, count * spec_.dim));
    }
  }

  Status push(std::span<const uint64_t> keys, std::span<const float> gradients, uint64_t step) {
    CORRO_CHECK(gradients.size() == keys.size() * spec_.dim, keys.size(), gradients.size(),
                spec_.dim);
    CORRO_TRY(check_push(keys, gradients));
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      push_block(keys.subspan(begin, count),
                 gradients.subspan(begin * spec_.dim, count * spec_.dim), step);
    }
    return {};
  }

  Status set_lr(float lr) {
    if (!(lr > 0) || !std::isfinite(lr)) {
      return {Code::kInvalidArgument,
              fmt::format("table {}: optimizer.lr is {}, and has to be above 0, and finite",
                          spec_.name, lr)};
    }
    spec_.optimizer.lr = lr;
    arguments_.optimizer.lr = lr;
    return {};
  }

  [[nodiscard]] TableStats stats() const {
    TableStats stats{.rows = rows_.count(), .bytes = rows_.bytes(), .admitted = admitted_};
    for (const Index& shard : shards_) stats.bytes += shard.bytes();
    return stats;
  }

 private:
  /// What a block of keys has found.
  struct Found {
    std::array<uint64_t, kKeysAhead> hashes;
    std::array<uint32_t, kKeysAhead> slots;  ///< Index::kNone for a key without a row.
  };

  [[nodiscard]] float* state_of(std::byte* row) const {
    return reinterpret_cast<float*>(row + layout_.weight_bytes);
  }
  [[nodiscard]] uint64_t hash(uint64_t key) const { return hash_of(hash_seed_, key); }
  [[nodiscard]] const Index& shard(uint64_t hash) const { return shards_[hash >> kShardShift]; }
  [[nodiscard]] Index& shard(uint64_t hash) { return shards_[hash >> kShardShift]; }

  void find(std::span<const uint64_t> keys, Found& found) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      found.hashes[i] = hash(keys[i]);
      shard(found.hashes[i]).prefetch_tags(found.hashes[i]);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      shard(found.hashes[i]).prefetch_entry(found.hashes[i]);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      found.slots[i] = slot_of(keys[i], found.hashes[i]);
      if (found.slots[i] != Index::kNone) rows_.prefetch(found.slots[i]);
    }
  }

  [[nodiscard]] uint32_t slot_of(uint64_t key, uint64_t hash) const {
    const Index& index = shard(hash);
    const uint32_t place = index.find(hash, key);
    return place == Index::kNone ? Index::kNone : index.slot_at(place);
  }

  void pull_block(std::span<const uint64_t> keys, std::span<float> values) const {
    Found found;
    find(keys, found);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::span<float> row = values.subspan(i * spec_.dim, spec_.dim);
      if (found.slots[i] == Index::kNone) {
        pull_initial(keys[i], row);
      } else {
        read_(rows_.at(found.slots[i]), row.data(), spec_.dim);
      }
    }
  }

  /// As the row would have them.
  void pull_initial(uint64_t key, std::span<float> values) const {
    write_initial(spec_, key, values);
    if (spec_.dtype == DType::kF32) return;
    std::array<std::byte, kMaxDim * sizeof(uint16_t)> rounded;
    write_(rounded.data(), values.data(), spec_.dim);
    read_(rounded.data(), values.data(), spec_.dim);
  }

  void push_block(std::span<const uint64_t> keys, std::span<const float> gradients, uint64_t step) {
    Found found;
    find(keys, found);
    for (size_t i = 0; i < keys.size(); ++i) {
      uint32_t slot = found.slots[i];
      if (slot == Index::kNone) slot = find_or_make(keys[i], found.hashes[i]);
      const uint64_t rounding = number_at(hash_of(rounding_seed_, keys[i]), step);
      std::byte* const row = rows_.at(slot);
      update_(row, state_of(row), &gradients[i * spec_.dim], arguments_, rounding);
    }
  }

  /// A key that was not found may have got its row since: keys may repeat in spite of the contract.
  uint32_t find_or_make(uint64_t key, uint64_t hash) {
    const uint32_t found = slot_of(key, hash);
    if (found != Index::kNone) return found;
    Index& index = shard(hash);
    index.make_room([this](uint64_t other) { return this->hash(other); });
    const uint32_t slot = rows_.take();
    index.insert(hash, key, slot);
    std::byte* const row = rows_.at(slot);
    write_initial(spec_, key, initial_);
    write_(row, initial_.data(), spec_.dim);
    write_initial_state(spec_, {state_of(row), layout_.state_count});
    ++admitted_;
    return slot;
  }

  [[nodiscard]] Status check_push(std::span<const uint64_t> keys,
                                  std::span<const float> gradients) const {
    if (rows_.count() + keys.size() > Index::kSlots) {
      return {Code::kResourceExhausted,
              fmt::format("table {}: {} rows, and a push of {} keys; one process has {} rows of a "
                          "table at most",
                          spec_.name, rows_.count(), keys.size(), Index::kSlots)};
    }
    if (kernels_.all_finite(gradients.data(), gradients.size())) return {};
    const auto bad = std::ranges::find_if(gradients, [](float x) { return !std::isfinite(x); });
    const auto element = static_cast<size_t>(bad - gradients.begin());
    const size_t place = element / spec_.dim;
    return {Code::kInvalidArgument,
            fmt::format("table {}: the gradient of key {}, at place {} of the push, is {} in "
                        "element {}",
                        spec_.name, keys[place], place, *bad, element % spec_.dim)};
  }

  TableSpec spec_;
  RowLayout layout_;
  uint64_t hash_seed_;
  uint64_t rounding_seed_;
  const Kernels& kernels_;
  ReadFunction read_;
  WriteFunction write_;
  UpdateFunction update_;
  UpdateArguments arguments_;
  std::vector<Index> shards_;
  Rows rows_;
  std::vector<float> initial_;  ///< Of the row that is being made.
  uint64_t admitted_ = 0;
};

Result<std::unique_ptr<LocalTable>> LocalTable::create(const TableSpec& spec) {
  CORRO_TRY(check(spec));
  if (spec.retention != Retention{}) {
    return Status(Code::kUnimplemented, fmt::format("table {}: so far, rows stay", spec.name));
  }
  return std::unique_ptr<LocalTable>(new LocalTable(std::make_unique<Body>(spec)));
}

LocalTable::LocalTable(std::unique_ptr<Body> body) : body_(std::move(body)) {}
LocalTable::~LocalTable() = default;

const TableSpec& LocalTable::spec() const { return body_->spec(); }

void LocalTable::pull(std::span<const uint64_t> keys, std::span<float> values) const {
  body_->pull(keys, values);
}

Status LocalTable::push(std::span<const uint64_t> keys, std::span<const float> gradients,
                        uint64_t step) {
  return body_->push(keys, gradients, step);
}

Status LocalTable::set_lr(float lr) { return body_->set_lr(lr); }

TableStats LocalTable::stats() const { return body_->stats(); }

}  // namespace corro::table
