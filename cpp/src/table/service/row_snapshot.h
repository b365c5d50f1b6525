// RowSnapshot: the rows of a table as they are now, handed out page by page while the table goes on.
//
//   RowSnapshot snapshot(rows, shards, /*step=*/1000);
//   ...                                   // before each change of rows: snapshot.keep(keys)
//   while (auto page = snapshot.next(1U << 20U)) write(*page);
//
// Rows are handed out by groups of shards, and in a group by ascending keys. So a row stands
//
//   behind       it was handed out, and may change
//   ahead        it will be. Before it changes for the first time, keep() copies it, or notes that
//                its key has no row yet
//
// The keys of a group are listed when its turn comes. A key of the list is handed out from the copy
// if there is one, not at all if it was noted, and else as the row is. A row that goes for another
// reason than keep() knows of would be missing: tables that forget rows by themselves (evict_after,
// a budget) hand out all before their next step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "table/changed_keys.h"
#include "table/local_table.h"
#include "table/service/holders.h"

namespace corro::table {

/// Externally synchronized, with the table.
class RowSnapshot {
 public:
  /// `rows` is borrowed. `shard_count`: as of Holders. `changed`: only rows of these keys; null: of all.
  RowSnapshot(const LocalTable& rows, const ShardSet& shards, uint64_t step,
              size_t shard_count = kShards, std::shared_ptr<const ChangedKeys> changed = nullptr);

  /// The rows of these keys are about to change, or to be made.
  /// Fails as LocalTable::pull(): then nothing may change.
  [[nodiscard]] Status keep(std::span<const uint64_t> keys);
  /// The next page, a body of EXPORTED of about `most_bytes`, at least one row; none: that was all.
  /// Fails as LocalTable::pull(): then the snapshot is of no use.
  [[nodiscard]] Result<std::optional<Bytes>> next(size_t most_bytes);
  /// Rows that were handed out.
  [[nodiscard]] uint64_t rows() const { return handed_out_; }
  /// All copies are so large that it is time to hand out before more is changed.
  [[nodiscard]] bool is_full() const { return kept_bytes_ > most_kept_; }

 private:
  using Copies = std::unordered_map<uint64_t, Bytes>;  ///< By key; empty: there was no row.

  [[nodiscard]] size_t group_of(size_t shard) const {
    return shard * copies_.size() / shard_count_;
  }
  [[nodiscard]] bool is_ahead(uint64_t key, size_t shard) const;
  [[nodiscard]] bool is_wanted(uint64_t key, size_t shard) const;
  Status keep_one(uint64_t key);
  bool list_next_group();
  [[nodiscard]] std::vector<uint64_t> keys_of_page(size_t most);
  Status pack(std::span<const uint64_t> keys, std::span<std::byte> into) const;

  const LocalTable& rows_;
  const ShardSet shards_;
  const uint64_t step_;
  const size_t shard_count_;
  const std::shared_ptr<const ChangedKeys> changed_;
  const size_t most_kept_;
  std::vector<Copies> copies_;  ///< By group.
  size_t group_ = 0;            ///< Whose keys are listed; the first one's not yet.
  bool listed_ = false;
  std::vector<uint64_t> keys_;  ///< Of the group.
  size_t next_ = 0;             ///< Of these, the first that was not handed out.
  size_t kept_bytes_ = 0;
  uint64_t handed_out_ = 0;
};

}  // namespace corro::table
