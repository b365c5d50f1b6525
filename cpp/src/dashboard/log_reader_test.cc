#include "dashboard/log_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "dashboard/log_page.h"

namespace corro::dashboard {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

/// So many lines of 100 bytes: "line 1 xxx...".
std::string lines_of(size_t count, size_t first = 1) {
  std::string text;
  for (size_t i = first; i < first + count; ++i) {
    std::string line = "line " + std::to_string(i) + " ";
    line.resize(99, 'x');
    text += line + "\n";
  }
  return text;
}

class LogReaderTest : public testing::Test {
 protected:
  LogReaderTest() {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  [[nodiscard]] std::string path_of(int place) const {
    return folder_ + "/rank-" + std::to_string(place) + ".log";
  }
  void write(int place, const std::string& text) const { std::ofstream(path_of(place)) << text; }
  void append(int place, const std::string& text) const {
    std::ofstream(path_of(place), std::ios::app) << text;
  }
  nlohmann::json ask(const std::string& query, int status = 200) {
    const http::Page page = logs_page(reader_, http::parse_query(query));
    EXPECT_EQ(page.status, status) << page.text;
    EXPECT_EQ(page.type, http::kJson);
    return nlohmann::json::parse(page.text);
  }

  const std::string folder_ = testing::TempDir() + "log_reader";
  LogReader reader_{folder_};
};

TEST_F(LogReaderTest, ReadsTheNewestLinesAndThenOlderOnes) {
  write(0, lines_of(1200));
  auto part = reader_.read(0, std::nullopt);
  ASSERT_TRUE(part.ok());
  EXPECT_EQ(part->size, 120'000U);
  std::vector<uint64_t> numbers;
  while (!part->lines.empty()) {
    for (auto line = part->lines.rbegin(); line != part->lines.rend(); ++line) {
      numbers.push_back(*line->number);
      EXPECT_EQ(line->at, (*line->number - 1) * 100);
      EXPECT_THAT(line->text, HasSubstr("line " + std::to_string(*line->number) + " "));
    }
    part = reader_.read(0, part->lines.front().at);
  }
  ASSERT_THAT(numbers, SizeIs(1200));
  for (size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], 1200 - i);
}

TEST_F(LogReaderTest, ALineWithoutAnEndIsThereAndGrows) {
  write(0, "first\nto be");
  EXPECT_EQ(reader_.read(0, std::nullopt)->lines.back().text, "to be");
  append(0, " seen\n");
  const auto part = reader_.read(0, std::nullopt);
  ASSERT_THAT(part->lines, SizeIs(2));
  EXPECT_EQ(part->lines[1].text, "to be seen");
  EXPECT_EQ(part->lines[1].number, 2U);
  EXPECT_EQ(reader_.read(0, 7)->lines.back().text, "to be seen") << "one that begins before byte 7";
  write(0, "");
  EXPECT_THAT(reader_.read(0, std::nullopt)->lines, IsEmpty());
}

TEST_F(LogReaderTest, CountsOnWhereItHasStopped) {
  write(0, lines_of(200'000));  // 20 MB: more than one call counts.
  EXPECT_FALSE(reader_.read(0, std::nullopt)->lines.back().number);
  EXPECT_FALSE(reader_.read(0, std::nullopt)->lines.back().number);
  EXPECT_EQ(reader_.read(0, std::nullopt)->lines.back().number, 200'000U);
  EXPECT_EQ(reader_.read(0, 10'000'000)->lines.back().number, 100'000U);
}

TEST_F(LogReaderTest, AFileThatIsWrittenAnewIsCountedAnew) {
  write(0, lines_of(20'000));
  EXPECT_EQ(reader_.read(0, std::nullopt)->lines.back().number, 20'000U);
  write(0, "one\n" + lines_of(9'000, 2));
  const auto part = reader_.read(0, std::nullopt);
  EXPECT_EQ(part->lines.back().number, 9'001U);
}

TEST_F(LogReaderTest, ALineLongerThanWhatIsReadIsShownInPart) {
  write(0, "short\n" + std::string(1U << 20U, 'x') + "the end");
  const auto part = reader_.read(0, std::nullopt);
  ASSERT_THAT(part->lines, SizeIs(1));
  EXPECT_LE(part->lines[0].text.size(), kMostLineBytes + 4);
  EXPECT_EQ(reader_.read(0, part->lines[0].at)->lines.size(), 1U) << "and so on to its beginning";
}

TEST_F(LogReaderTest, SearchesAllRanksOrOne) {
  write(0, "a\nLoss is nan\n");
  write(1, "loss 1\nb\n");
  const auto all = reader_.search("LOSS", std::nullopt);
  ASSERT_THAT(all->lines, SizeIs(2));
  EXPECT_EQ(all->lines[0].place, 0);
  EXPECT_EQ(all->lines[0].line.number, 2U);
  EXPECT_EQ(all->lines[0].line.at, 2U);
  EXPECT_EQ(all->lines[1].place, 1);
  EXPECT_EQ(all->lines[1].line.text, "loss 1");
  EXPECT_EQ(all->unread, 0U);
  EXPECT_THAT(reader_.search("loss", 1)->lines, SizeIs(1));
  EXPECT_EQ(reader_.search("loss", 2).status().code(), Code::kNotFound);
}

TEST_F(LogReaderTest, SaysWhatItHasNotSearched) {
  write(0, "needle\n" + lines_of(200'000));
  append(0, "the last needle\n");
  write(1, "a needle of a small file\n");
  const auto found = reader_.search("needle", std::nullopt);
  ASSERT_THAT(found->lines, SizeIs(2));
  EXPECT_EQ(found->lines[0].line.text, "the last needle");
  EXPECT_EQ(found->lines[1].place, 1);
  // Each file may have half of what is read; from the one behind it is known only then.
  EXPECT_GT(found->unread, 20'000'000U - LogReader::kMostSearchBytes);
  EXPECT_LT(found->unread, 20'000'000U);
  EXPECT_LT(reader_.search("needle", 0)->unread, found->unread);
}

TEST_F(LogReaderTest, OfManyMatchesTheNewestAreShown) {
  write(0, lines_of(LogReader::kMostMatches + 7));
  const auto found = reader_.search("line", std::nullopt);
  EXPECT_EQ(found->lines.size(), LogReader::kMostMatches);
  EXPECT_EQ(found->older, 7U);
  EXPECT_EQ(found->lines.front().line.number, 8U);
}

TEST_F(LogReaderTest, ReadsNothingButPlainFilesOfTheFolder) {
  write(0, "secret\n");
  ASSERT_EQ(symlink(path_of(0).c_str(), path_of(1).c_str()), 0);
  ASSERT_EQ(mkfifo(path_of(2).c_str(), 0600), 0);
  std::filesystem::create_directories(path_of(3));
  for (const int place : {1, 2, 3, 4})
    EXPECT_EQ(reader_.read(place, std::nullopt).status().code(), Code::kNotFound) << place;
}

TEST_F(LogReaderTest, IsAskedByNumbersAndATextAndNothingElse) {
  write(0, "a\n\x1b[31m</script>\xff\n");
  EXPECT_EQ(ask("place=0")["lines"],
            nlohmann::json::parse("[[0, 1, \"a\"], [2, 2, \"</script>\xEF\xBF\xBD\"]]"));
  EXPECT_EQ(ask("place=0&before=2")["lines"], nlohmann::json::parse(R"([[0, 1, "a"]])"));
  EXPECT_EQ(ask("search=SCRIPT")["matches"],
            nlohmann::json::parse("[[0, 2, 2, \"</script>\xEF\xBF\xBD\"]]"));
  EXPECT_THAT(ask("place=7", 404)["error"], HasSubstr("rank-7.log"));
  for (const char* wrong : {"", "place=", "place=-1", "place=x", "place=0x", "place=0%2F..",
                            "place=..%2Fsecret", "place=99999999999", "place=0&before=-3"})
    EXPECT_NE(ask(wrong, 400)["error"], "") << wrong;
  ask("search=" + std::string(300, 'x'), 400);
}

}  // namespace
}  // namespace corro::dashboard
