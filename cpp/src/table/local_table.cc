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
  Body(const TableSpec& spec, std::unique_ptr<Disk> disk, uint64_t segment_bytes)
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
        rows_(spec, layout_.bytes(), std::move(disk), segment_bytes),
        initial_(spec.dim) {}

  [[nodiscard]] const TableSpec& spec() const { return spec_; }
  [[nodiscard]] TableStats stats() const { return rows_.stats(); }

  Status pull(std::span<const uint64_t> keys, std::span<float> values) const {
    CORRO_CHECK(values.size() == keys.size() * spec_.dim, keys.size(), values.size(), spec_.dim);
    if (rows_.tiers() != nullptr) return pull_from_tiers(keys, values);
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      pull_block(keys.subspan(begin, count), values.subspan(begin * spec_.dim, count * spec_.dim));
    }
    return {};
  }

  Status push(std::span<const uint64_t> keys, std::span<const float> gradients, uint64_t step) {
    CORRO_CHECK(gradients.size() == keys.size() * spec_.dim, keys.size(), gradients.size(),
                spec_.dim);
    CORRO_TRY(check_push(keys, gradients));
    if (rows_.tiers() != nullptr) return push_to_tiers(keys, gradients, step);
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

  [[nodiscard]] size_t count_without_rows(std::span<const uint64_t> keys) const {
    return static_cast<size_t>(std::ranges::count_if(keys, [this](uint64_t key) {
      return rows_.find_number(rows_.hash(key), key) == KeyedRows::kNone;
    }));
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

  [[nodiscard]] bool has_row(uint64_t key) const {
    return rows_.find(rows_.hash(key), key) != KeyedRows::kNone;
  }

  [[nodiscard]] size_t packed_bytes() const { return sizeof(uint32_t) + layout_.bytes(); }

  Status pack(std::span<const uint64_t> keys, std::span<std::byte> into) const {
    CORRO_CHECK(into.size() == keys.size() * packed_bytes(), keys.size(), into.size());
    ColdRows cold;
    for (size_t i = 0; i < keys.size(); ++i) {
      const uint64_t hash = rows_.hash(keys[i]);
      const uint32_t date = rows_.date_of(hash, keys[i]);
      std::byte* const packed = into.data() + i * packed_bytes();
      std::memcpy(packed, &date, sizeof date);
      const bool has_tiers = rows_.tiers() != nullptr;
      const uint32_t row = has_tiers ? rows_.find_number(hash, keys[i]) : rows_.find(hash, keys[i]);
      if (has_tiers && RowTiers::is_cold(row)) {
        cold.add(i, row);
      } else {
        std::memcpy(packed + sizeof date, row_at(row), layout_.bytes());
      }
    }
    if (cold.numbers.empty()) return {};
    return rows_.tiers()->read(cold.numbers, [&](size_t i, const std::byte* row) {
      std::memcpy(into.data() + cold.places[i] * packed_bytes() + sizeof(uint32_t), row,
                  layout_.bytes());
    });
  }

  Status unpack(std::span<const uint64_t> keys, std::span<const std::byte> rows, uint64_t steps) {
    CORRO_CHECK(rows.size() == keys.size() * packed_bytes(), keys.size(), rows.size());
    CORRO_TRY(check_slots(keys.size()));
    if (rows_.tiers() != nullptr) CORRO_TRY(rows_.prepare(0, keys.size()));
    rows_.set_steps(steps);
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      unpack_block(keys.subspan(begin, count), rows.data() + begin * packed_bytes());
    }
    if (rows_.tiers() != nullptr) rows_.tiers()->settle();
    return {};
  }

  void reserve(uint64_t rows) { rows_.reserve(rows); }

  void forget(const std::function<bool(uint64_t)>& wanted) {
    for (const uint64_t key : keys_with_rows(wanted)) rows_.take_out(rows_.hash(key), key);
  }

 private:
  /// The slots of a block of keys; KeyedRows::kNone for a key without a row.
  struct Found {
    std::array<uint64_t, kKeysAhead> hashes;
    std::array<uint32_t, kKeysAhead> slots;
  };
  /// Rows on disk: which ones of a list, and their numbers.
  struct ColdRows {
    std::vector<size_t> places;
    std::vector<uint32_t> numbers;
    void add(size_t place, uint32_t number) {
      places.push_back(place);
      numbers.push_back(number);
    }
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

  void unpack_block(std::span<const uint64_t> keys, const std::byte* from) {
    std::array<uint64_t, kKeysAhead> hashes;
    for (size_t i = 0; i < keys.size(); ++i) {
      hashes[i] = rows_.hash(keys[i]);
      rows_.prefetch_tags(hashes[i]);
    }
    for (size_t i = 0; i < keys.size(); ++i) rows_.prefetch_place(hashes[i]);
    for (size_t i = 0; i < keys.size(); ++i, from += packed_bytes()) {
      uint32_t date = 0;
      std::memcpy(&date, from, sizeof date);
      const uint32_t slot = rows_.put(hashes[i], keys[i], date);
      std::memcpy(row_at(slot), from + sizeof date, layout_.bytes());
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
      change(keys[i], rows_.at(slot), &gradients[i * spec_.dim], step);
    }
  }

  // With tiers. A push changes nothing until all that can fail is done: its rows on disk are read,
  // and there is room for what has to go there. Then it changes rows that are in memory, where they
  // are; those that were read, which come into memory; and makes those that are new, in the order of
  // their keys, as admission wants it. Each key's row is changed by itself, so the order does not
  // matter for its bits.

  void find_numbers(std::span<const uint64_t> keys, std::vector<uint32_t>& numbers) const {
    numbers.resize(keys.size());
    for (size_t begin = 0; begin < keys.size(); begin += kKeysAhead) {
      const size_t count = std::min(kKeysAhead, keys.size() - begin);
      for (size_t i = begin; i < begin + count; ++i) rows_.prefetch_tags(rows_.hash(keys[i]));
      for (size_t i = begin; i < begin + count; ++i) rows_.prefetch_entry(rows_.hash(keys[i]));
      for (size_t i = begin; i < begin + count; ++i)
        numbers[i] = rows_.find_number(rows_.hash(keys[i]), keys[i]);
    }
  }

  [[gnu::noinline]] Status pull_from_tiers(std::span<const uint64_t> keys,
                                           std::span<float> values) const {
    RowTiers& tiers = *rows_.tiers();
    std::vector<uint32_t> numbers;
    find_numbers(keys, numbers);
    ColdRows cold;
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i + kKeysAhead < keys.size() && is_in_memory(numbers[i + kKeysAhead]))
        tiers.prefetch(numbers[i + kKeysAhead]);
      const std::span<float> row = values.subspan(i * spec_.dim, spec_.dim);
      if (numbers[i] == KeyedRows::kNone) {
        pull_initial(keys[i], row);
      } else if (RowTiers::is_cold(numbers[i])) {
        cold.add(i, numbers[i]);
      } else {
        tiers.touch(numbers[i]);
        read_(tiers.at(numbers[i]), row.data(), spec_.dim);
      }
    }
    uint32_t last = KeyedRows::kNone;
    return tiers.read(cold.numbers, [&](size_t i, const std::byte* row) {
      const size_t place = cold.places[i];
      read_(row, &values[place * spec_.dim], spec_.dim);
      const bool again =
          std::exchange(last, cold.numbers[i]) == cold.numbers[i];  // A key that repeats.
      if (!again) tiers.warm_up(keys[place], cold.numbers[i], row);
    });
  }

  [[gnu::noinline]] Status push_to_tiers(std::span<const uint64_t> keys,
                                         std::span<const float> gradients, uint64_t step) {
    std::vector<uint32_t> numbers;
    find_numbers(keys, numbers);
    ColdRows cold;
    for (size_t i = 0; i < keys.size(); ++i)
      if (numbers[i] != KeyedRows::kNone && RowTiers::is_cold(numbers[i])) cold.add(i, numbers[i]);
    const auto added = static_cast<size_t>(std::ranges::count(numbers, KeyedRows::kNone));
    CORRO_TRY(rows_.prepare(cold.numbers.size(), added));
    for (size_t i = 0; i < cold.places.size(); ++i) {  // It may have moved rows on disk.
      const uint64_t key = keys[cold.places[i]];
      cold.numbers[i] = rows_.find_number(rows_.hash(key), key);
    }
    std::vector<std::byte> read(cold.numbers.size() * layout_.bytes());
    CORRO_TRY(rows_.tiers()->read(cold.numbers, [&](size_t i, const std::byte* row) {
      std::memcpy(&read[i * layout_.bytes()], row, layout_.bytes());
    }));
    rows_.begin_step(step);
    change_in_memory(keys, gradients, numbers, step);
    for (size_t i = 0; i < cold.places.size(); ++i) {
      const size_t place = cold.places[i];
      std::byte* const row = row_at(rows_.bring(rows_.hash(keys[place]), keys[place]));
      std::memcpy(row, &read[i * layout_.bytes()], layout_.bytes());
      change(keys[place], row, &gradients[place * spec_.dim], step);
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      if (numbers[i] != KeyedRows::kNone) continue;
      const uint32_t slot = make(rows_.hash(keys[i]), keys[i]);
      if (slot != KeyedRows::kNone) change(keys[i], row_at(slot), &gradients[i * spec_.dim], step);
    }
    rows_.end_step(keys.size());
    return {};
  }

  void change_in_memory(std::span<const uint64_t> keys, std::span<const float> gradients,
                        std::span<const uint32_t> numbers, uint64_t step) {
    RowTiers& tiers = *rows_.tiers();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (i + kKeysAhead < keys.size() && is_in_memory(numbers[i + kKeysAhead]))
        tiers.prefetch(numbers[i + kKeysAhead]);
      if (!is_in_memory(numbers[i])) continue;
      tiers.change(numbers[i]);
      rows_.set_date(rows_.hash(keys[i]), keys[i]);
      change(keys[i], tiers.at(numbers[i]), &gradients[i * spec_.dim], step);
    }
  }

  void change(uint64_t key, std::byte* row, const float* gradient, uint64_t step) {
    const uint64_t rounding = rounds_ ? number_at(hash_of(rounding_seed_, key), step) : 0;
    update_(row, state_of(row), gradient, arguments_, rounding);
  }

  /// kNone is a cold number, too.
  [[nodiscard]] static bool is_in_memory(uint32_t number) { return !RowTiers::is_cold(number); }
  [[nodiscard]] std::byte* row_at(uint32_t slot) const {
    return rows_.tiers() != nullptr ? rows_.tiers()->at(slot) : rows_.at(slot);
  }

  // ---

  uint32_t find_or_make(uint64_t hash, uint64_t key) {
    const uint32_t found = rows_.touch(hash, key);
    return found != KeyedRows::kNone ? found : make(hash, key);
  }

  /// With the initial values in it; kNone if the key is not admitted yet.
  uint32_t make(uint64_t hash, uint64_t key) {
    const uint32_t slot = rows_.make(hash, key);
    if (slot == KeyedRows::kNone) return slot;
    std::byte* const row = row_at(slot);
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
  std::unique_ptr<Disk> disk;
  if (!spec.retention.spill.empty()) {
    auto opened = open_disk(spec.retention.spill);
    if (!opened.ok()) return opened.status().with_context(fmt::format("table {}", spec.name));
    disk = std::move(opened).value();
  }
  return create(spec, std::move(disk), RowLog::kSegmentBytes);
}

Result<std::unique_ptr<LocalTable>> LocalTable::create(const TableSpec& spec,
                                                       std::unique_ptr<Disk> disk,
                                                       uint64_t segment_bytes) {
  CORRO_TRY(check(spec));
  return std::unique_ptr<LocalTable>(
      new LocalTable(std::make_unique<Body>(spec, std::move(disk), segment_bytes)));
}

LocalTable::LocalTable(std::unique_ptr<Body> body) : body_(std::move(body)) {}
LocalTable::~LocalTable() = default;

const TableSpec& LocalTable::spec() const { return body_->spec(); }

Status LocalTable::pull(std::span<const uint64_t> keys, std::span<float> values) const {
  return body_->pull(keys, values);
}

Status LocalTable::push(std::span<const uint64_t> keys, std::span<const float> gradients,
                        uint64_t step) {
  return body_->push(keys, gradients, step);
}

Status LocalTable::set_lr(float lr) { return body_->set_lr(lr); }

TableStats LocalTable::stats() const { return body_->stats(); }

size_t LocalTable::count_without_rows(std::span<const uint64_t> keys) const {
  return body_->count_without_rows(keys);
}

std::vector<uint64_t> LocalTable::keys_with_rows(
    const std::function<bool(uint64_t)>& wanted) const {
  return body_->keys_with_rows(wanted);
}

bool LocalTable::has_row(uint64_t key) const { return body_->has_row(key); }

size_t LocalTable::packed_bytes() const { return body_->packed_bytes(); }

Status LocalTable::pack(std::span<const uint64_t> keys, std::span<std::byte> into) const {
  return body_->pack(keys, into);
}

Status LocalTable::unpack(std::span<const uint64_t> keys, std::span<const std::byte> rows,
                          uint64_t steps) {
  return body_->unpack(keys, rows, steps);
}

void LocalTable::reserve(uint64_t rows) { body_->reserve(rows); }

void LocalTable::forget(const std::function<bool(uint64_t)>& wanted) { body_->forget(wanted); }

}  // namespace corro::table
