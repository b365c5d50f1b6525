// ChangedKeys: the keys of a table that have changed, and a few others: a bit for each part of their
// hashes. About a byte for each row of the table finds an eighth too many, at most.
//
//   ChangedKeys changed = ChangedKeys::for_rows(1'000'000);
//   changed.add(keys);
//   if (changed.contains(key)) ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace corro::table {

/// Externally synchronized.
class ChangedKeys {
 public:
  /// Of a table of about so many rows; nothing has changed.
  [[nodiscard]] static ChangedKeys for_rows(uint64_t rows);
  /// As large as this one; nothing has changed.
  [[nodiscard]] ChangedKeys emptied() const { return ChangedKeys(bits_); }

  void add(std::span<const uint64_t> keys);
  /// What has changed there has changed here, too, whichever sizes they have.
  void add(const ChangedKeys& other);
  /// False: the key was not added.
  [[nodiscard]] bool contains(uint64_t key) const;
  [[nodiscard]] size_t bytes() const { return words_.size() * sizeof(uint64_t); }

 private:
  explicit ChangedKeys(unsigned bits) : bits_(bits), words_((size_t{1} << bits) / 64) {}
  void set(uint64_t part) { words_[part / 64] |= uint64_t{1} << (part % 64); }

  unsigned bits_;  ///< Of a hash that say which part it is in; at least 6.
  std::vector<uint64_t> words_;
};

}  // namespace corro::table
