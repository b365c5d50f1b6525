// Placement: which servers have a row.
//
// A key belongs to one of 4096 virtual shards, by the top bits of a hash; a shard is what moves from
// server to server. Its owners are the servers that score best for it (rendezvous hashing, Thaler
// and Ravishankar 1998): all ranks find the same ones, without asking anybody, and where a server is
// left out the owners of other shards stay as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace corro::table {

inline constexpr size_t kShards = 4096;

/// Immutable.
class Placement {
 public:
  /// Each row is on `copies` of the servers, on all of them if they are fewer.
  Placement(size_t servers, size_t copies);

  /// The owners of a key, the first one first.
  [[nodiscard]] std::span<const uint16_t> owners(uint64_t key) const;
  /// A shard all of whose owners are lost; none: every row is somewhere.
  [[nodiscard]] std::optional<size_t> lost_shard(const std::vector<bool>& lost) const;
  [[nodiscard]] std::span<const uint16_t> owners_of_shard(size_t shard) const {
    return std::span(owners_).subspan(shard * copies_, copies_);
  }

 private:
  size_t copies_;
  std::vector<uint16_t> owners_;  ///< [kShards, copies_]
};

}  // namespace corro::table
