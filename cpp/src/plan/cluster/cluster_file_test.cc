#include "plan/cluster/cluster_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>

#include "plan/bad_files.h"
#include "plan/cluster/known_devices.h"
#include "plan/json.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kHome = R"(corro_cluster: 1
name: t4_home
links:
  pcie3: {bandwidth: 10 GB/s, latency: 10 us}
  ethernet: {bandwidth: 10 Gbit/s, latency: 50 us}
hosts:
  - {name: pc, count: 2, device: t4, devices: 2, link: pcie3, network: ethernet, to_host_memory: pcie3, host_memory: 64 GB}
)";

/// Files that stand in memory.
ReadText files_in(const std::map<std::string, std::string>& files) {
  return [files](const std::string& path) -> Result<std::string> {
    const auto found = files.find(path);
    if (found != files.end()) return found->second;
    return Status(Code::kNotFound, path + ": there is no such file");
  };
}

TEST(ClusterFile, EachBadFileIsOneLineWithFileLineAndField) {
  const BadFiles bad_files = read_bad_files(CORRO_CLUSTER_SOURCES "/bad_clusters.json");
  auto files = bad_files.table["files"].get<std::map<std::string, std::string>>();
  const auto read = [&](const std::string& text) {
    files["cluster.yaml"] = text;
    return read_cluster(text, "cluster.yaml", files_in(files)).status();
  };
  ASSERT_TRUE(read(bad_files.good).ok()) << read(bad_files.good).message();
  for (const BadFile& bad : bad_files.cases) {
    SCOPED_TRACE(bad.what);
    expect_refused(read(bad.text), bad.error);
  }
}

TEST(ClusterFile, SaysWhatItHolds) {
  const auto cluster = read_cluster(R"(corro_cluster: 1
include: [parts/links.yaml]
devices:
  gpu: {memory: 16 GiB, peak: {f16: 100 TFLOP/s}, memory_bandwidth: 900 GB/s, price: 2}
hosts:
  - {device: t4, network: ethernet, to_host_memory: {bandwidth: 8e9}, host_memory: 64 GB}
  - {name: node, count: 2, device: gpu, devices: 4, link: nvlink, network: ethernet}
switches:
  - {hosts: 2, between: {bandwidth: 1 Gbit/s, latency: 1 ms}}
)",
                                    "some/cluster.yaml",
                                    files_in({{"some/parts/links.yaml", R"(corro_cluster: 1
include: [../more.yaml]
links: {nvlink: {bandwidth: 150 GB/s}}
)"},
                                              {"some/more.yaml", R"(corro_cluster: 1
links: {ethernet: {bandwidth: 10 Gbit/s, latency: 50 us}}
)"}}));
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(cluster->name, "cluster");
  ASSERT_EQ(cluster->types.size(), 2);
  EXPECT_EQ(cluster->types[0], find_known_device("t4"));
  EXPECT_EQ(cluster->types[1].memory, 16.0 * 0x1p30);
  EXPECT_EQ(cluster->types[1].peak[static_cast<size_t>(DType::kF16)], 100e12);
  EXPECT_EQ(cluster->types[1].peak[static_cast<size_t>(DType::kBF16)], 0);
  EXPECT_EQ(cluster->types[1].price, 2);
  ASSERT_EQ(cluster->hosts.size(), 2);
  const HostGroup first{
      .name = "host", .network = {1.25e9, 50e-6}, .to_host_memory = {8e9, 0}, .host_memory = 64e9};
  const HostGroup second{.name = "node",
                         .count = 2,
                         .type = 1,
                         .devices = 4,
                         .link = {150e9, 0},
                         .network = {1.25e9, 50e-6}};
  EXPECT_EQ(cluster->hosts[0], first);
  EXPECT_EQ(cluster->hosts[1], second);
  EXPECT_EQ(cluster->switches, (std::vector<SwitchLevel>{{2, {125e6, 1e-3}}}));
  EXPECT_TRUE(cluster->matrix.empty());
}

TEST(ClusterFile, AMatrixStandsInTheFileOrBesideIt) {
  const std::string hosts = "corro_cluster: 1\nhosts: [{count: 2, device: t4}]\nmatrix: ";
  const std::vector<double> matrix = {0, 1e9, 25e9, 0};
  const auto inside = read_cluster(hosts + "[[0, 1e9], [200 Gbit/s, 0]]", "c", nullptr);
  ASSERT_TRUE(inside.ok()) << inside.status().message();
  EXPECT_EQ(inside->matrix, matrix);
  const auto beside =
      read_cluster(hosts + "k.csv", "dir/c", files_in({{"dir/k.csv", "# k\n0, 1e9\r\n\n25e9\t0"}}));
  ASSERT_TRUE(beside.ok()) << beside.status().message();
  EXPECT_EQ(beside->matrix, matrix);
}

TEST(ClusterFile, IncludedFilesAreReadOnceAndOnlySoMany) {
  std::map<std::string, std::string> files;
  std::map<std::string, int> reads;
  const std::string hosts = "corro_cluster: 1\nhosts: [{device: t4}]\ninclude: ";
  const auto read = [&](const std::string& include) {
    reads.clear();
    return read_cluster(hosts + include, "c",
                        [&](const std::string& path) -> Result<std::string> {
                          ++reads[path];
                          return files.at(path);
                        })
        .status();
  };
  files["a"] = "corro_cluster: 1\ninclude: [d]\n";
  files["b"] = "corro_cluster: 1\ninclude: [d, a]\n";
  files["d"] = "corro_cluster: 1\nlinks: {x: {bandwidth: 1}}\n";
  EXPECT_TRUE(read("[a, b, ./a, x/../d]").ok());
  EXPECT_EQ(reads, (std::map<std::string, int>{{"a", 1}, {"b", 1}, {"d", 1}}));

  std::string all;
  for (size_t i = 0; i <= kMostIncludedFiles; ++i) {
    const std::string name = "f" + std::to_string(i);
    files[name] = "corro_cluster: 1\n";
    all += (i == 0 ? "" : ", ") + name;
  }
  EXPECT_EQ(read("[" + all + "]").message(),
            "c:3: include[64]: is one file too many; 64 are included");
}

/// A cluster as the reader would have made it: types in the order of their first use.
Cluster random_cluster(std::mt19937_64& random) {
  const auto number = [&](double most) {
    return std::uniform_real_distribution<double>(1, most)(random);
  };
  const auto link = [&] { return Link{number(1e12), random() % 2 == 0 ? 0 : number(2) - 1}; };
  Cluster cluster{.name = "c" + std::to_string(random() % 9)};
  const size_t groups = 1 + random() % 4;
  for (size_t i = 0; i < groups; ++i) {
    if (i == 0 || random() % 2 == 0) {
      DeviceType type{.name = "type \xc3\xa4 " + std::to_string(i), .memory = number(1e12)};
      type.peak[static_cast<size_t>(DType::kBF16)] = number(1e15);
      type.peak[static_cast<size_t>(DType::kF64)] = random() % 2 == 0 ? 0 : number(1e15);
      type.memory_bandwidth = number(1e13);
      type.price = random() % 2 == 0 ? 0 : number(10);
      cluster.types.push_back(type);
    }
    HostGroup group{.name = "host" + std::string(1, static_cast<char>('a' + i)),
                    .count = static_cast<uint32_t>(1 + random() % 3),
                    .type = static_cast<uint32_t>(cluster.types.size() - 1),
                    .devices = static_cast<uint32_t>(1 + random() % 8),
                    .link = link(),
                    .network = link()};
    if (random() % 2 == 0) group.to_host_memory = link();
    if (random() % 2 == 0) group.host_memory = number(1e12);
    if (random() % 4 == 0) group.first = static_cast<uint32_t>(random() % 100);
    if (random() % 4 == 0) group.skip = static_cast<uint32_t>(random() % 100);
    cluster.hosts.push_back(group);
  }
  if (random() % 2 == 0) cluster.switches = {{2, link()}, {6, link()}};
  const size_t count = cluster.host_count();
  if (random() % 2 == 0) cluster.matrix.resize(count * count);
  for (size_t i = 0; i < cluster.matrix.size(); ++i) {
    cluster.matrix[i] = i / count == i % count ? 0 : number(1e12);
  }
  return cluster;
}

TEST(ClusterFile, WhatIsWrittenIsReadAgain) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const Cluster cluster = random_cluster(random);
    const auto text = write_cluster(cluster);
    ASSERT_TRUE(text.ok()) << text.status().message();
    const auto again = read_cluster(*text, "again", nullptr);
    ASSERT_TRUE(again.ok()) << again.status().message() << *text;
    EXPECT_EQ(*again, cluster) << *text;
    EXPECT_EQ(write_cluster(*again).value(), *text);
  }
}

TEST(ClusterFile, IsWrittenForPeople) {
  const auto cluster = read_cluster(kHome, "t4_home.yaml", nullptr);
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_EQ(write_cluster(*cluster).value(),
            R"(corro_cluster: 1
name: t4_home
devices:
  t4: {memory: 16 GB, peak: {f16: 65 TFLOP/s, f32: 8.1 TFLOP/s}, memory_bandwidth: 320 GB/s}
hosts:
  - {name: pc, count: 2, device: t4, devices: 2, link: {bandwidth: 10 GB/s, latency: 10 us}, network: {bandwidth: 1.25 GB/s, latency: 50 us}, to_host_memory: {bandwidth: 10 GB/s, latency: 10 us}, host_memory: 64 GB}
)");
}

TEST(ClusterFile, WhatWouldBeRefusedIsNotWritten) {
  const auto refusal = [](auto change) {
    Cluster cluster = read_cluster(kHome, "t4_home.yaml", nullptr).value();
    change(cluster);
    return write_cluster(cluster).status().message();
  };
  EXPECT_EQ(refusal([](Cluster&) {}), "");
  EXPECT_THAT(refusal([](Cluster& c) { c.name = "a\nb"; }), StartsWith("cluster: name: must be"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].type = 1; }), HasSubstr("hosts[0]: has no type"));
  EXPECT_THAT(refusal([](Cluster& c) { c.types[0].memory = std::nan(""); }), HasSubstr("memory"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].network.bandwidth = -1; }),
              HasSubstr("bandwidth"));
  EXPECT_THAT(refusal([](Cluster& c) { c.matrix = {1, 2, 3}; }), HasSubstr("matrix: has 3"));
  EXPECT_THAT(refusal([](Cluster& c) { c.hosts[0].count = 0; }), HasSubstr("count"));
  EXPECT_THAT(refusal([](Cluster& c) { c.types[0].peak[static_cast<size_t>(DType::kU8)] = 1; }),
              HasSubstr("peak.u8: is no field"));
}

TEST(KnownDevices, HaveMemoryAPeakAndASource) {
  std::set<std::string_view> names;
  for (const KnownDevice& known : known_devices()) {
    SCOPED_TRACE(known.name);
    EXPECT_TRUE(names.insert(known.name).second);
    EXPECT_FALSE(known.source.empty());
    EXPECT_GT(known.type().peak[static_cast<size_t>(DType::kF32)], 0);
    const Cluster cluster{.name = "c", .types = {known.type()}, .hosts = {{.name = "host"}}};
    EXPECT_TRUE(write_cluster(cluster).ok());
  }
  EXPECT_FALSE(find_known_device("a100").has_value());
}

}  // namespace
}  // namespace corro::plan
