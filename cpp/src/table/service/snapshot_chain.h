// SnapshotChain: which snapshots of a table, of those that this process has finished in a folder, the
// next one builds on. A whole snapshot has all rows; a delta has those that have changed since another
// one, its base.
//
//   whole <- delta <- delta      whole <- delta ...
//
// A chain begins with a whole one, and ends where policy, another folder or other rows say so: each job,
// and each restore(), begins with a whole one. A base is known by its step and the checksum of its
// manifest, so none takes the place of another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "checkpoint/manifest.h"
#include "checkpoint/reader.h"
#include "table/service/tables.h"

namespace corro::table {

/// Of tables whose rows go by themselves a delta would miss which have gone: all of theirs are whole.
[[nodiscard]] SavePolicy fitting_policy(const TableSpec& spec, SavePolicy policy);

/// Externally synchronized.
class SnapshotChain {
 public:
  /// What the snapshot of this step builds on; none: it is to be whole.
  [[nodiscard]] std::optional<checkpoint::Base> base_for(const std::string& folder, uint64_t step,
                                                         const SavePolicy& policy) const;
  /// One is there, whose base was that. Reads its manifest.
  void add(const std::string& folder, uint64_t step, const std::optional<checkpoint::Base>& base);
  /// The table's rows are others.
  void forget() { last_.reset(); }

 private:
  std::string folder_;
  std::optional<checkpoint::Base> last_;
  size_t deltas_ = 0;  ///< Of the last one's chain.
};

/// The checkpoints that have a table's rows as they are in that of `step`: the whole one first, and
/// that one last. DATA_LOSS if one is damaged or missing, or is another than the next one builds on;
/// INVALID_ARGUMENT if it has no table of this name. Blocks.
[[nodiscard]] Result<std::vector<checkpoint::Opened>> open_chain(const std::string& folder,
                                                                 uint64_t step,
                                                                 const std::string& table);
/// The table's entry. INVALID_ARGUMENT, with those that there are, if there is none.
[[nodiscard]] Result<const checkpoint::TableEntry*> find_table(const checkpoint::Opened& opened,
                                                               const std::string& table);

/// As checkpoint::remove_old() does, but for those on which the ones that are left build. Blocks.
[[nodiscard]] Status remove_old_snapshots(const std::string& folder, uint64_t step, size_t keep);

}  // namespace corro::table
