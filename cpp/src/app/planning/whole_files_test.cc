#include "app/planning/whole_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace corro::app {
namespace {

namespace fs = std::filesystem;

class WholeFiles : public testing::Test {
 protected:
  WholeFiles() { fs::create_directories(folder_); }
  ~WholeFiles() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

 private:
  fs::path folder_ =
      fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(WholeFiles, ReplaceWhatWasThere) {
  ASSERT_TRUE(write_files({{path("a"), "old and longer"}}).ok());
  const Status status = write_files({{path("a"), "new"}, {path("b"), ""}});
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(text("a"), "new");
  EXPECT_TRUE(fs::exists(path("b")));
  EXPECT_EQ(count(), 2U);
}

TEST_F(WholeFiles, OneThatCannotBeWrittenLeavesAllAsTheyWere) {
  ASSERT_TRUE(write_files({{path("a"), "old"}}).ok());
  const Status status = write_files({{path("a"), "new"}, {path("no/such/b"), "x"}});
  EXPECT_THAT(status.message(), testing::HasSubstr(path("no/such/b")));
  EXPECT_EQ(text("a"), "old");
  EXPECT_EQ(count(), 1U);
}

TEST_F(WholeFiles, AFolderIsNotReplaced) {
  fs::create_directories(path("a"));
  EXPECT_FALSE(write_files({{path("a"), "x"}}).ok());
  EXPECT_TRUE(fs::is_directory(path("a")));
}

TEST_F(WholeFiles, ADeviceIsWrittenTo) {
  EXPECT_TRUE(write_files({{"/dev/null", "x"}}).ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace corro::app
