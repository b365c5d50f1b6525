// KeyTable: a hash map from MessageKey to a value that allocates only while it grows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/check.h"
#include "transport/endpoint.h"

namespace corro::transport {

/// Open addressing with linear probing; erasing shifts the rest of the run back (Knuth, TAOCP vol.
/// 3, 6.4, algorithm R). References to values are valid until the next insert or erase.
/// Loop-confined.
template <typename Value>
class KeyTable {
 public:
  [[nodiscard]] size_t size() const { return size_; }

  /// Returns the value of `key`, or null.
  [[nodiscard]] Value* find(const MessageKey& key) {
    if (size_ == 0) return nullptr;
    for (size_t at = home(key);; at = next(at)) {
      if (!slots_[at].used) return nullptr;
      if (slots_[at].key == key) return &slots_[at].value;
    }
  }

  /// Adds a default value for a key that is not there.
  Value& insert(const MessageKey& key) {
    if ((size_ + 1) * 2 > slots_.size()) grow();
    size_t at = home(key);
    while (slots_[at].used) {
      CORRO_CHECK(slots_[at].key != key, key.lane.key, key.op, key.step);
      at = next(at);
    }
    slots_[at].key = key;
    slots_[at].used = true;
    ++size_;
    return slots_[at].value;
  }

  /// Removes `key` if it is there.
  void erase(const MessageKey& key) {
    if (size_ == 0) return;
    size_t at = home(key);
    while (slots_[at].used && slots_[at].key != key) at = next(at);
    if (!slots_[at].used) return;
    close_gap(at);
    --size_;
  }

  /// Removes every entry for which `remove(key, value)` is true.
  template <typename Predicate>
  void erase_if(Predicate remove) {
    std::vector<MessageKey> keys;
    for (Slot& slot : slots_) {
      if (slot.used && remove(slot.key, slot.value)) keys.push_back(slot.key);
    }
    for (const MessageKey& key : keys) erase(key);
  }

 private:
  struct Slot {
    MessageKey key;
    bool used = false;
    Value value{};
  };

  [[nodiscard]] size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  [[nodiscard]] size_t home(const MessageKey& key) const {
    uint64_t hash = key.op * 0x9E3779B97F4A7C15ULL;
    hash ^= (LaneKeyHash{}(key.lane) + key.step) * 0xC2B2AE3D27D4EB4FULL;
    return (hash ^ hash >> 29U) & (slots_.size() - 1);
  }

  void close_gap(size_t gap) {
    for (size_t at = next(gap); slots_[at].used; at = next(at)) {
      const size_t mask = slots_.size() - 1;
      const size_t reach = (at - home(slots_[at].key)) & mask;
      if (reach < ((at - gap) & mask)) continue;
      slots_[gap].key = slots_[at].key;
      slots_[gap].value = std::move(slots_[at].value);
      gap = at;
    }
    slots_[gap] = Slot{};
  }

  void grow() {
    std::vector<Slot> old = std::exchange(slots_, {});
    slots_.resize(old.empty() ? 32 : old.size() * 2);
    size_ = 0;
    for (Slot& slot : old) {
      if (slot.used) insert(slot.key) = std::move(slot.value);
    }
  }

  std::vector<Slot> slots_;  ///< A power of two of them, at most half used.
  size_t size_ = 0;
};

}  // namespace corro::transport
