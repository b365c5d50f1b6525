#include "table/log/disk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <vector>

namespace corro::table {
namespace {

using ::testing::HasSubstr;

struct Folder {
  Folder() {
    std::string name = testing::TempDir() + "/corro-disk-XXXXXX";
    path = mkdtemp(name.data());
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

struct Pages {
  explicit Pages(size_t count)
      : data(static_cast<std::byte*>(::aligned_alloc(kDiskUnit, count * kDiskUnit)), ::free) {}
  [[nodiscard]] std::span<std::byte> at(size_t page, size_t count = 1) const {
    return {data.get() + page * kDiskUnit, count * kDiskUnit};
  }
  std::unique_ptr<std::byte, decltype(&::free)> data;
};

TEST(Disk, ReadsWhatWasWrittenManyPagesAtATimeInAnyOrder) {
  const Folder folder;
  auto disk = open_disk(folder.path + "/a/b");
  ASSERT_TRUE(disk.ok()) << disk.status().message();
  constexpr size_t kPages = 1000;
  const Pages pages(kPages);
  for (size_t i = 0; i < kPages; ++i)
    std::memset(pages.at(i).data(), static_cast<int>(i % 251), kDiskUnit);
  ASSERT_TRUE((*disk)->reserve(0, kPages * kDiskUnit).ok());
  ASSERT_TRUE((*disk)->write(0, pages.at(0, kPages)).ok());
  const Pages found(kPages);
  std::vector<Disk::Read> reads;
  for (size_t i = 0; i < kPages; ++i)
    reads.push_back({.offset = (i * 7 % kPages) * kDiskUnit, .into = found.at(i)});
  ASSERT_TRUE((*disk)->read_all(reads).ok());
  for (size_t i = 0; i < kPages; ++i)
    ASSERT_EQ(std::memcmp(found.at(i).data(), pages.at(i * 7 % kPages).data(), kDiskUnit), 0) << i;
}

TEST(Disk, LeavesNothingInItsFolderWhichIsOfThisUserAlone) {
  const Folder folder;
  const std::string made = folder.path + "/rows";
  const auto disk = open_disk(made);
  ASSERT_TRUE(disk.ok());
  struct stat known{};
  ASSERT_EQ(stat(made.c_str(), &known), 0);
  EXPECT_EQ(known.st_mode & 0777, 0700);
  EXPECT_TRUE(std::filesystem::is_empty(made));
}

TEST(Disk, AReadBeyondTheEndIsDataLoss) {
  const Folder folder;
  const auto disk = open_disk(folder.path);
  const Pages pages(1);
  const std::vector<Disk::Read> reads = {{.offset = 8 * kDiskUnit, .into = pages.at(0)}};
  const Status status = (*disk)->read_all(reads);
  EXPECT_EQ(status.code(), Code::kDataLoss);
  EXPECT_THAT(status.message(), HasSubstr(folder.path + ": read at byte 32768: 0 of 4096 bytes"));
}

TEST(Disk, AFolderThatCannotBeMadeIsNamed) {
  const Folder folder;
  std::ofstream(folder.path + "/file") << "x";
  const auto disk = open_disk(folder.path + "/file/rows");
  EXPECT_THAT(disk.status().message(), HasSubstr(folder.path + "/file/rows cannot be made"));
}

}  // namespace
}  // namespace corro::table
