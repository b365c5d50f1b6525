#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "io/files.h"
#include "runtime/clock_offset.h"
#include "runtime/timeline_file.h"

namespace corro::runtime {
namespace {

class TimelineFiles : public ::testing::Test {
 protected:
  TimelineFiles() {
    folder_ = ::testing::TempDir() + "corro-timeline-" + std::to_string(getpid());
    std::filesystem::create_directory(folder_);
  }
  ~TimelineFiles() override { std::filesystem::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return folder_ + "/t.json"; }
  [[nodiscard]] std::string read() const { return io::read_file(path(), size_t{1} << 30U).value(); }

  std::string folder_;
};

TEST_F(TimelineFiles, AnEmptyOneIsAnArray) {
  const auto file = TimelineFile::create(path());
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(read(), ::testing::StartsWith("[\n{"));
  EXPECT_THAT(read(), ::testing::EndsWith("}\n]\n"));
  EXPECT_EQ(file->due(), Time::never());
}

TEST_F(TimelineFiles, EachVersionHasAllThatCame) {
  auto file = TimelineFile::create(path());
  for (int i = 0; i < 3; ++i) {
    file->append(",\n{\"i\":" + std::to_string(i) + "}");
    EXPECT_NE(file->due(), Time::never());
    ASSERT_TRUE(file->publish().ok());
  }
  EXPECT_THAT(read(), ::testing::EndsWith(",\n{\"i\":0},\n{\"i\":1},\n{\"i\":2}\n]\n"));
  EXPECT_FALSE(std::filesystem::exists(path() + ".tmp"));
}

TEST_F(TimelineFiles, WhoeverReadsWhileItGrowsFindsItWhole) {
  auto file = TimelineFile::create(path());
  std::atomic<bool> over = false;
  std::atomic<int> reads = 0;
  int torn = 0;
  std::thread reader([&] {
    while (!over) {
      torn += read().ends_with("}\n]\n") ? 0 : 1;
      ++reads;
    }
  });
  const std::string line = ",\n{\"x\":\"" + std::string(1000, 'y') + "\"}";
  for (int i = 0; i < 200 || reads < 10; ++i) {
    file->append(line);
    ASSERT_TRUE(file->publish().ok());
  }
  over = true;
  reader.join();
  EXPECT_EQ(torn, 0);
}

TEST_F(TimelineFiles, AFolderThatIsNotThereIsAnError) {
  const auto file = TimelineFile::create(folder_ + "/none/t.json");
  EXPECT_EQ(file.status().code(), Code::kNotFound);
  EXPECT_THAT(file.status().message(), ::testing::HasSubstr("/none/t.json"));
}

TEST_F(TimelineFiles, AFailureKeepsTheLastVersionAndWhatWaits) {
  auto file = TimelineFile::create(path());
  std::filesystem::create_directory(path() + ".tmp");  // In its way.
  file->append(",\n{\"i\":0}");
  EXPECT_FALSE(file->publish().ok());
  EXPECT_THAT(read(), ::testing::EndsWith("}\n]\n"));
  std::filesystem::remove(path() + ".tmp");
  EXPECT_TRUE(file->publish().ok());
  EXPECT_THAT(read(), ::testing::HasSubstr("{\"i\":0}"));
}

TEST(ClockOffset, TakesTheQuickestMessageOfEachDirection) {
  constexpr int64_t kOffset = 1'000'000;  // This clock is so far ahead.
  ClockOffset offset;
  EXPECT_EQ(offset.nanoseconds(), 0);
  for (const int64_t delay : {900, 20, 500}) offset.heard(kOffset + delay);
  EXPECT_FALSE(offset.known());
  for (const int64_t delay : {700, 40}) offset.answered(-kOffset + delay);
  EXPECT_TRUE(offset.known());
  EXPECT_EQ(offset.error_ns(), 30);
  EXPECT_NEAR(static_cast<double>(offset.nanoseconds()), kOffset, 30);
}

TEST(ClockOffset, ForgetsOldMessagesBecauseClocksDrift) {
  ClockOffset offset;
  offset.heard(-5'000);
  offset.answered(0);
  for (int i = 0; i < 64; ++i) offset.heard(100);
  EXPECT_EQ(offset.nanoseconds(), 50);
}

}  // namespace
}  // namespace corro::runtime
