#include "plan/tables/table_times.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace corro::plan {
namespace {

// Seconds of a processor, on each of both sides, and for a byte that goes through it. With these a
// pull of dim 16 takes 0.35 us of both sides together, a push 0.56 us, and one to two servers
// 0.92 us; measured were 0.37, 0.56 and 0.91 us (docs/benchmarks.md, 2026-11-30).
constexpr double kPulledRow = 0.11e-6;
constexpr double kPushedRow = 0.21e-6;
constexpr double kByte = 1e-9;
// A call that asks for one row of a server on the same host (medians of 20 to 23 us, 2026-11-30).
constexpr double kCall = 20e-6;
// Beside a row's weights and state: its entry in the index, and free places (docs/tables.md).
constexpr double kIndexBytes = 18;
constexpr double kKeyBytes = 8;
constexpr double kGradientBytes = 4;

}  // namespace

TableWorld world_of(const Cluster& cluster, uint32_t ranks) {
  TableWorld world{.ranks = ranks, .hosts = cluster.host_count()};
  world.ranks_a_host = (ranks + world.hosts - 1) / world.hosts;
  const double most = std::numeric_limits<double>::max();
  world.network.bandwidth = world.inside = world.memory_bandwidth = most;
  world.rank_memory = world.host_memory = most;
  for (const HostGroup& group : cluster.hosts) {
    const DeviceType& type = cluster.types[group.type];
    world.network.latency = std::max(world.network.latency, group.network.latency);
    if (group.network.bandwidth > 0) {
      world.network.bandwidth = std::min(world.network.bandwidth, group.network.bandwidth);
    }
    if (group.link.bandwidth > 0) {
      world.inside = std::min(world.inside, group.link.bandwidth);
    }
    world.memory_bandwidth = std::min(world.memory_bandwidth, type.memory_bandwidth);
    world.rank_memory = std::min(world.rank_memory, type.memory);
    world.host_memory = std::min(world.host_memory, group.host_memory);
  }
  for (const SwitchLevel& level : cluster.switches) {
    world.network.bandwidth = std::min(world.network.bandwidth, level.between.bandwidth);
    world.network.latency = std::max(world.network.latency, level.between.latency);
  }
  for (size_t i = 0; i < cluster.matrix.size(); ++i) {
    if (i / world.hosts == i % world.hosts) continue;
    world.network.bandwidth = std::min(world.network.bandwidth, cluster.matrix[i]);
  }
  return world;
}

double distinct_ids(const TableNeed& table, double samples_of_rank) {
  const double ids = std::max(1.0, samples_of_rank * table.ids);
  if (table.distinct) return std::max(1.0, std::min(table.rows, ids * *table.distinct));
  // Each row equally likely: rows * (1 - (1 - 1/rows)^ids).
  const double expected = table.rows * -std::expm1(ids * std::log1p(-1 / (table.rows + 1)));
  return std::max(1.0, std::min({expected, ids, table.rows}));
}

double served_seconds(const TableNeed& table, double distinct, const TableWorld& world,
                      uint32_t servers, uint32_t copies) {
  const double row = table.dim * kGradientBytes;
  const double change = row + kKeyBytes;
  const double rank = distinct * (kPulledRow + row * kByte + kPushedRow + copies * change * kByte);
  const double server = world.ranks * distinct / servers *
                        (kPulledRow + row * kByte + copies * (kPushedRow + change * kByte));
  double network = 0;
  if (world.hosts > 1) {
    const uint32_t on_host = (servers + world.hosts - 1) / world.hosts;
    const double here = static_cast<double>(on_host) / servers;  // of all rows
    const double asked = distinct * (kKeyBytes + copies * change);
    const double answered = distinct * row;
    const double others = world.ranks - world.ranks_a_host;
    const double out = world.ranks_a_host * asked * (1 - here) + here * others * answered;
    const double in = world.ranks_a_host * answered * (1 - here) + here * others * asked;
    network = std::max(out, in) / world.network.bandwidth + 4 * world.network.latency;
  }
  return 2 * kCall + rank + std::max(server, network);
}

double replicated_seconds(const TableNeed& table, const TableWorld& world) {
  const double elements = table.rows * table.dim;
  const double bandwidth = world.hosts > 1 ? world.network.bandwidth : world.inside;
  const double ranks = world.ranks;
  // A ring, in which each host's network carries one rank's share (Patarasuk and Yuan 2009). The
  // gradients are in buckets with others, so no collective begins for them alone.
  const double reduce = 2 * (ranks - 1) / ranks * elements * kGradientBytes / bandwidth;
  // The optimizer reads and writes weights and state, and reads gradients.
  const double touched = table.rows * (2 * row_bytes(table) + kGradientBytes * table.dim);
  return reduce + touched / world.memory_bandwidth;
}

double served_bytes(const TableNeed& table, uint32_t copies) {
  return copies * table.rows * (row_bytes(table) + kIndexBytes);
}

double replicated_bytes(const TableNeed& table) {
  return table.rows * (row_bytes(table) + kGradientBytes * table.dim);
}

}  // namespace corro::plan
