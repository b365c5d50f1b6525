// Splits what a user asks for, ids in any order and more than once, into what servers are asked:
// ascending keys, each once, by server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace corro::table {

/// The server of a key: its virtual shard, by the top bits of a hash, belongs to a server. Pure.
[[nodiscard]] size_t server_of(uint64_t key, size_t servers);

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

/// Which of the keys a server has; both ascend.
struct ServerKeys {
  std::vector<uint64_t> keys;
  std::vector<uint32_t> rows;  ///< Their indices among all keys.
};
/// By server.
[[nodiscard]] std::vector<ServerKeys> by_server(std::span<const uint64_t> keys, size_t servers);

}  // namespace corro::table
