// ChangesSinceSaves: which rows of a server's part of a table a delta has to have: those that have
// changed since the snapshot on which it builds.
//
//   off        nobody wants deltas: nothing is kept
//   counting   from a save on for which deltas are wanted. Each save ends a stretch, and begins the
//              next one, whether its snapshot is finished or not
//
// A delta of step k on the snapshot of step b has what the stretches from b to k have. Where the stretch
// that begins at b is not there (the server came later, or its rows were others), it has all rows: more
// than it has to is never wrong.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "table/changed_keys.h"

namespace corro::table {

/// Externally synchronized.
class ChangesSinceSaves {
 public:
  /// A snapshot of the rows after `step` is begun, of a table of about so many rows; `base`: the step of
  /// the one on which it builds. Returns the keys that have changed since, and a few others; null: all.
  [[nodiscard]] std::shared_ptr<const ChangedKeys> begin_save(uint64_t step, uint64_t rows,
                                                              std::optional<uint64_t> base);
  /// No delta is wanted, or rows are others: those that are there have not changed from anything known.
  void stop() { stretches_.clear(); }
  /// Rows of these keys have changed, were made, or have come from another server.
  void note(std::span<const uint64_t> keys) {
    if (!stretches_.empty()) stretches_.back().changed.add(keys);
  }

 private:
  struct Stretch {
    uint64_t from = 0;
    ChangedKeys changed;
  };
  std::deque<Stretch> stretches_;  ///< Of ascending steps; the last one goes on.
};

}  // namespace corro::table
