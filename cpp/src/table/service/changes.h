// Changes: which keys the last steps of a table have changed, so that a rank that has rows of an
// earlier step is given those alone that are others by now.
//
//   changes.add(7, keys);                 // what step 7 has changed
//   changes.since(6, {3, 5, 9});          // the indices of those that steps after 6 have changed
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <vector>

namespace corro::table {

/// Loop-confined.
class Changes {
 public:
  /// Steps that are remembered at most, and the keys of all of them.
  static constexpr size_t kMostSteps = 8;
  static constexpr size_t kMostKeys = size_t{1} << 20U;

  /// `step` follows the last one; `keys` ascend.
  void add(uint64_t step, std::vector<uint64_t> keys);
  /// What the steps up to this one have changed is not known.
  void forget(uint64_t step);
  /// The indices, ascending, of those `keys`, which ascend, that a step after `step` has changed.
  /// None: that is not known any more.
  [[nodiscard]] std::optional<std::vector<uint32_t>> since(uint64_t step,
                                                           std::span<const uint64_t> keys) const;

 private:
  struct Step {
    uint64_t number = 0;
    std::vector<uint64_t> keys;
  };
  std::deque<Step> steps_;   ///< All after known_from_.
  uint64_t known_from_ = 0;  ///< Since this step all changes are known.
  size_t keys_ = 0;          ///< Of all steps.
};

}  // namespace corro::table
