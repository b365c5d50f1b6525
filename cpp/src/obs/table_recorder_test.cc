#include "obs/table_recorder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <string>

#include "obs/table_layout.h"

namespace corro::obs {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::unique_ptr<TableRecorder> make_tables() { return std::move(TableRecorder::create()).value(); }

TableCounts counts_of(const std::string& name, uint64_t first) {
  return {.name = name,
          .rows = first,
          .bytes = first + 1,
          .shards = first + 2,
          .steps = first + 3,
          .pulls = first + 4,
          .pulled_rows = first + 5,
          .pushes = first + 6,
          .pushed_rows = first + 7,
          .pull_p99_ns = first + 8};
}

TEST(TableRecorder, OthersReadWhatWasWrittenLast) {
  const auto recorder = make_tables();
  EXPECT_THAT(read_tables(recorder->fd()).value(), IsEmpty());
  EXPECT_EQ(recorder->add("words"), 0U);
  EXPECT_EQ(recorder->add("users/ids.2"), 1U);
  EXPECT_THAT(read_tables(recorder->fd()).value(),
              ElementsAre(TableCounts{.name = "words"}, TableCounts{.name = "users/ids.2"}));
  recorder->write(1, counts_of("", 10));
  recorder->write(0, counts_of("", 50));
  recorder->write(1, counts_of("", 1ULL << 63U));
  EXPECT_THAT(read_tables(recorder->fd()).value(),
              ElementsAre(counts_of("words", 50), counts_of("users/ids.2", 1ULL << 63U)));
}

TEST(TableRecorder, OfAServerThatIsOverShowsNothing) {
  const auto recorder = make_tables();
  (void)recorder->add("words");
  recorder->clear();
  EXPECT_THAT(read_tables(recorder->fd()).value(), IsEmpty());
}

TEST(TableRecorder, IsReadByAnotherProcessAfterItsWriterWasKilled) {
  const auto recorder = make_tables();
  const pid_t child = fork();
  if (child == 0) {
    recorder->write(recorder->add("words").value_or(9), counts_of("", 7));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_EQ(WTERMSIG(status), SIGKILL);
  EXPECT_THAT(read_tables(recorder->fd()).value(), ElementsAre(counts_of("words", 7)));
}

TEST(TableRecorder, ShowsAsManyTablesAsThereIsRoomFor) {
  const auto recorder = make_tables();
  for (size_t i = 0; i < kMostShownTables; ++i)
    EXPECT_EQ(recorder->add("t" + std::to_string(i)), i);
  EXPECT_EQ(recorder->add("another"), std::nullopt);
  const auto tables = read_tables(recorder->fd()).value();
  ASSERT_EQ(tables.size(), kMostShownTables);
  EXPECT_EQ(tables.back().name, "t63");
}

TEST(TableRecorder, KeepsTheLongestNameAndWhatFitsOfALongerOne) {
  const auto recorder = make_tables();
  const std::string longest(kTableNameBytes, 'x');
  EXPECT_TRUE(recorder->add(longest));
  EXPECT_TRUE(recorder->add(std::string(1000, 'y')));
  const auto tables = read_tables(recorder->fd()).value();
  EXPECT_EQ(tables.at(0).name, longest);
  EXPECT_EQ(tables.at(1).name, std::string(sizeof(TableCell::name) - 1, 'y'));
}

TEST(TableRecorder, NobodyElseCanCutItsMemoryOff) {
  const auto recorder = make_tables();
  EXPECT_NE(ftruncate(recorder->fd(), 0), 0);
  EXPECT_NE(fcntl(recorder->fd(), F_GET_SEALS) & F_SEAL_SHRINK, 0);
}

// -- foreign bytes --------------------------------------------------------------------------------

/// What is read of the memory of a recorder with one table, once it was changed.
Result<std::vector<TableCounts>> read_changed(const std::function<void(std::string&)>& change,
                                              bool sealed = true) {
  const auto recorder = make_tables();
  recorder->write(recorder->add("words").value_or(9), counts_of("", 7));
  std::string bytes(sizeof(TableMemory), '\0');
  EXPECT_EQ(pread(recorder->fd(), bytes.data(), bytes.size(), 0),
            static_cast<ssize_t>(bytes.size()));
  change(bytes);
  const int fd = memfd_create("foreign", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  if (sealed) {
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  auto read = read_tables(fd);
  close(fd);
  return read;
}

std::function<void(std::string&)> store_word(size_t offset, uint64_t value) {
  return [=](std::string& bytes) { std::memcpy(bytes.data() + offset, &value, sizeof(value)); };
}

constexpr size_t kCountAt = offsetof(TableHeader, count);
constexpr size_t kNameAt = offsetof(TableMemory, cells);

TEST(ReadTables, ReadsAnHonestCopy) {
  EXPECT_THAT(read_changed([](std::string&) {}).value(), ElementsAre(counts_of("words", 7)));
}

TEST(ReadTables, RefusesWhatIsNoMemoryOfTables) {
  const auto cut = [](std::string& bytes) { bytes.pop_back(); };
  const auto longer = [](std::string& bytes) { bytes += 'x'; };
  EXPECT_THAT(read_changed([](std::string&) {}, /*sealed=*/false).status().message(),
              HasSubstr("table recorder: not a memfd sealed"));
  EXPECT_THAT(read_changed(cut).status().message(), HasSubstr("13375 bytes are too few"));
  EXPECT_THAT(read_changed(longer).status().message(), HasSubstr("13377 bytes are too many"));
  EXPECT_THAT(read_changed(store_word(0, 0)).status().message(), HasSubstr("another format"));
  EXPECT_THAT(read_changed(store_word(0, kTableMagic + (1ULL << 56U))).status().message(),
              HasSubstr("another release of corro"));
  EXPECT_THAT(read_changed(store_word(kCountAt, kMostShownTables + 1)).status().message(),
              HasSubstr("65 tables, and 64 are the most"));
  EXPECT_THAT(read_changed(store_word(kCountAt, 2)).status().message(),
              HasSubstr("table 1 has no name"));
  EXPECT_EQ(read_changed(cut).status().code(), Code::kDataLoss);
  EXPECT_FALSE(read_tables(-1).ok());
}

TEST(ReadTables, NamesDoNoHarmOnATerminal) {
  const auto harmful = [](std::string& bytes) { bytes.replace(kNameAt, 5, "\x1b[2J\xff"); };
  EXPECT_EQ(read_changed(harmful)->at(0).name, "?[2J?");
  const auto endless = [](std::string& bytes) {
    bytes.replace(kNameAt, sizeof(TableCell::name), sizeof(TableCell::name), 'z');
  };
  EXPECT_EQ(read_changed(endless)->at(0).name, std::string(sizeof(TableCell::name) - 1, 'z'));
}

}  // namespace
}  // namespace corro::obs
