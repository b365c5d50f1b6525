#include "table/local_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/check.h"
#include "table/hash.h"
#include "table/initial.h"
#include "table/kernels.h"
#include "table/keyed_rows.h"
#include "table/row_layout.h"

namespace corro::table {
namespace {

/// Keys whose memory is asked for before the first of them is used.
constexpr size_t kKeysAhead = 32;

Status check_lr(const std::string& table, float lr) {
  if (lr > 0 && std::isfinite(lr)) return {};
  return {
      Code::kInvalidArgument,
      fmt::format("table {}: optimizer.lr is {}, and has to be above 0, and finite", table, lr)};
}

}  // namespace

// The body knows what is in the rows; KeyedRows knows which keys have one.
//
// Pulls and pushes take keys in blocks of 32, and do each step of a search for all keys of a block
// before the next step, so that the memory of 32 keys is on its way at the same time. A push looks
// up a block's keys first, and then changes their rows one by one. Making a row may take another
// one away, of a key of the same block for example: from then on, every key is looked up again.
class LocalTable::Body {
 public:
  explicit Body(const TableSpec& spec)
      : spec_(spec),
        layout_(layout_of(spec)),
        rounding_seed_(seed_for(Use::kRounding, spec.seed)),
        kernels_(*available_kernels().back()),
        read_(kernels_.read[static_cast<size_t>(spec.dtype)]),
        write_(kernels_.write[static_cast<size_t>(spec.dtype)]),
        update_(kernels_.update[static_cast<size_t>(spec.optimizer.kind)]
                               [static_cast<size_t>(spec.dtype)]),
        rounds_(spec.dtype != DType::kF32),
        arguments_{.dim = spec.dim, .optimizer = spec.optimizer},
        rows_(spec.seed, spec.retention, layout_.bytes()),
        initial_(spec.dim) {}

  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  [[nodiscard]] TableStats stats() const { return rows_.stats(); }

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
    rows_.begin_step(step);
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      push_block(keys.subspan(begin, count),
                 gradients.subspan(begin * spec_.dim, count * spec_.dim), step);
    }
    rows_.end_step(keys.size());
    return {};
  }

  Status set_lr(float lr) {
    CORRO_TRY(check_lr(spec_.name, lr));
    spec_.optimizer.lr = lr;
    arguments_.optimizer.lr = lr;
    return {};
  }

  [[nodiscard]] std::vector<uint64_t> keys_with_rows(
      const std::function<bool(uint64_t)>& wanted) const {
    std::vector<uint64_t> keys;
    rows_.for_each_key([&](uint64_t key) {
      if (wanted(key)) keys.push_back(key);
    });
    std::ranges::sort(keys);
    return keys;
  }

  [[nodiscard]] size_t packed_bytes() const { return sizeof(uint32_t) + layout_.bytes(); }

  void pack(uint64_t key, std::span<std::byte> into) const {
    const uint64_t hash = rows_.hash(key);
    const uint32_t date = rows_.date_of(hash, key);
    std::memcpy(into.data(), &date, sizeof date);
    std::memcpy(into.data() + sizeof date, rows_.at(rows_.find(hash, key)), layout_.bytes());
  }

  Status unpack(std::span<const uint64_t> keys, std::span<const std::byte> rows, uint64_t steps) {
    CORRO_CHECK(rows.size() == keys.size() * packed_bytes(), keys.size(), rows.size());
    CORRO_TRY(check_slots(keys.size()));
    rows_.set_steps(steps);
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::byte* const from = rows.data() + i * packed_bytes();
      uint32_t date = 0;
      std::memcpy(&date, from, sizeof date);
      const uint32_t slot = rows_.put(rows_.hash(keys[i]), keys[i], date);
      std::memcpy(rows_.at(slot), from + sizeof date, layout_.bytes());
    }
    return {};
  }

  void forget(const std::function<bool(uint64_t)>& wanted) {
    for (const uint64_t key : keys_with_rows(wanted)) rows_.take_out(rows_.hash(key), key);
  }

 private:
  /// The slots of a block of keys; KeyedRows::kNone for a key without a row.
  struct Found {
    std::array<uint64_t, kKeysAhead> hashes;
    std::array<uint32_t, kKeysAhead> slots;
  };

  /// `find_slot` is of the type uint32_t(uint64_t hash, uint64_t key).
  template <typename FindSlot>
  void find(std::span<const uint64_t> keys, Found& found, const FindSlot& find_slot) const {
    for (size_t i = 0; i < keys.size(); ++i) {
      found.hashes[i] = rows_.hash(keys[i]);
      rows_.prefetch_tags(found.hashes[i]);
    }
    for (size_t i = 0; i < keys.size(); ++i) rows_.prefetch_entry(found.hashes[i]);
    for (size_t i = 0; i < keys.size(); ++i) {
      found.slots[i] = find_slot(found.hashes[i], keys[i]);
      if (found.slots[i] != KeyedRows::kNone) rows_.prefetch_row(found.slots[i]);
    }
  }

  void pull_block(std::span<const uint64_t> keys, std::span<float> values) const {
    Found found;
    find(keys, found, [this](uint64_t hash, uint64_t key) { return rows_.find(hash, key); });
    for (size_t i = 0; i < keys.size(); ++i) {
      const std::span<float> row = values.subspan(i * spec_.dim, spec_.dim);
      if (found.slots[i] == KeyedRows::kNone) {
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
    alignas(64) std::array<std::byte, kMaxDim * sizeof(uint16_t)> rounded;
    write_(rounded.data(), values.data(), spec_.dim);
    read_(rounded.data(), values.data(), spec_.dim);
  }

  void push_block(std::span<const uint64_t> keys, std::span<const float> gradients, uint64_t step) {
    Found found;
    find(keys, found, [this](uint64_t hash, uint64_t key) { return rows_.touch(hash, key); });
    const uint64_t evicted = rows_.evicted();
    for (size_t i = 0; i < keys.size(); ++i) {
      uint32_t slot = found.slots[i];
      if (slot == KeyedRows::kNone || rows_.evicted() != evicted) {
        slot = find_or_make(found.hashes[i], keys[i]);
        if (slot == KeyedRows::kNone) continue;  // Not admitted yet.
      }
      const uint64_t rounding = rounds_ ? number_at(hash_of(rounding_seed_, keys[i]), step) : 0;
      std::byte* const row = rows_.at(slot);
      update_(row, state_of(row), &gradients[i * spec_.dim], arguments_, rounding);
    }
  }

  uint32_t find_or_make(uint64_t hash, uint64_t key) {
    const uint32_t found = rows_.touch(hash, key);
    if (found != KeyedRows::kNone) return found;
    const uint32_t slot = rows_.make(hash, key);
    if (slot == KeyedRows::kNone) return slot;
    std::byte* const row = rows_.at(slot);
    write_initial(spec_, key, initial_);
    write_(row, initial_.data(), spec_.dim);
    write_initial_state(spec_, {state_of(row), layout_.state_count});
    return slot;
  }

  [[nodiscard]] float* state_of(std::byte* row) const {
    return reinterpret_cast<float*>(row + layout_.weight_bytes);
  }

  [[nodiscard]] Status check_slots(size_t keys) const {
    if (!rows_.lacks_slots(keys)) return {};
    return {Code::kResourceExhausted,
            fmt::format("table {}: it has {} rows, and a push has {} keys; a process has at most "
                        "2^31 rows of a table",
                        spec_.name, rows_.stats().rows, keys)};
  }

  [[nodiscard]] Status check_push(std::span<const uint64_t> keys,
                                  std::span<const float> gradients) const {
    CORRO_TRY(check_slots(keys.size()));
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
  uint64_t rounding_seed_;
  const Kernels& kernels_;
  ReadFunction read_;
  WriteFunction write_;
  UpdateFunction update_;
  bool rounds_;
  UpdateArguments arguments_;
  KeyedRows rows_;
  std::vector<float> initial_;  ///< Of the row that is being made.
};

Result<std::unique_ptr<LocalTable>> LocalTable::create(const TableSpec& spec) {
  CORRO_TRY(check(spec));
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

std::vector<uint64_t> LocalTable::keys_with_rows(
    const std::function<bool(uint64_t)>& wanted) const {
  return body_->keys_with_rows(wanted);
}

size_t LocalTable::packed_bytes() const { return body_->packed_bytes(); }

void LocalTable::pack(uint64_t key, std::span<std::byte> into) const { body_->pack(key, into); }

Status LocalTable::unpack(std::span<const uint64_t> keys, std::span<const std::byte> rows,
                          uint64_t steps) {
  return body_->unpack(keys, rows, steps);
}

void LocalTable::forget(const std::function<bool(uint64_t)>& wanted) { body_->forget(wanted); }

}  // namespace corro::table
