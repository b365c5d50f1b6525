#include "agent/out_of_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace corro::agent {
namespace {

using testing::HasSubstr;

/// Files as the kernel would show them, in a directory of the test's own.
class OutOfMemory : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(testing::TempDir()) /
            testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    paths_ = {.cgroup_root = root_ / "cgroup", .proc = root_ / "proc"};
    write("proc/vmstat", "nr_free_pages 5\noom_kill 3\n");
    write("proc/meminfo", "MemTotal:       4194304 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }

  std::filesystem::path root_;
  MemoryPaths paths_;
};

TEST_F(OutOfMemory, NothingIsSaidIfNothingWasKilled) {
  OutOfMemoryWatch watch(paths_);
  EXPECT_FALSE(watch.explain(7));
}

TEST_F(OutOfMemory, NamesTheLimitOfAVersion2Group) {
  write("proc/self/cgroup", "0::/job\n");
  write("proc/7/cgroup", "0::/job\n");
  write("cgroup/job/memory.events", "low 0\noom 1\noom_kill 4\n");
  write("cgroup/job/memory.max", "536870912\n");
  OutOfMemoryWatch watch(paths_);
  EXPECT_FALSE(watch.explain(7));
  write("cgroup/job/memory.events", "low 0\noom 2\noom_kill 5\n");
  const auto reason = watch.explain(7);
  ASSERT_TRUE(reason);
  EXPECT_THAT(*reason, HasSubstr("out of memory: cgroup limit 512 MiB"));
  EXPECT_THAT(*reason, HasSubstr("cgroup/job)"));
  EXPECT_FALSE(watch.explain(7)) << "each kill is reported once";
}

TEST_F(OutOfMemory, FindsTheAncestorThatHasTheLimit) {
  write("proc/self/cgroup", "0::/outer/inner\n");
  write("proc/7/cgroup", "0::/outer/inner\n");
  write("cgroup/outer/inner/memory.max", "max\n");
  write("cgroup/outer/memory.max", "1610612736\n");
  OutOfMemoryWatch watch(paths_);
  write("cgroup/outer/inner/memory.events", "oom_kill 1\n");
  write("cgroup/outer/memory.events", "oom_kill 1\n");
  EXPECT_THAT(watch.explain(7).value_or(""), HasSubstr("1.5 GiB"));
}

TEST_F(OutOfMemory, NamesTheLimitOfAVersion1GroupThatOnlyTheWorkerIsIn) {
  write("proc/self/cgroup", "4:memory:/\n");
  write("proc/7/cgroup", "4:memory:/w\n3:cpu:/\n");
  write("cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OutOfMemoryWatch watch(paths_);
  write("cgroup/memory/w/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  write("cgroup/memory/w/memory.limit_in_bytes", "67108864\n");
  EXPECT_THAT(watch.explain(7).value_or(""), HasSubstr("cgroup limit 64 MiB"));
}

TEST_F(OutOfMemory, LooksAtItsOwnGroupIfTheWorkersIsNotKnownAnyMore) {
  write("proc/self/cgroup", "4:memory:/job\n");
  write("proc/7/cgroup", "4:memory:/\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "67108864\n");
  OutOfMemoryWatch watch(paths_);
  write("cgroup/memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_THAT(watch.explain(7).value_or(""), HasSubstr("cgroup limit 64 MiB"));
}

TEST_F(OutOfMemory, NamesTheMachineIfNoGroupWasToBlame) {
  OutOfMemoryWatch watch(paths_);
  write("proc/vmstat", "oom_kill 4\n");
  EXPECT_THAT(watch.explain(7).value_or(""), HasSubstr("this machine has 4.0 GiB"));
}

}  // namespace
}  // namespace corro::agent
