#include "io/memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

namespace corro::io {
namespace {

using ::testing::HasSubstr;

size_t allocated_bytes(int fd) {
  struct stat info{};
  EXPECT_EQ(fstat(fd, &info), 0);
  return static_cast<size_t>(info.st_blocks) * 512;
}

TEST(Memfd, IsSparseUntilCommittedAndGivesPagesBack) {
  const Fd fd = create_memfd("corro-test", 1024 * kMib).value();
  const Mapping map = map_shared(fd.get(), 1024 * kMib).value();
  EXPECT_EQ(allocated_bytes(fd.get()), 0U);
  ASSERT_TRUE(commit(fd.get(), 2 * kMib, kMib).ok());
  EXPECT_EQ(allocated_bytes(fd.get()), kMib);
  map.data()[2 * kMib] = std::byte{42};
  ASSERT_TRUE(release_pages(fd.get(), 2 * kMib, kMib).ok());
  EXPECT_EQ(allocated_bytes(fd.get()), 0U);
  EXPECT_EQ(map.data()[2 * kMib], std::byte{0});
}

TEST(Memfd, NobodyCanChangeItsSize) {
  const Fd fd = create_memfd("corro-test", kMib).value();
  EXPECT_NE(ftruncate(fd.get(), 0), 0);
  EXPECT_NE(ftruncate(fd.get(), 2 * kMib), 0);
  EXPECT_EQ(sealed_size(fd.get()).value(), kMib);
}

TEST(Memfd, UnsealedMemoryOfAPeerIsRefused) {
  const Fd fd(memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(sealed_size(fd.get()).status().code(), Code::kPermissionDenied);
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(sealed_size(null.get()).status().code(), Code::kPermissionDenied);
}

/// Mapped without a page in the pool behind it, it kills whoever touches it.
TEST(Memfd, HugePagesOfAPeerAreRefused) {
  const Fd fd(memfd_create("corro-test", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB));
  if (!fd.valid()) GTEST_SKIP() << "this kernel has no huge pages";
  ASSERT_EQ(ftruncate(fd.get(), 1 << 30), 0);
  ASSERT_EQ(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  EXPECT_EQ(sealed_size(fd.get()).status().code(), Code::kPermissionDenied);
}

TEST(Memfd, TwoMappingsAreOneMemory) {
  const Fd fd = create_memfd("corro-test", kMib).value();
  ASSERT_TRUE(commit(fd.get(), 0, kMib).ok());
  Mapping first = map_shared(fd.get(), kMib).value();
  const Mapping second = map_shared(fd.get(), kMib).value();
  first.data()[100] = std::byte{7};
  EXPECT_EQ(second.data()[100], std::byte{7});
  const Mapping moved = std::move(first);
  EXPECT_FALSE(first.valid());  // NOLINT(bugprone-use-after-move)
  EXPECT_EQ(moved.data()[100], std::byte{7});
}

TEST(Memfd, FileSizeLimitIsOneLineAndNoSignal) {
  // The limit holds for the whole process and cannot be raised again: a child tries it.
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{kMib, kMib};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto refused = create_memfd("corro-test", 2 * kMib);
    _exit(refused.status().code() == Code::kResourceExhausted ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

TEST(Commit, MoreThanTheMachineHasIsAStatus) {
  constexpr size_t kHuge = 1ULL << 46U;
  const Fd fd = create_memfd("corro-test", kHuge).value();
  const Status status = commit(fd.get(), 0, kHuge);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("needs 67108864 MiB"));
  EXPECT_EQ(status.message().find('\n'), std::string::npos);
  EXPECT_EQ(allocated_bytes(fd.get()), 0U);
}

TEST(Commit, NothingIsNothing) {
  const Fd fd = create_memfd("corro-test", kMib).value();
  EXPECT_TRUE(commit(fd.get(), 0, 0).ok());
  EXPECT_TRUE(release_pages(fd.get(), kMib, 0).ok());
}

/// A tree of files that looks like the kernel's.
class MemoryLimitTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "corro-cgroup-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    root_ = name;
    paths_.cgroup.root = root_ / "cgroup";
    paths_.cgroup.process = root_ / "self_cgroup";
    paths_.meminfo = root_ / "meminfo";
    write("meminfo",
          "MemTotal:       1048576 kB\nMemFree: 1 kB\nMemAvailable:    524288 kB\n"
          "SwapTotal: 0 kB\nSwapFree: 0 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
  }
  std::filesystem::path root_;
  MemoryLimitPaths paths_;
};

TEST_F(MemoryLimitTest, WithoutCgroupsTheMachineCounts) {
  const auto limit = tightest_memory_limit(paths_);
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->limit, 1024 * kMib);
  EXPECT_EQ(limit->used, 512 * kMib);
  EXPECT_TRUE(check_memory_limit(limit, 512 * kMib).ok());
  EXPECT_FALSE(check_memory_limit(limit, 512 * kMib + 1).ok());
}

TEST_F(MemoryLimitTest, VersionTwoLimitOfAnAncestorCountsAndPageCacheDoesNot) {
  write("self_cgroup", "0::/job/task\n");
  write("cgroup/job/task/memory.max", "max\n");
  write("cgroup/job/task/memory.current", "1000\n");
  write("cgroup/job/memory.max", "104857600\n");
  write("cgroup/job/memory.current", "94371840\n");
  write("cgroup/job/memory.stat",
        "anon 10\nactive_file 10485760\ninactive_file 20971520\nshmem 62914560\n");
  const auto limit = tightest_memory_limit(paths_);
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->limit, 100 * kMib);
  EXPECT_EQ(limit->used, 60 * kMib);
  EXPECT_TRUE(check_memory_limit(limit, 40 * kMib).ok());
  const Status refused = check_memory_limit(limit, 41 * kMib);
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_THAT(refused.message(), HasSubstr("needs 41 MiB more"));
  EXPECT_THAT(refused.message(), HasSubstr("the limit is 100 MiB with 60 MiB in use: raise it"));
  EXPECT_THAT(refused.message(), HasSubstr("cgroup/job)"));
}

TEST_F(MemoryLimitTest, VersionOneLimitIsFoundBesideOtherControllers) {
  write("self_cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/job\n0::/\n");
  write("cgroup/memory/job/memory.limit_in_bytes", "104857600\n");
  write("cgroup/memory/job/memory.usage_in_bytes", "52428800\n");
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  write("cgroup/memory/memory.usage_in_bytes", "1\n");
  const auto limit = tightest_memory_limit(paths_);
  ASSERT_TRUE(limit.has_value());
  EXPECT_EQ(limit->limit, 100 * kMib);
  EXPECT_EQ(limit->used, 50 * kMib);
}

TEST_F(MemoryLimitTest, InAContainerTheMountsRootIsTheOwnGroup) {
  write("self_cgroup", "0::/kubepods/pod7/container9\n");
  write("cgroup/memory.max", "52428800\n");
  write("cgroup/memory.current", "0\n");
  EXPECT_EQ(tightest_memory_limit(paths_)->limit, 50 * kMib);
}

TEST_F(MemoryLimitTest, NonsenseIsIgnored) {
  write("self_cgroup", "garbage\n:\n::\n4:memory:\n0::relative");
  write("cgroup/memory/memory.limit_in_bytes", "-5x\n");
  EXPECT_EQ(tightest_memory_limit(paths_)->what, "memory of this machine");
  write("meminfo", "");
  EXPECT_FALSE(tightest_memory_limit(paths_).has_value());
  EXPECT_TRUE(check_memory_limit(std::nullopt, 1ULL << 60U).ok());
}

}  // namespace
}  // namespace corro::io
