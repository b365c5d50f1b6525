#include "app/planning/probed_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/cluster/cluster_file.h"

namespace corro::app {
namespace {

using testing::HasSubstr;

ProbedHost four_cores(const std::string& name, double flops = 400e9) {
  return {.name = name,
          .speed = {.cores = 4,
                    .flops_of_one = 120e9,
                    .flops_of_all = flops,
                    .bandwidth_of_one = 10e9,
                    .bandwidth_of_all = 24e9},
          .memory = 32e9};
}

/// Links of these bytes/s, row by row; 0: not measured.
launch::Health health_of(const std::vector<std::vector<double>>& bandwidths) {
  launch::Health health;
  for (size_t from = 0; from < bandwidths.size(); ++from) {
    health.hosts.push_back({.name = "node" + std::to_string(from + 1)});
    for (size_t to = 0; to < bandwidths.size(); ++to) {
      if (from == to) continue;
      health.links.push_back({.link = {from, to},
                              .round_trip = std::chrono::microseconds(50),
                              .bytes_per_second = bandwidths[from][to]});
    }
  }
  return health;
}

std::vector<plan::Cluster> clusters(size_t count) {
  return std::vector<plan::Cluster>(count, cluster_of(four_cores("x")));
}

TEST(ProbedCluster, ACoreHasItsShareOfTheHost) {
  const plan::Cluster cluster = cluster_of(four_cores("node1"));
  EXPECT_EQ(cluster.device_count(), 4U);
  EXPECT_EQ(cluster.host_name(0), "node1");
  EXPECT_DOUBLE_EQ(cluster.types[0].peak[static_cast<size_t>(DType::kF32)], 100e9);
  EXPECT_DOUBLE_EQ(cluster.types[0].memory_bandwidth, 6e9);
  EXPECT_DOUBLE_EQ(cluster.types[0].memory, 8e9);
  EXPECT_DOUBLE_EQ(cluster.hosts[0].link.bandwidth, 5e9);
}

TEST(ProbedCluster, IsReadAsItWasWritten) {
  const auto joined =
      join_hosts(clusters(3), health_of({{0, 1e9, 1e9}, {1e9, 0, 9e9}, {1e9, 9e9, 0}}));
  ASSERT_TRUE(joined.ok()) << joined.status().message();
  for (const plan::Cluster& cluster : {*joined, cluster_of(four_cores("node.a-7"))}) {
    const auto text = plan::write_cluster(cluster);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const auto again = plan::read_cluster(*text, "cluster.yaml", {});
    ASSERT_TRUE(again.ok()) << again.status().message();
    EXPECT_EQ(*again, cluster);
  }
}

TEST(ProbedCluster, EqualLinksNeedNoMatrix) {
  const auto cluster = join_hosts(clusters(2), health_of({{0, 1.00e9}, {1.05e9, 0}}));
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_TRUE(cluster->matrix.empty());
  EXPECT_EQ(cluster->types.size(), 1U);
  EXPECT_NEAR(cluster->hosts[1].network.latency, 25e-6, 1e-9);
}

TEST(ProbedCluster, ASlowLinkStandsInTheMatrixAndUnmeasuredOnesAreAsTheirHosts) {
  const auto cluster = join_hosts(
      clusters(4),
      health_of({{0, 8e9, 8e9, 0}, {8e9, 0, 8e9, 8e9}, {1e9, 8e9, 0, 8e9}, {0, 8e9, 8e9, 0}}));
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  ASSERT_EQ(cluster->matrix.size(), 16U);
  EXPECT_DOUBLE_EQ(cluster->matrix[8], 1e9);
  EXPECT_DOUBLE_EQ(cluster->matrix[3], 8e9);
}

TEST(ProbedCluster, HostsThatDifferAreTypesOfTheirOwn) {
  auto hosts = clusters(3);
  hosts[1] = cluster_of(four_cores("y", 100e9));
  hosts[2] = cluster_of(four_cores("z", 380e9));
  const auto cluster = join_hosts(hosts, health_of({{0, 1e9, 1e9}, {1e9, 0, 1e9}, {1e9, 1e9, 0}}));
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  ASSERT_EQ(cluster->types.size(), 2U);
  EXPECT_EQ(cluster->types[1].name, "core-2");
  EXPECT_EQ(cluster->hosts[2].type, 0U);
  EXPECT_DOUBLE_EQ(cluster->types[0].peak[static_cast<size_t>(DType::kF32)], 95e9);
}

TEST(ProbedCluster, AHostThatDoesNotAnswerOrHasNoLinkIsNamed) {
  launch::Health health = health_of({{0, 1e9}, {1e9, 0}});
  health.hosts[1].failure = "no answer for 5 s";
  EXPECT_EQ(join_hosts(clusters(2), health).status().message(), "node2: no answer for 5 s");
  EXPECT_THAT(join_hosts(clusters(2), health_of({{0, 0}, {0, 0}})).status().message(),
              HasSubstr("node1: no link"));
}

TEST(HostSpeed, IsPositiveAndAllCoresAreNoLessThanOneTimesAFraction) {
  const HostSpeed speed = measure_host(1);
  EXPECT_GT(speed.flops_of_one, 0);
  EXPECT_GT(speed.flops_of_all, 0);
  EXPECT_GT(speed.bandwidth_of_one, 0);
  EXPECT_GT(speed.bandwidth_of_all, 0);
}

}  // namespace
}  // namespace corro::app
