// Splits what a user asks for, ids in any order and more than once, into what servers are asked:
// ascending keys, each once, by server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "table/service/holders.h"

namespace corro::table {

/// The keys of a call, each once.
struct DistinctKeys {
  std::vector<uint64_t> keys;    ///< Ascending.
  std::vector<uint32_t> row_of;  ///< By id, in the user's order: the index of its key.
};
/// Fewer than 2^32 ids.
[[nodiscard]] DistinctKeys distinct(std::span<const uint64_t> ids);

/// Adds up the gradients of each key, in the order of the ids: `gradients` is [ids, dim], the result
/// [keys, dim].
[[nodiscard]] std::vector<float> add_up(const DistinctKeys& keys, std::span<const float> gradients,
                                        size_t dim);

/// Keys for a server; both ascend.
struct ServerKeys {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> rows;  ///< Their indices among all keys.
};
/// For each server the keys that it is asked for: a key goes to the first of its holders that is not
/// lost. Each has one.
[[nodiscard]] std::vector<ServerKeys> for_pull(std::span<const uint64_t> keys,
                                               const Holders& holders,
                                               const std::vector<bool>& lost);
/// For each server the keys that it has: a key goes to all of its holders that are not lost.
[[nodiscard]] std::vector<ServerKeys> for_push(std::span<const uint64_t> keys,
                                               const Holders& holders,
                                               const std::vector<bool>& lost);

}  // namespace corro::table
