#include "launch/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "io/files.h"

namespace corro::launch {
namespace {

using testing::HasSubstr;

/// A directory of the test's own, which goes with it.
class OutputFilesTest : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(directory_); }
  [[nodiscard]] std::string text_of(const std::string& file) const {
    return io::read_small_file(directory_ + "/" + file);
  }
  const std::string directory_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(OutputFilesTest, RanksHaveFoldersOfEqualLength) {
  auto files = OutputFiles::create(directory_, 11, nullptr);
  ASSERT_TRUE(files.ok()) << files.status().message();
  EXPECT_TRUE(files->append(3, io::Output::kOut, "a\r\nb").ok());
  EXPECT_TRUE(files->append(3, io::Output::kErr, "e").ok());
  EXPECT_TRUE(files->finish(3, io::Output::kErr).ok());
  EXPECT_EQ(text_of("rank.03/stdout"), "a\r\nb");
  EXPECT_EQ(text_of("rank.03/stderr"), "e");
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/rank.10/stdout"));
  EXPECT_TRUE(OutputFiles::create(directory_, 10, nullptr).ok());
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/rank.9/stdout")) << "the highest is 9";
}

TEST_F(OutputFilesTest, LinesHaveAPrefixIfOneIsGiven) {
  auto files = OutputFiles::create(directory_, 2, screen::stream_prefix);
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE(files->append(1, io::Output::kOut, "a\nb").ok());
  EXPECT_EQ(text_of("rank.1/stdout"), "[1]<stdout>:a\n");
  EXPECT_TRUE(files->finish(1, io::Output::kOut).ok());
  EXPECT_EQ(text_of("rank.1/stdout"), "[1]<stdout>:a\n[1]<stdout>:b");
}

TEST_F(OutputFilesTest, LinesAreThoseOfTheScreenWhereItShowsStreams) {
  const auto prefix_of = [](bool streams, bool timestamps) {
    const screen::Show show{
        .mode = screen::ShowMode::kAll, .ranks = {}, .streams = streams, .timestamps = timestamps};
    const OutputFiles::Prefix prefix = file_prefix(show, [] { return std::string("now"); });
    return prefix ? prefix(2, io::Output::kErr) : "none";
  };
  EXPECT_EQ(prefix_of(false, false), "none");
  EXPECT_EQ(prefix_of(false, true), "now ");
  EXPECT_EQ(prefix_of(true, false), "[2]<stderr>:");
  EXPECT_EQ(prefix_of(true, true), "now[2]<stderr>:");
}

TEST_F(OutputFilesTest, AFullDiskIsSaidOnce) {
  std::filesystem::create_directories(directory_ + "/rank.0");
  std::filesystem::create_symlink("/dev/full", directory_ + "/rank.0/stdout");
  auto files = OutputFiles::create(directory_, 1, nullptr);
  ASSERT_TRUE(files.ok());
  EXPECT_THAT(files->append(0, io::Output::kOut, "a").message(), HasSubstr("rank.0/stdout: "));
  EXPECT_TRUE(files->append(0, io::Output::kOut, "a").ok());
}

TEST_F(OutputFilesTest, ADirectoryThatCannotBeMadeNamesTheOption) {
  const auto files = OutputFiles::create("/dev/null/x", 1, nullptr);
  ASSERT_FALSE(files.ok());
  EXPECT_THAT(files.status().message(), HasSubstr("choose another --output-dir"));
}

}  // namespace
}  // namespace corro::launch
