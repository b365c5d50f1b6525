// What is left when writing ends in the middle, wherever that is. A Disk counts its operations and
// lets one of them fail; a write may get to any of its bytes before.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>

#include <csignal>
#include <limits>
#include <random>

#include "checkpoint/sample_checkpoint.h"

namespace corro::checkpoint {
namespace {

using testing::HasSubstr;

/// A real disk that fails at its operation `at`, the first one being 0.
class FailingDisk final : public Disk {
 public:
  enum class Fault {
    kCrash,  ///< Nothing happens any more: the process was killed.
    kFull,   ///< ENOSPC, once.
    kBroken  ///< EIO, once.
  };
  FailingDisk(Fault fault, size_t at, double written) : fault_(fault), at_(at), written_(written) {}

  Status make_folder(const std::string& path) override {
    return failure(path, [&] { return disk_.make_folder(path); });
  }
  Status write_file(const std::string& path, std::span<const std::byte> bytes) override {
    if (operations_ == at_) {
      const auto count = static_cast<size_t>(static_cast<double>(bytes.size()) * written_);
      (void)disk_.write_file(path, bytes.first(count));
    }
    return failure(path, [&] { return disk_.write_file(path, bytes); });
  }
  Status rename(const std::string& from, const std::string& to) override {
    return failure(to, [&] { return disk_.rename(from, to); });
  }
  Status remove(const std::string& path) override {
    return failure(path, [&] { return disk_.remove(path); });
  }
  [[nodiscard]] size_t operations() const { return operations_; }

 private:
  template <typename Work>
  Status failure(const std::string& path, Work&& work) {
    const size_t number = operations_++;
    const bool fails = fault_ == Fault::kCrash ? number >= at_ : number == at_;
    if (!fails) return work();
    if (fault_ == Fault::kCrash) return {Code::kAborted, "killed"};
    return status_from_errno(path, fault_ == Fault::kFull ? ENOSPC : EIO);
  }

  RealDisk disk_;
  Fault fault_;
  size_t at_;
  double written_;
  size_t operations_ = 0;
};

constexpr size_t kNever = std::numeric_limits<size_t>::max();

size_t operations_of_one_checkpoint() {
  const std::string root = fresh_folder("counted");
  FailingDisk disk(FailingDisk::Fault::kCrash, kNever, 0);
  EXPECT_TRUE(write_sample(disk, root, 1, 2).ok());
  return disk.operations();
}

TEST(Faults, AfterAKillAnywhereANewestWholeCheckpointIsLeft) {
  const size_t operations = operations_of_one_checkpoint();
  EXPECT_GE(operations, 9U);
  std::mt19937 random(17);
  RealDisk real;
  for (size_t at = 0; at <= operations + 1; ++at) {
    for (int round = 0; round < 2; ++round) {
      const std::string root = fresh_folder("killed");
      for (const uint64_t step : {1U, 2U}) ASSERT_TRUE(write_sample(real, root, step, 2).ok());
      const double written = static_cast<double>(random() % 1000) / 999;
      FailingDisk disk(FailingDisk::Fault::kCrash, at, written);
      const bool done = write_sample(disk, root, 3, 2).ok();
      const auto newest = newest_valid(root);
      ASSERT_TRUE(newest == 3 || (newest == 2 && !done)) << at;
      // The next job clears up, and goes on.
      ASSERT_TRUE(remove_partial(real, root).ok());
      ASSERT_TRUE(write_sample(real, root, 4, 3).ok());
      EXPECT_EQ(newest_valid(root), 4U);
      EXPECT_EQ(names_in(root)->size(), steps_in(root)->size()) << "nothing partial is left";
    }
  }
}

TEST(Faults, AKillWhileACheckpointIsReplacedLeavesItOrTheOneBefore) {
  RealDisk real;
  const size_t operations = operations_of_one_checkpoint() + 2;
  for (size_t at = 0; at <= operations; ++at) {
    const std::string root = fresh_folder("replaced-killed");
    for (const uint64_t step : {1U, 2U}) ASSERT_TRUE(write_sample(real, root, step, 2).ok());
    FailingDisk disk(FailingDisk::Fault::kCrash, at, 0.5);
    (void)write_sample(disk, root, 2, 2);
    EXPECT_TRUE(newest_valid(root) >= 1U) << at;
  }
}

TEST(Faults, AFullOrBrokenDiskIsSaidAndOlderCheckpointsStay) {
  const size_t operations = operations_of_one_checkpoint();
  RealDisk real;
  for (const auto fault : {FailingDisk::Fault::kFull, FailingDisk::Fault::kBroken}) {
    for (size_t at = 0; at < operations; ++at) {
      const std::string root = fresh_folder("full");
      for (const uint64_t step : {1U, 2U}) ASSERT_TRUE(write_sample(real, root, step, 2).ok());
      FailingDisk disk(fault, at, 0.5);
      const Status status = write_sample(disk, root, 3, 2);
      ASSERT_FALSE(status.ok()) << at;
      EXPECT_THAT(status.message(),
                  HasSubstr(fault == FailingDisk::Fault::kFull ? "No space left on device"
                                                               : "Input/output error"));
      EXPECT_GE(newest_valid(root), 2U);
      EXPECT_TRUE(check_sample(root, 2).ok());
      EXPECT_TRUE(remove_partial(real, root).ok());
    }
  }
}

TEST(Faults, WhatAnotherAttemptHasLeftIsNotMixedIn) {
  RealDisk disk;
  const std::string root = fresh_folder("attempts");
  ASSERT_TRUE(write_sample_part(disk, root, 5, 0, 2, /*attempt=*/1).ok());
  ASSERT_TRUE(write_sample_part(disk, root, 5, 1, 2, /*attempt=*/2).ok());
  const Status status = commit(disk, root, 5, 1, {.ranks = 2});
  EXPECT_EQ(status.code(), Code::kNotFound);
  EXPECT_THAT(status.message(),
              HasSubstr("rank-1.json: it was written, and rank 0 cannot read it"));
  EXPECT_TRUE(steps_in(root)->empty());
}

/// A write that the kernel cuts short, and then refuses: the limit of a file's size.
TEST(Faults, AWriteThatIsCutShortIsAnError) {
  const std::string root = fresh_folder("limited");
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit limit{.rlim_cur = (size_t{1} << 20U) + 512, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  RealDisk disk;
  const Status status = write_sample(disk, root, 1, 1);
  (void)setrlimit(RLIMIT_FSIZE, &before);
  (void)std::signal(SIGXFSZ, handler);
  EXPECT_THAT(status.message(), HasSubstr("rank-0.safetensors: File too large"));
  EXPECT_TRUE(write_sample(disk, root, 1, 1).ok());
}

TEST(Faults, AFullFileSystemIsSaidAndTheOlderCheckpointStays) {
  const std::string root = fresh_folder("tmpfs");
  if (mount("corro-test", root.c_str(), "tmpfs", 0, "size=4m") != 0)
    GTEST_SKIP() << "mounting a small file system needs root: " << strerror(errno);
  RealDisk disk;
  EXPECT_TRUE(write_sample(disk, root, 1, 1).ok());
  EXPECT_TRUE(write_sample(disk, root, 2, 1).ok());
  const Status status = write_sample(disk, root, 3, 1);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("No space left on device"));
  EXPECT_EQ(newest_valid(root), 2U);
  EXPECT_TRUE(remove_partial(disk, root).ok());
  EXPECT_EQ(umount2(root.c_str(), MNT_DETACH), 0);
}

TEST(Faults, AReadOnlyFolderIsSaid) {
  const std::string root = fresh_folder("read-only");
  const bool mounted = mount("corro-test", root.c_str(), "tmpfs", MS_RDONLY, "") == 0;
  if (!mounted) GTEST_SKIP() << "mounting needs root: " << strerror(errno);
  EXPECT_THAT(FolderLock::take(root).status().message(), HasSubstr(".lock: Read-only file system"));
  RealDisk disk;
  EXPECT_THAT(write_sample(disk, root, 1, 1).message(), HasSubstr("Read-only file system"));
  EXPECT_EQ(umount2(root.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace corro::checkpoint
