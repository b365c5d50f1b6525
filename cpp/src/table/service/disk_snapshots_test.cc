#include "table/service/disk_snapshots.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "checkpoint/reader.h"
#include "table/service/snapshot_store.h"

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

}  // namespace
}  // namespace corro::table
