// What a table takes of a step: seconds by the number of rows that a rank asks for and changes, and
// by bytes on links. Pure.
//
// A pull and a push are two calls of a rank, each of which waits for its answer. So a table takes
// the rank's own work and after it the longer one of the servers' work and the network. Times of
// rows are those of `make bench ONLY=table` (docs/benchmarks.md), as are those of bytes.
#pragma once

#include <cstdint>

#include "plan/cluster/cluster.h"
#include "plan/tables/tables_file.h"

namespace corro::plan {

/// Where ranks and servers are, reduced to what decides: hosts have ranks and servers by turns.
struct TableWorld {
  uint32_t ranks = 1;
  uint32_t hosts = 1;
  uint32_t ranks_a_host = 1;  ///< On the fullest host.
  Link network = {};          ///< The narrowest of any host; of one host alone it is not used.
  double inside = 0;          ///< Bytes/s of the narrowest link between two devices of a host.
  double memory_bandwidth = 0;
  double rank_memory = 0;  ///< The smallest of any device.
  double host_memory = 0;  ///< 0: not known.
};

[[nodiscard]] TableWorld world_of(const Cluster& cluster, uint32_t ranks);

/// Different ids of a rank in a step.
[[nodiscard]] double distinct_ids(const TableNeed& table, double samples_of_rank);

/// Seconds of a step in sync mode. `copies`: servers that have each row, 1 to `servers`.
[[nodiscard]] double served_seconds(const TableNeed& table, double distinct,
                                    const TableWorld& world, uint32_t servers, uint32_t copies);

/// Seconds of a step: gradients of all rows are reduced, and all rows are changed.
[[nodiscard]] double replicated_seconds(const TableNeed& table, const TableWorld& world);

/// Bytes of all rows on all servers together.
[[nodiscard]] double served_bytes(const TableNeed& table, uint32_t copies);
/// Bytes on each rank: weights, state and gradients.
[[nodiscard]] double replicated_bytes(const TableNeed& table);

}  // namespace corro::plan
