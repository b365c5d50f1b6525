#include "table/service/disk_snapshots.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/reader.h"
#include "table/service/snapshot_store.h"
#include "table/service/tables.h"

namespace corro::table {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

class DiskSnapshots : public testing::Test {
 protected:
  DiskSnapshots() {
    fs::remove_all(folder_);
    table_ = LocalTable::create(spec_).value();
  }
  ~DiskSnapshots() override { fs::remove_all(folder_); }

  /// Takes a step, of a table of about 3 MB.
  void step() {
    std::vector<uint64_t> keys(20'000);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = i * 977;
    const std::vector<float> gradients(keys.size() * spec_.dim, 1.0F);
    ASSERT_TRUE(table_->push(keys, gradients, ++steps_).ok());
  }
  void save() {
    const Status status = save_local(folder_, *table_, steps_, 2);
    ASSERT_TRUE(status.ok()) << status.message();
  }
  [[nodiscard]] Result<std::unique_ptr<LocalTable>> load(uint64_t step) const {
    PageQueue queue;
    CORRO_ASSIGN(LoadedRows loaded,
                 load_rows(folder_, step, {.spec = spec_, .shards = ShardSet().set()}, queue));
    EXPECT_EQ(loaded.steps, step);
    return std::move(loaded.rows);
  }
  [[nodiscard]] std::string part_of(uint64_t step) const {
    return folder_ + "/step-" + std::to_string(step) + "/table-0.part-0.rows";
  }

  const std::string folder_ = testing::TempDir() + "corro-snapshots-" + std::to_string(getpid());
  const TableSpec spec_{.name = "t", .dim = 32};
  std::unique_ptr<LocalTable> table_;
  uint64_t steps_ = 0;
};

TEST_F(DiskSnapshots, TwoAreLeft) {
  for (int i = 0; i < 3; ++i) {
    step();
    save();
  }
  EXPECT_THAT(checkpoint::steps_in(folder_).value(), ElementsAre(3, 2));
  const auto read = load(3).value();
  EXPECT_EQ(read->stats().rows, 20'000U);
  std::vector<float> row(32);
  const std::vector<uint64_t> key = {977};
  EXPECT_TRUE(read->pull(key, row).ok());
  EXPECT_FLOAT_EQ(row[5], -0.03F);
}

TEST_F(DiskSnapshots, AnEmptyTableIsOne) {
  save();
  EXPECT_EQ(load(0).value()->stats().rows, 0U);
}

TEST_F(DiskSnapshots, OfAStepTakesThePlaceOfAnother) {
  step();
  save();
  save();
  EXPECT_THAT(checkpoint::steps_in(folder_).value(), ElementsAre(1));
  EXPECT_TRUE(load(1).ok());
}

TEST_F(DiskSnapshots, ThatAreDamagedAreNamed) {
  step();
  save();
  const auto length = fs::file_size(part_of(1));
  for (const uintmax_t at : {uintmax_t{3}, uintmax_t{1} << 20U, length - 1}) {
    std::fstream file(part_of(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 4));
    file.close();
    const auto read = load(1);
    EXPECT_EQ(read.status().code(), Code::kDataLoss);
    EXPECT_THAT(read.status().message(), HasSubstr("part-0.rows: damaged"));
    file.open(part_of(1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
  }
  EXPECT_TRUE(load(1).ok());
  fs::resize_file(part_of(1), length - 1);
  EXPECT_EQ(load(1).status().code(), Code::kDataLoss);
  fs::remove(part_of(1));
  EXPECT_EQ(load(1).status().code(), Code::kDataLoss);
}

TEST_F(DiskSnapshots, AreReadInAThreadThatRingsOnceItIsDone) {
  step();
  save();
  std::atomic<bool> rung = false;
  const auto store = disk_snapshots([&] { rung = true; });
  const LoadOptions options{.spec = spec_, .shards = ShardSet().set()};
  (void)store->begin_load(folder_, 1, options);  // It is given up at once, wherever it is.
  const auto loading = store->begin_load(folder_, 1, options);
  while (!loading->done() || !rung) std::this_thread::yield();
  EXPECT_EQ(loading->take().value().rows->stats().rows, 20'000U);
  const auto none = store->begin_load(folder_, 7, options);
  while (!none->done()) std::this_thread::yield();
  EXPECT_EQ(none->take().status().code(), Code::kDataLoss);
}

TEST_F(DiskSnapshots, WhatIsHalfWrittenIsNoneAndGoesWithTheNext) {
  step();
  save();
  {
    const auto store = disk_snapshots([] {});
    const auto part = store->begin(
        {.attempt = draw_attempt(), .step = 7, .parts = 2, .folder = folder_}, {spec_, 7});
    part->finish();
    while (!part->result()) std::this_thread::yield();
    ASSERT_TRUE(part->result()->ok());
  }
  EXPECT_THAT(checkpoint::steps_in(folder_).value(), ElementsAre(1));
  step();
  save();
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr("partial")));
}

TEST_F(DiskSnapshots, AFolderThatCannotBeWrittenIsTheResult) {
  const auto store = disk_snapshots([] {});
  const auto part = store->begin({.attempt = 1, .step = 7, .folder = "/proc/nothing"}, {spec_, 7});
  part->write(Bytes(10));
  part->finish();
  while (!part->result()) std::this_thread::yield();
  EXPECT_FALSE(part->result()->ok());
  EXPECT_THAT(part->result()->message(), HasSubstr("/proc/nothing"));
}

/// A process that has a table to itself.
class Training {
 public:
  explicit Training(std::string folder) : folder_(std::move(folder)) { begin(); }

  void begin(TableSpec spec = {
                 .name = "t", .dim = 8, .optimizer = {.kind = OptimizerKind::kAdam}}) {
    tables_ = local_tables();
    ASSERT_TRUE(tables_->open(spec, 0).ok());
  }
  /// A step of ten rows.
  void push(uint64_t first) {
    std::vector<uint64_t> keys(10);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = first + i;
    const std::vector<float> gradients(keys.size() * 8, 1.0F);
    ASSERT_TRUE(tables_->push(0, keys, gradients).ok());
  }
  /// A hundred steps, of 1000 rows.
  void fill() {
    for (uint64_t key = 0; key < 1000; key += 10) push(key);
  }
  void save() {
    const Status status = tables_->save(0, folder_, {.keep = 2, .full_every = 4});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  void save_in(const std::string& folder) {
    folder_ = folder;
    save();
  }
  Status restore(uint64_t step) {
    CORRO_TRY(tables_->load(0, folder_, step, false).status());
    return tables_->adopt(0);
  }
  [[nodiscard]] std::vector<float> rows() const {
    std::vector<uint64_t> keys(1000);
    for (uint64_t key = 0; key < keys.size(); ++key) keys[key] = key;
    std::vector<float> values(keys.size() * 8);
    EXPECT_TRUE(tables_->pull(0, keys, values).ok());
    return values;
  }

 private:
  std::string folder_;
  std::unique_ptr<Tables> tables_;
};

class SnapshotChains : public testing::Test {
 protected:
  SnapshotChains() { fs::remove_all(folder_); }
  ~SnapshotChains() override { fs::remove_all(folder_); }

  /// What another process reads.
  [[nodiscard]] Result<std::vector<float>> restored(uint64_t step) const {
    Training other(first_);
    CORRO_TRY(other.restore(step));
    return other.rows();
  }
  [[nodiscard]] uintmax_t bytes_of(uint64_t step) const {
    return fs::file_size(fmt::format("{}/step-{}/table-0.part-0.rows", first_, step));
  }
  [[nodiscard]] static bool is_delta(const std::string& folder, uint64_t step) {
    return checkpoint::Opened::open(folder, step)->manifest().tables[0].base.has_value();
  }

  const std::string folder_ = testing::TempDir() + "corro-chains-" + std::to_string(getpid());
  const std::string first_ = folder_ + "/a";
  Training training_{first_};
};

TEST_F(SnapshotChains, ADeltaHasWhatHasChangedAndIsReadWithItsBase) {
  training_.fill();
  training_.save();
  const std::vector<float> whole = training_.rows();
  training_.push(500);
  training_.save();
  training_.push(990);
  training_.push(2000);  // Rows that were not there.
  training_.save();
  EXPECT_LT(bytes_of(101) * 10, bytes_of(100));
  EXPECT_EQ(restored(103).value(), training_.rows());
  EXPECT_EQ(restored(100).value(), whole);
  EXPECT_THAT(checkpoint::steps_in(first_).value(), ElementsAre(103, 101, 100))
      << "two are left, and the one on which both build";
}

TEST_F(SnapshotChains, OneOfSoManyIsWholeAndThenTheOlderOnesGo) {
  training_.fill();
  training_.save();
  for (uint64_t step = 101; step <= 105; ++step) {
    training_.push(step);
    training_.save();
    EXPECT_EQ(restored(step).value(), training_.rows()) << step;
    EXPECT_EQ(is_delta(first_, step), step != 104);
  }
  EXPECT_THAT(checkpoint::steps_in(first_).value(), ElementsAre(105, 104));
}

TEST_F(SnapshotChains, ABaseThatIsMissingOrAnotherIsSaid) {
  training_.fill();
  training_.save();
  training_.push(1);
  training_.save();
  const std::string base = first_ + "/step-100";
  fs::rename(base, folder_ + "/away");
  EXPECT_THAT(restored(101).status().message(), HasSubstr("builds on step 100, which is none"));
  Training other(folder_ + "/b");
  for (int i = 0; i < 100; ++i) other.push(7);
  other.save();
  fs::rename(folder_ + "/b/step-100", base);
  const Status status = restored(101).status();
  EXPECT_THAT(status.message(), HasSubstr("builds on another step 100"));
  EXPECT_EQ(status.code(), Code::kDataLoss) << "an older one may do";
}

TEST_F(SnapshotChains, AfterOtherRowsAndInAnotherFolderTheNextIsWhole) {
  training_.fill();
  training_.save();
  training_.push(1);
  training_.save();
  ASSERT_TRUE(training_.restore(100).ok());
  training_.push(2);
  training_.save();
  EXPECT_FALSE(is_delta(first_, 101)) << "it has taken the place of the other step 101";
  EXPECT_EQ(restored(101).value(), training_.rows());
  training_.push(3);
  training_.save_in(folder_ + "/b");
  EXPECT_FALSE(is_delta(folder_ + "/b", 102));
}

TEST_F(SnapshotChains, OfAStepThatIsSavedTwiceTheSecondIsWhole) {
  training_.fill();
  training_.save();
  training_.push(1);
  training_.save();
  training_.save();
  EXPECT_FALSE(is_delta(first_, 101));
  EXPECT_EQ(restored(101).value(), training_.rows());
}

TEST_F(SnapshotChains, TablesWhoseRowsGoAreWhole) {
  training_.begin({.name = "t", .dim = 8, .retention = {.idle_steps = 3}});
  training_.push(1);
  training_.save();
  training_.push(20);
  training_.save();
  EXPECT_FALSE(is_delta(first_, 2));
}

}  // namespace
}  // namespace corro::table
