#include "plan/tables/tables_decision.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "plan/cluster/cluster_file.h"
#include "plan/tables/table_times.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;

constexpr double kGigabyte = 1e9;

Cluster cluster_of(uint32_t hosts, double network = 1.25e9) {
  const DeviceType type{.name = "gpu", .memory = 16e9, .memory_bandwidth = 300e9};
  return {.name = "c",
          .types = {type},
          .hosts = {{.count = hosts,
                     .devices = 2,
                     .link = {10e9, 1e-5},
                     .network = {network, 5e-5},
                     .host_memory = 64e9}}};
}

Tables tables_of(std::vector<TableNeed> needs) {
  return {.name = "t", .batch = 4096, .tables = std::move(needs)};
}

TableNeed users() { return {.name = "users", .rows = 1e8, .dim = 32}; }
TableNeed days() { return {.name = "days", .rows = 7, .dim = 16}; }

TEST(TablesDecision, SmallTablesAreOnEveryRankAndLargeOnesOnServers) {
  const auto decision = decide_tables(tables_of({users(), days()}), cluster_of(2));
  ASSERT_TRUE(decision.ok()) << decision.status().message();
  EXPECT_EQ(decision->ranks, 4);
  EXPECT_EQ(decision->copies, 2);
  EXPECT_GE(decision->servers, 2);
  EXPECT_EQ(decision->tables[0].place, TablePlace::kServed);
  EXPECT_THAT(decision->tables[0].why, HasSubstr("on each rank, which has 1.49 GiB for tables"));
  EXPECT_EQ(decision->tables[1].place, TablePlace::kReplicated);
  EXPECT_THAT(decision->tables[1].why, HasSubstr(" served"));
  EXPECT_EQ(decision->seconds, decision->tables[0].seconds + decision->tables[1].seconds);
  EXPECT_DOUBLE_EQ(decision->server_bytes * decision->servers, decision->tables[0].bytes);
  EXPECT_EQ(decision->rank_bytes, 7 * 2 * 64);
}

TEST(TablesDecision, WithoutServedTablesThereAreNoServers) {
  const auto decision = decide_tables(tables_of({days()}), cluster_of(1));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->servers, 0);
  EXPECT_EQ(decision->copies, 0);
  EXPECT_EQ(decision->why_servers, "no table is served");
  EXPECT_EQ(decision->why_staleness, "no table is served");
}

TEST(TablesDecision, PinsAreKept) {
  Tables tables = tables_of({users(), days()});
  tables.tables[1].pinned = TablePlace::kServed;
  tables.servers = 3;
  tables.replicas = 0;
  const auto decision = decide_tables(tables, cluster_of(2));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->servers, 3);
  EXPECT_EQ(decision->copies, 1);
  EXPECT_EQ(decision->why_servers, "pinned");
  EXPECT_EQ(decision->tables[1].place, TablePlace::kServed);
  EXPECT_EQ(decision->tables[1].why, "pinned");
}

TEST(TablesDecision, MemoryAsksForServers) {
  // 2 copies of 1e8 rows of 128 + 18 bytes are 29.2 GB.
  Tables tables = tables_of({users()});
  tables.server_memory = 6 * kGigabyte;
  const auto decision = decide_tables(tables, cluster_of(4));
  ASSERT_TRUE(decision.ok());
  EXPECT_GE(decision->servers, 5);
  EXPECT_LE(decision->server_bytes, 6 * kGigabyte);
  tables.server_memory = 1.8 * kGigabyte;
  EXPECT_EQ(decide_tables(tables, cluster_of(4)).status().message(),
            "tables take 1.70 GiB on each of 16 servers, which has 1.68 GiB: more hosts, fewer "
            "replicas, or bf16 rows");
}

TEST(TablesDecision, RanksHaveRoomForWhatSavesMostOfIt) {
  std::vector<TableNeed> needs;
  for (int i = 0; i < 4; ++i) needs.push_back({.name = std::to_string(i), .rows = 100, .dim = 16});
  needs.push_back({.name = "larger", .rows = 300, .dim = 16});
  Tables tables = tables_of(needs);
  tables.rank_memory = 3 * 100 * 128;
  const auto decision = decide_tables(tables, cluster_of(1));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->rank_bytes, tables.rank_memory);
  EXPECT_EQ(decision->tables[4].place, TablePlace::kServed);
  EXPECT_THAT(decision->tables[4].why, HasSubstr("but ranks have no 37.5 KiB left"));
}

TEST(TablesDecision, WhatTakesLongBesideTheStepMayBeStale) {
  Tables tables = tables_of({users()});
  tables.step = 10;
  auto decision = decide_tables(tables, cluster_of(2));
  ASSERT_TRUE(decision.ok());
  EXPECT_EQ(decision->staleness, 0);
  EXPECT_THAT(decision->why_staleness, HasSubstr("of a step"));
  tables.step = decision->seconds / 1.5;
  decision = decide_tables(tables, cluster_of(2));
  EXPECT_GE(decision->staleness, 1);
  EXPECT_LE(decision->staleness, 2);
  tables.step = 1e-9;
  EXPECT_EQ(decide_tables(tables, cluster_of(2))->staleness, 4);
  tables.step = 0;
  EXPECT_EQ(decide_tables(tables, cluster_of(2))->why_staleness,
            "without `step` nothing says what could be hidden");
}

TEST(TablesDecision, SaysWhatItCannotKnowOrPlace) {
  Cluster cluster = cluster_of(2);
  cluster.hosts[0].host_memory = 0;
  EXPECT_EQ(decide_tables(tables_of({users()}), cluster).status().code(), Code::kInvalidArgument);
  Tables tables = tables_of({users()});
  tables.tables[0].pinned = TablePlace::kReplicated;
  EXPECT_EQ(decide_tables(tables, cluster_of(2)).status().message(),
            "tables that are pinned as replicated take 23.8 GiB of each rank, which has 1.49 GiB "
            "for tables (rank_memory)");
}

Tables random_tables(std::mt19937_64& random) {
  const auto between = [&](double least, double most) {
    return std::exp(
        std::uniform_real_distribution<double>(std::log(least), std::log(most))(random));
  };
  std::vector<TableNeed> needs;
  for (size_t i = 0; i <= random() % 6; ++i) {
    needs.push_back({.name = std::to_string(i),
                     .rows = between(1, 1e8),
                     .dim = static_cast<uint32_t>(between(1, 256)),
                     .optimizer = static_cast<RowOptimizer>(random() % kRowOptimizerCount),
                     .ids = between(0.1, 10)});
  }
  Tables tables = tables_of(std::move(needs));
  tables.replicas = static_cast<uint32_t>(random() % 3);
  tables.rank_memory = 1e15;
  tables.server_memory = 1e15;
  return tables;
}

/// Every number of servers with every placement of every table.
double least_seconds(const Tables& tables, const Cluster& cluster, uint32_t most_servers) {
  const TableWorld world = world_of(cluster, cluster.device_count());
  double least = 1e300;
  for (uint32_t servers = 1 + tables.replicas; servers <= most_servers; ++servers) {
    for (uint64_t places = 0; places < uint64_t{1} << tables.tables.size(); ++places) {
      double seconds = 0;
      for (size_t i = 0; i < tables.tables.size(); ++i) {
        const TableNeed& need = tables.tables[i];
        const double distinct = distinct_ids(need, double{4096} / world.ranks);
        seconds += (places >> i & 1U) != 0
                       ? replicated_seconds(need, world)
                       : served_seconds(need, distinct, world, servers, 1 + tables.replicas);
      }
      least = std::min(least, seconds);
    }
  }
  return least;
}

TEST(TablesDecision, IsWithinAHundredthOfTheBestOfAll) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Tables tables = random_tables(random);
    const Cluster cluster = cluster_of(static_cast<uint32_t>(1 + random() % 3));
    const auto decision = decide_tables(tables, cluster);
    ASSERT_TRUE(decision.ok()) << decision.status().message();
    const double least = least_seconds(tables, cluster, 4 * cluster.host_count());
    EXPECT_LE(decision->seconds, 1.01 * least * (1 + 1e-9));
    EXPECT_GE(decision->seconds, least * (1 - 1e-9));
  }
}

TEST(TableTimes, IdsDifferAsFarAsTheyCan) {
  const auto distinct = [](double rows, double ids, double samples) {
    return distinct_ids({.rows = rows, .dim = 1, .ids = ids}, samples);
  };
  EXPECT_EQ(distinct(1, 1, 1000), 1);
  EXPECT_NEAR(distinct(100, 1, 1e6), 100, 1e-3);
  EXPECT_NEAR(distinct(1e12, 1, 1000), 1000, 1);
  EXPECT_NEAR(distinct(1000, 1, 1000), 632, 1);  // 1 - 1/e
  EXPECT_EQ(distinct_ids({.rows = 1e9, .dim = 1, .distinct = 0.25}, 1000), 250);
}

TEST(TableTimes, MoreServersMoreBandwidthAndFewerCopiesTakeNoLonger) {
  const TableNeed need = users();
  const TableWorld slow = world_of(cluster_of(4, 1e8), 8);
  const TableWorld fast = world_of(cluster_of(4, 1e10), 8);
  for (uint32_t servers = 4; servers <= 32; servers += 4) {
    const double seconds = served_seconds(need, 1e4, slow, servers, 2);
    EXPECT_LE(served_seconds(need, 1e4, slow, servers + 4, 2), seconds);
    EXPECT_LT(served_seconds(need, 1e4, fast, servers, 2), seconds);
    EXPECT_LT(served_seconds(need, 1e4, slow, servers, 1), seconds);
  }
}

}  // namespace
}  // namespace corro::plan
