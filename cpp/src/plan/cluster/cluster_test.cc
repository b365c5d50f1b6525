#include "plan/cluster/cluster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"

namespace corro::plan {
namespace {

/// Three groups: 3 hosts with 2 devices, 1 with 5, 2 with 1.
Cluster three_groups() {
  return {.types = {{.name = "t"}},
          .hosts = {{.name = "a", .count = 3, .devices = 2, .link = {9, 1}, .network = {5, 2}},
                    {.name = "b", .devices = 5, .link = {8, 1}, .network = {4, 3}},
                    {.name = "c", .count = 2, .devices = 1, .network = {6, 1}}}};
}

TEST(Cluster, CountsHostsAndDevicesInFileOrder) {
  const Cluster cluster = three_groups();
  EXPECT_EQ(cluster.host_count(), 6);
  EXPECT_EQ(cluster.device_count(), 13);
  const std::vector<std::string> names = {"a0", "a1", "a2", "b", "c0", "c1"};
  for (uint32_t host = 0; host < 6; ++host) EXPECT_EQ(cluster.host_name(host), names[host]);
  EXPECT_EQ(cluster.group_of(2).name, "a");
  EXPECT_EQ(cluster.group_of(3).name, "b");
  EXPECT_EQ(cluster.group_of(4).name, "c");
}

TEST(Cluster, DevicesAreNumberedHostByHost) {
  const Cluster cluster = three_groups();
  uint32_t device = 0;
  for (uint32_t host = 0; host < cluster.host_count(); ++host) {
    for (uint32_t i = 0; i < cluster.group_of(host).devices; ++i) {
      EXPECT_EQ(cluster.host_of(device++), host);
    }
  }
  EXPECT_EQ(device, cluster.device_count());
  EXPECT_THROW((void)cluster.host_of(device), ContractError);
  EXPECT_THROW((void)cluster.group_of(6), ContractError);
}

TEST(Cluster, TheNarrowestOnTheWayJoinsTwoHosts) {
  Cluster cluster = three_groups();
  EXPECT_EQ(cluster.link_between_hosts(0, 1), (Link{5, 2}));
  EXPECT_EQ(cluster.link_between_hosts(0, 3), (Link{4, 3}));
  EXPECT_EQ(cluster.link_between_hosts(5, 3), (Link{4, 3}));
  EXPECT_EQ(cluster.link_between_hosts(4, 0), (Link{5, 2}));
  EXPECT_EQ(cluster.link_between_hosts(1, 1), (Link{9, 1}));
  cluster.switches = {{2, {3, 4}}, {4, {1, 5}}};
  EXPECT_EQ(cluster.link_between_hosts(0, 1), (Link{5, 2}));
  EXPECT_EQ(cluster.link_between_hosts(1, 2), (Link{3, 4}));
  EXPECT_EQ(cluster.link_between_hosts(3, 4), (Link{1, 5}));
  EXPECT_EQ(cluster.link_between_hosts(4, 5), (Link{6, 1}));
}

TEST(Cluster, AMatrixSaysTheBandwidth) {
  Cluster cluster = three_groups();
  for (int i = 0; i < 36; ++i) cluster.matrix.push_back(100 + i);
  EXPECT_EQ(cluster.link_between_hosts(1, 2), (Link{108, 2}));
  EXPECT_EQ(cluster.link_between_hosts(2, 1), (Link{113, 2}));
  EXPECT_EQ(cluster.link_between_hosts(3, 3), (Link{8, 1}));
}

/// What a planner can see of the hosts, by name.
std::map<std::string, std::vector<double>> links_of(const Cluster& cluster) {
  std::map<std::string, std::vector<double>> links;
  for (uint32_t a = 0; a < cluster.host_count(); ++a) {
    std::vector<std::pair<std::string, double>> row;
    for (uint32_t b = 0; b < cluster.host_count(); ++b) {
      row.emplace_back(cluster.host_name(b), cluster.link_between_hosts(a, b).bandwidth);
    }
    std::ranges::sort(row);
    for (const auto& [name, bandwidth] : row) links[cluster.host_name(a)].push_back(bandwidth);
  }
  return links;
}

TEST(Cluster, WithoutHostsTheOthersKeepNamesSwitchesAndBandwidths) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Cluster cluster = three_groups();
    for (size_t i = 0; i < 3; ++i) {
      cluster.hosts[i].network.bandwidth = 100 + static_cast<double>(random() % 100);
    }
    cluster.switches = {{2, {50, 0}}, {4, {20, 0}}};
    if (seed % 3 == 0) {
      for (int i = 0; i < 36; ++i) cluster.matrix.push_back(static_cast<double>(random() % 1000));
    }
    // The slow way: the whole cluster's table, without the rows and columns of lost hosts.
    auto expected = links_of(cluster);
    std::vector<std::string> names;
    for (uint32_t i = 0; i < 6; ++i) names.push_back(cluster.host_name(i));
    while (cluster.host_count() > 1) {
      const auto host = static_cast<uint32_t>(random() % cluster.host_count());
      const std::string lost = cluster.host_name(host);
      std::vector<std::string> sorted = names;
      std::ranges::sort(sorted);
      const auto column = std::ranges::find(sorted, lost) - sorted.begin();
      expected.erase(lost);
      for (auto& [name, row] : expected) row.erase(row.begin() + column);
      std::erase(names, lost);
      cluster = cluster.without_host(host);
      ASSERT_EQ(links_of(cluster), expected);
      for (uint32_t i = 0; i < names.size(); ++i) ASSERT_EQ(cluster.host_name(i), names[i]);
    }
    EXPECT_EQ(cluster.without_host(0).host_count(), 0);
  }
}

}  // namespace
}  // namespace corro::plan
