#include "io/cgroup.h"

#include <sched.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::io {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

/// A tree of files that looks like the kernel's.
class CgroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "corro-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    paths_ = {.root = folder_ / "cgroup", .process = folder_ / "self"};
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_ / path).parent_path());
    std::ofstream(folder_ / path) << text;
  }
  std::filesystem::path folder_;
  CgroupPaths paths_;
};

TEST_F(CgroupTest, WithoutOneThereIsNoQuota) {
  EXPECT_EQ(cpu_quota(paths_), std::nullopt);
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(usable_cores(paths_), CPU_COUNT(&set));
}

TEST_F(CgroupTest, AncestorsComeAfterTheInnermost) {
  write("self", "7:cpu,cpuacct:/job/task\n4:memory:/other\n");
  const auto directory = [](const std::string& path) { return Field(&Cgroup::directory, path); };
  EXPECT_THAT(cgroups_of("cpu", paths_),
              ElementsAre(directory(paths_.root + "/cpu/job/task"),
                          directory(paths_.root + "/cpu/job"), directory(paths_.root + "/cpu")));
}

TEST_F(CgroupTest, TheTightestQuotaOfVersionTwoCounts) {
  write("self", "0::/job/task\n");
  write("cgroup/job/task/cpu.max", "max 100000\n");
  write("cgroup/job/cpu.max", "50000 100000\n");
  write("cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(paths_), 0.5);
  EXPECT_EQ(usable_cores(paths_), 0.5);
}

TEST_F(CgroupTest, AQuotaOfVersionOneIsTwoFiles) {
  write("self", "7:cpu,cpuacct:/job\n");
  write("cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(paths_), std::nullopt);
  write("cgroup/cpu/job/cpu.cfs_quota_us", "150000\n");
  write("cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(paths_), 1.5);
}

TEST_F(CgroupTest, WhatIsNoQuotaIsPassedOver) {
  write("self", "rubbish\n0::/job\n");
  for (const char* text : {"", "max\n", "0 100000\n", "-5 100000\n", "100000\n", "100000 0\n"}) {
    write("cgroup/job/cpu.max", text);
    EXPECT_EQ(cpu_quota(paths_), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace corro::io
