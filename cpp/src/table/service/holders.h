// Holders: which servers have which rows of a table, and what has to be copied so that they are the
// right ones.
//
// A key belongs to one of 4096 virtual shards, by the top bits of a hash; a shard is what is copied
// from server to server.
//
//   owners    of a shard are the 1 + replicas servers, of those that are not lost, that score best
//             for it (rendezvous hashing, Thaler and Ravishankar 1998). Where a server is lost, or
//             comes, the owners of other shards stay as they are
//   holders   have the shard's rows: they are pulled from, and pushed to
//   leaving   a server owns nothing any more, and holds what it has until all owners have it
//
// At first a shard's holders are its owners among the servers that a job begins with: all ranks find
// the same ones without asking anybody. Rank 0 copies whole shards from holders to owners that have
// none; each such move is another *version* of the holders, which it tells all ranks (HOLDS,
// messages.h). So all who know the same version know the same holders.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

namespace corro::table {

inline constexpr size_t kShards = 4096;
using ShardSet = std::bitset<kShards>;

/// The shard of a key, below `shards`, a power of two.
[[nodiscard]] size_t shard_of(uint64_t key, size_t shards = kShards);

/// Whole shards to be copied from a server that has them to one that has not.
struct Move {
  uint16_t source = 0;
  uint16_t target = 0;
  ShardSet shards;
};

/// Copyable; externally synchronized.
class Holders {
 public:
  /// Version 0: each row is on `copies` of servers 0 to `servers` - 1, on all of them if they are
  /// fewer. `shards`: a power of two; fewer than kShards in tests alone.
  Holders(size_t servers, size_t copies, size_t shards = kShards);

  [[nodiscard]] uint64_t version() const { return version_; }
  /// The holders of a key, the best first. May be lost.
  [[nodiscard]] std::span<const uint16_t> of(uint64_t key) const {
    return of_shard(shard_of(key, by_shard_.size()));
  }
  [[nodiscard]] std::span<const uint16_t> of_shard(size_t shard) const { return by_shard_[shard]; }
  /// Servers that take steps of the table, also those that hold nothing; ascending.
  [[nodiscard]] const std::map<uint16_t, ShardSet>& servers() const { return shards_; }

  /// A shard all of whose holders are lost; none: every row is somewhere.
  [[nodiscard]] std::optional<size_t> lost_shard(const std::vector<bool>& lost) const;
  /// So many servers that are not lost hold each shard, or more.
  [[nodiscard]] size_t least_copies(const std::vector<bool>& lost) const;

  /// Servers, by number: those that are not lost are used, and those that are neither own shards.
  struct Absent {
    std::vector<bool> lost;
    std::vector<bool> leaving;  ///< As many.
    [[nodiscard]] bool owns(size_t server) const { return !lost[server] && !leaving[server]; }
  };
  /// What to copy next, at most `most` shards; none: all owners hold what they own. Shards with too
  /// few holders come first, then those that belong to a server that has come.
  [[nodiscard]] std::optional<Move> next_move(const Absent& absent, size_t most) const;
  /// The next version, once the shards are copied. Whoever owns one of them no more, and whoever is
  /// lost, holds it no more.
  [[nodiscard]] Holders after(const Move& move, const Absent& absent) const;
  /// The next version, without servers that leave; after the last move. None: none of them takes
  /// steps of the table, or nobody else could.
  [[nodiscard]] std::optional<Holders> without_leaving(const Absent& absent) const;

  /// Takes over what another rank says: a version, and what each server holds.
  void become(uint64_t version, std::map<uint16_t, ShardSet> shards);

 private:
  [[nodiscard]] std::vector<uint16_t> owners_of(size_t shard, const Absent& absent) const;
  /// The first owner that does not hold the shard.
  [[nodiscard]] std::optional<uint16_t> lacking(size_t shard, const Absent& absent) const;
  [[nodiscard]] std::optional<uint16_t> source_of(size_t shard,
                                                  const std::vector<bool>& lost) const;
  void index();

  size_t copies_;
  uint64_t version_ = 0;
  std::map<uint16_t, ShardSet> shards_;          ///< By server.
  std::vector<std::vector<uint16_t>> by_shard_;  ///< The same, the best first.
};

}  // namespace corro::table
