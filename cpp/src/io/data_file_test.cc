// Ranges of files: what is read and written where, and what errors say.
#include "io/data_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string>

#include "io/files.h"

namespace corro::io {
namespace {

using Use = DataFile::Use;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

class DataFileTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directory(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "corro-data-file-" + std::to_string(getpid());
  const std::string path_ = folder_ + "/data";
};

TEST_F(DataFileTest, RangesAreWrittenAndReadWhereTheyAre) {
  const auto file = DataFile::open(path_, Use::kWrite);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_TRUE(file->write(4, bytes_of("efgh")).ok());
  ASSERT_TRUE(file->write(0, bytes_of("abcd")).ok());
  const auto again = DataFile::open(path_, Use::kWrite);
  ASSERT_TRUE(again->write(6, bytes_of("GHIJ")).ok());
  EXPECT_EQ(read_small_file(path_), "abcdefGHIJ");

  std::array<char, 3> text{};
  const auto reads = DataFile::open(path_, Use::kRead);
  ASSERT_TRUE(reads->read(5, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(std::string(text.data(), text.size()), "fGH");
  EXPECT_EQ(reads->read(8, std::as_writable_bytes(std::span(text))).to_string(),
            "OUT_OF_RANGE: cannot read 3 bytes of " + path_ + " at byte 8: it ends at 10");
}

TEST_F(DataFileTest, ErrorsNameThePathAndTheReason) {
  EXPECT_EQ(DataFile::open(path_, Use::kRead).status().to_string(),
            "NOT_FOUND: cannot open " + path_ + " to read it: No such file or directory");
  const std::string nowhere = folder_ + "/nowhere/data";
  EXPECT_EQ(DataFile::open(nowhere, Use::kWrite).status().to_string(),
            "NOT_FOUND: cannot open " + nowhere + " to write it: No such file or directory");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  std::byte byte{};
  EXPECT_EQ(DataFile::open(path_, Use::kRead)->read(0, {&byte, 1}).to_string(),
            "UNAVAILABLE: cannot read " + path_ + " at byte 0: Illegal seek");
  EXPECT_THAT(DataFile::open(path_, Use::kWrite).status().message(),
              ::testing::HasSubstr("No such device"));
  const auto full = DataFile::open("/dev/full", Use::kWrite);
  ASSERT_TRUE(full.ok());
  EXPECT_EQ(full->write(7, bytes_of("x")).to_string(),
            "RESOURCE_EXHAUSTED: cannot write /dev/full at byte 7: No space left on device");
}

}  // namespace
}  // namespace corro::io
