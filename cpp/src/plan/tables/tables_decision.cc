// One way for each number of servers: tables that are pinned go where they are pinned, those of
// which a rank has no room are served, the rest goes where it takes less. Then memory of ranks is
// given to tables by what they save for each byte; the rest of them is served. A way that servers
// have no room for is dropped. The best of what is left wins (tables_decision.h says by what).
#include "plan/tables/tables_decision.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "plan/amounts.h"
#include "plan/tables/table_times.h"

namespace corro::plan {
namespace {

constexpr uint32_t kMostServersAHost = 4;
constexpr double kShareOfRankMemory = 0.1;
constexpr double kAsGood = 1.01;
/// Below it a step is hardly shorter without what could be hidden.
constexpr double kWorthHiding = 0.1;
constexpr uint32_t kMostStaleness = 4;

struct Candidate {
  const TableNeed* need;
  double distinct;
  double replicated;
  double rank_bytes;
};

struct Way {
  uint32_t servers;
  uint32_t copies;
  double seconds = 0;
  double server_bytes = 0;
  double rank_bytes = 0;
  std::vector<TablePlace> places = {};
  std::vector<double> served = {};  ///< Seconds of each table, if it is served.
};

class Ways {
 public:
  Ways(const Tables& tables, const TableWorld& world) : tables_(tables), world_(world) {
    rank_memory_ =
        tables.rank_memory > 0 ? tables.rank_memory : kShareOfRankMemory * world.rank_memory;
    for (const TableNeed& need : tables.tables) {
      const double samples = static_cast<double>(tables.batch) / world.ranks;
      candidates_.push_back({&need, distinct_ids(need, samples), replicated_seconds(need, world),
                             replicated_bytes(need)});
    }
  }

  [[nodiscard]] Way with(uint32_t servers) const;
  [[nodiscard]] double rank_memory() const { return rank_memory_; }
  [[nodiscard]] const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  void fill_ranks(Way& way) const;

  const Tables& tables_;
  const TableWorld& world_;
  double rank_memory_ = 0;
  std::vector<Candidate> candidates_;
};

Way Ways::with(uint32_t servers) const {
  Way way{.servers = servers, .copies = std::min(servers, 1 + tables_.replicas)};
  for (const Candidate& each : candidates_) {
    way.served.push_back(served_seconds(*each.need, each.distinct, world_, servers, way.copies));
  }
  fill_ranks(way);
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_served = way.places[i] == TablePlace::kServed;
    way.seconds += is_served ? way.served[i] : candidates_[i].replicated;
    if (is_served) {
      way.server_bytes += served_bytes(*candidates_[i].need, way.copies) / servers;
    } else {
      way.rank_bytes += candidates_[i].rank_bytes;
    }
  }
  return way;
}

void Ways::fill_ranks(Way& way) const {
  way.places.assign(candidates_.size(), TablePlace::kServed);
  double left = rank_memory_;
  std::vector<size_t> wanting;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const Candidate& each = candidates_[i];
    if (each.need->pinned == TablePlace::kReplicated) {
      way.places[i] = TablePlace::kReplicated;
      left -= each.rank_bytes;
    } else if (!each.need->pinned && each.replicated < way.served[i]) {
      wanting.push_back(i);
    }
  }
  const auto worth = [&](size_t i) {
    return (way.served[i] - candidates_[i].replicated) / candidates_[i].rank_bytes;
  };
  std::ranges::stable_sort(wanting, [&](size_t a, size_t b) { return worth(a) > worth(b); });
  for (const size_t i : wanting) {
    if (candidates_[i].rank_bytes > left) continue;
    way.places[i] = TablePlace::kReplicated;
    left -= candidates_[i].rank_bytes;
  }
}

bool has_served(const Way& way) {
  return std::ranges::find(way.places, TablePlace::kServed) != way.places.end();
}

std::string why_place(const Ways& ways, const Way& way, size_t i) {
  const Candidate& each = ways.candidates()[i];
  const bool is_served = way.places[i] == TablePlace::kServed;
  if (each.need->pinned) return "pinned";
  if (!is_served) return fmt::format("{} served", seconds_text(way.served[i]));
  if (each.rank_bytes > ways.rank_memory()) {
    return fmt::format("{} on each rank, which has {} for tables", bytes_text(each.rank_bytes),
                       bytes_text(ways.rank_memory()));
  }
  if (each.replicated < way.served[i]) {
    return fmt::format("{} replicated, but ranks have no {} left", seconds_text(each.replicated),
                       bytes_text(each.rank_bytes));
  }
  return fmt::format("{} replicated", seconds_text(each.replicated));
}

void explain_staleness(const Tables& tables, TablesDecision& decision) {
  double served = 0;
  for (const TableDecision& each : decision.tables) {
    if (each.place == TablePlace::kServed) served += each.seconds;
  }
  const double step = tables.step;
  if (decision.servers == 0 || step <= 0) {
    decision.why_staleness = decision.servers == 0
                                 ? "no table is served"
                                 : "without `step` nothing says what could be hidden";
    return;
  }
  const double share = served / (served + step);
  if (share < kWorthHiding) {
    decision.why_staleness = fmt::format("rows take {} of a step", percent_text(share));
    return;
  }
  decision.staleness =
      static_cast<uint32_t>(std::min<double>(kMostStaleness, std::ceil(served / step)));
  decision.why_staleness = fmt::format(
      "rows take {} of a step in sync mode, which is exact; beside the step {} of {} are hidden",
      percent_text(share), seconds_text(std::min(served, step)), seconds_text(served));
}

/// What decided the number of servers: the file, memory, copies, or time.
std::string why_servers(const Tables& tables, const std::vector<Way>& fitting, const Way& best,
                        uint32_t least) {
  if (!has_served(best)) return "no table is served";
  if (tables.servers != 0) return "pinned";
  const Way& fewest = fitting.front();
  if (best.servers == fewest.servers && best.servers > least) {
    return fmt::format("fewer have no room: {} on each", bytes_text(best.server_bytes));
  }
  if (best.servers == least && least > 1 && fitting.size() > 1) {
    return fmt::format("each row is on {}; more save less than one hundredth of a step",
                       counted(best.copies, "server"));
  }
  if (best.servers == fewest.servers) return "more save less than one hundredth of a step";
  return fmt::format("tables take {} of a step, with {} {}", seconds_text(best.seconds),
                     fewest.servers, seconds_text(fewest.seconds));
}

Result<double> server_memory_of(const Tables& tables, const TableWorld& world) {
  if (tables.server_memory > 0) return tables.server_memory;
  if (world.host_memory > 0) return world.host_memory;
  return Status{Code::kInvalidArgument,
                "server_memory is missing, and the cluster's file has no host_memory"};
}

/// The least and the most.
std::pair<uint32_t, uint32_t> servers_of(const Tables& tables, const TableWorld& world) {
  if (tables.servers != 0) return {tables.servers, tables.servers};
  const uint32_t least = 1 + tables.replicas;
  return {least, std::max(least, std::min(kMostTableServers, kMostServersAHost * world.hosts))};
}

/// A host's servers share its memory, if that is what the cluster's file says.
double room_of(const Tables& tables, const TableWorld& world, double memory, uint32_t servers) {
  if (tables.server_memory > 0) return memory;
  const uint32_t a_host = (servers + world.hosts - 1) / world.hosts;
  return memory / a_host;
}

Result<std::vector<Way>> ways_that_fit(const Tables& tables, const TableWorld& world,
                                       const Ways& ways) {
  CORRO_ASSIGN(const double memory, server_memory_of(tables, world));
  const auto [least, most] = servers_of(tables, world);
  std::vector<Way> fitting;
  const Way last = ways.with(most);
  if (last.rank_bytes > ways.rank_memory()) {
    return Status{Code::kFailedPrecondition,
                  fmt::format("tables that are pinned as replicated take {} of each rank, which "
                              "has {} for tables (rank_memory)",
                              bytes_text(last.rank_bytes), bytes_text(ways.rank_memory()))};
  }
  for (uint32_t servers = least; servers <= most; ++servers) {
    Way way = ways.with(servers);
    if (way.server_bytes > room_of(tables, world, memory, servers)) continue;
    fitting.push_back(std::move(way));
  }
  if (!fitting.empty()) return fitting;
  return Status{Code::kFailedPrecondition,
                fmt::format("tables take {} on each of {}, which has {}: more hosts, fewer "
                            "replicas, or bf16 rows",
                            bytes_text(last.server_bytes), counted(most, "server"),
                            bytes_text(room_of(tables, world, memory, most)))};
}

const Way& best_of(const std::vector<Way>& ways, double step) {
  const auto time_of = [&](const Way& way) { return way.seconds + step; };
  const double bar = kAsGood * time_of(*std::ranges::min_element(ways, {}, time_of));
  return *std::ranges::find_if(ways, [&](const Way& way) { return time_of(way) <= bar; });
}

TableDecision decision_of(const Ways& ways, const Way& way, size_t i) {
  const Candidate& each = ways.candidates()[i];
  const bool is_served = way.places[i] == TablePlace::kServed;
  return {.name = each.need->name,
          .place = way.places[i],
          .seconds = is_served ? way.served[i] : each.replicated,
          .bytes = is_served ? served_bytes(*each.need, way.copies) : each.rank_bytes,
          .distinct = each.distinct,
          .why = why_place(ways, way, i)};
}

}  // namespace

Result<TablesDecision> decide_tables(const Tables& tables, const Cluster& cluster) {
  const TableWorld world =
      world_of(cluster, tables.ranks != 0 ? tables.ranks : cluster.device_count());
  const Ways ways(tables, world);
  CORRO_ASSIGN(const std::vector<Way> fitting, ways_that_fit(tables, world, ways));
  const Way& best = best_of(fitting, tables.step);
  TablesDecision decision{.ranks = world.ranks,
                          .servers = has_served(best) ? best.servers : 0,
                          .copies = has_served(best) ? best.copies : 0,
                          .seconds = best.seconds,
                          .server_bytes = best.server_bytes,
                          .rank_bytes = best.rank_bytes};
  for (size_t i = 0; i < best.places.size(); ++i) {
    decision.tables.push_back(decision_of(ways, best, i));
  }
  decision.why_servers = why_servers(tables, fitting, best, servers_of(tables, world).first);
  explain_staleness(tables, decision);
  return decision;
}

}  // namespace corro::plan
