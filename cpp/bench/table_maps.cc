// Peers of the rows of tables that are C++ maps, as a shared library for table_stores.py:
//
//   kind 0   absl::flat_hash_map from key to the row's place in one array
//   kind 1   100 std::unordered_map with a lock each, rows on the heap: as PERSIA has it
//
// Keys are found one by one, as the maps are made to be used.
#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

namespace {

class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  /// `rows` is [keys, dim].
  virtual void put(std::span<const uint64_t> keys, const float* rows) = 0;
  virtual void pull(std::span<const uint64_t> keys, float* rows) = 0;
};

class FlatHashMap final : public Store {
 public:
  FlatHashMap(size_t dim, size_t capacity) : dim_(dim) {
    places_.reserve(capacity);
    rows_.reserve(capacity * dim);
  }
  void put(std::span<const uint64_t> keys, const float* rows) override {
    for (const uint64_t key : keys) {
      const auto [found, added] =
          places_.try_emplace(key, static_cast<uint32_t>(rows_.size() / dim_));
      if (added) rows_.resize(rows_.size() + dim_);
      std::copy_n(rows, dim_, &rows_[found->second * dim_]);
      rows += dim_;
    }
  }
  void pull(std::span<const uint64_t> keys, float* rows) override {
    for (const uint64_t key : keys) {
      const auto found = places_.find(key);
      if (found != places_.end()) std::copy_n(&rows_[found->second * dim_], dim_, rows);
      rows += dim_;
    }
  }

 private:
  size_t dim_;
  absl::flat_hash_map<uint64_t, uint32_t> places_;
  std::vector<float> rows_;
};

class LockedMaps final : public Store {
 public:
  explicit LockedMaps(size_t dim) : dim_(dim) {}
  void put(std::span<const uint64_t> keys, const float* rows) override {
    for (const uint64_t key : keys) {
      Shard& shard = shard_of(key);
      const std::scoped_lock lock(shard.mutex);
      shard.rows[key].assign(rows, rows + dim_);
      rows += dim_;
    }
  }
  void pull(std::span<const uint64_t> keys, float* rows) override {
    for (const uint64_t key : keys) {
      Shard& shard = shard_of(key);
      const std::scoped_lock lock(shard.mutex);
      const auto found = shard.rows.find(key);
      if (found != shard.rows.end()) std::ranges::copy(found->second, rows);
      rows += dim_;
    }
  }

 private:
  struct Shard {
    std::mutex mutex;
    std::unordered_map<uint64_t, std::vector<float>> rows;
  };
  [[nodiscard]] Shard& shard_of(uint64_t key) { return shards_[key % shards_.size()]; }

  size_t dim_;
  std::array<Shard, 100> shards_;
};

}  // namespace

extern "C" {

[[gnu::visibility("default")]] Store* table_map_create(int kind, size_t dim, size_t capacity) {
  if (kind == 0) return std::make_unique<FlatHashMap>(dim, capacity).release();
  return std::make_unique<LockedMaps>(dim).release();
}
[[gnu::visibility("default")]] void table_map_put(Store* store, const uint64_t* keys, size_t count,
                                                  const float* rows) {
  store->put({keys, count}, rows);
}
[[gnu::visibility("default")]] void table_map_pull(Store* store, const uint64_t* keys, size_t count,
                                                   float* rows) {
  store->pull({keys, count}, rows);
}

}  // extern "C"
