#include "table/log/row_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "table/log/fake_disk.h"

namespace corro::table {
namespace {

using ::testing::HasSubstr;

/// A log, and where each key's record is. A record is a key and a number.
class Rig : public RowLog::Owner {
 public:
  explicit Rig(size_t record_bytes = 24, uint64_t segment_bytes = 64 << 10U)
      : bytes_(record_bytes), log("t", record_bytes, own_disk(), segment_bytes) {}

  bool lives(const std::byte* record, uint32_t place) override {
    const auto found = places.find(key_of(record));
    return found != places.end() && found->second == place;
  }
  void moved(const std::byte* record, uint32_t from, uint32_t to) override {
    log.drop(from);
    places[key_of(record)] = to;
    ++moves;
  }

  bool put(uint64_t key, uint64_t number) {
    std::vector<std::byte> record(bytes_, static_cast<std::byte>(number));
    std::memcpy(record.data(), &key, 8);
    std::memcpy(record.data() + 8, &number, 8);
    const auto place = log.append(record.data());
    if (!place) return false;
    if (places.contains(key)) log.drop(places[key]);
    places[key] = *place;
    numbers[key] = number;
    return true;
  }
  /// All of them, read in an order of their own, are what was put last.
  Status check() {
    std::vector<uint64_t> keys;
    std::vector<uint32_t> at;
    for (const auto& [key, place] : places) {
      keys.push_back(key);
      at.push_back(place);
    }
    size_t seen = 0;
    const Status status = log.read(at, [&](size_t i, const std::byte* record) {
      uint64_t number = 0;
      std::memcpy(&number, record + 8, 8);
      EXPECT_EQ(key_of(record), keys[i]);
      EXPECT_EQ(number, numbers.at(keys[i]));
      EXPECT_EQ(record[bytes_ - 1], static_cast<std::byte>(bytes_ > 16 ? number : 0));
      ++seen;
    });
    EXPECT_EQ(seen, status.ok() ? keys.size() : seen);
    return status;
  }
  FakeDisk& disk() { return *disk_; }

  std::map<uint64_t, uint32_t> places;
  std::map<uint64_t, uint64_t> numbers;
  size_t moves = 0;

 private:
  static uint64_t key_of(const std::byte* record) {
    uint64_t key = 0;
    std::memcpy(&key, record, 8);
    return key;
  }
  std::unique_ptr<Disk> own_disk() {
    auto disk = std::make_unique<FakeDisk>();
    disk_ = disk.get();
    return disk;
  }

  FakeDisk* disk_ = nullptr;
  size_t bytes_;

 public:
  RowLog log;
};

TEST(RowLog, KeepsRecordsOfAnySize) {
  for (const size_t bytes : {16U, 24U, 100U, 2100U, 5000U, 49'164U}) {
    Rig rig(bytes, 1 << 20U);
    for (uint64_t key = 0; key < 300; ++key) {
      ASSERT_TRUE(rig.log.reserve(1, rig).ok());
      ASSERT_TRUE(rig.put(key, key * 3)) << bytes;
    }
    EXPECT_TRUE(rig.check().ok()) << bytes;
    EXPECT_EQ(rig.log.counts().rows, 300);
  }
}

TEST(RowLog, OneRecordIsOneReadOfOneBlock) {
  Rig rig(1000, 1 << 20U);
  ASSERT_TRUE(rig.log.reserve(2000, rig).ok());
  for (uint64_t key = 0; key < 2000; ++key) ASSERT_TRUE(rig.put(key, key));
  for (const uint64_t key : {0U, 5U, 901U}) {
    const size_t before = rig.disk().read_count;
    const std::vector<uint32_t> places(3, rig.places.at(key));  // Three times the same.
    ASSERT_TRUE(rig.log.read(places, [](size_t, const std::byte*) {}).ok());
    EXPECT_EQ(rig.disk().read_count, before + 1);
  }
}

TEST(RowLog, CompactsSegmentsOfWhichMostIsDropped) {
  Rig rig;
  std::mt19937_64 random(1);
  for (uint64_t i = 0; i < 200'000; ++i) {
    ASSERT_TRUE(rig.log.reserve(1, rig).ok());
    ASSERT_TRUE(rig.put(random() % (i % 3 == 0 ? 20'000 : 4000), i));
    if (i % 100 == 0) rig.log.compact(4, rig);
  }
  EXPECT_GT(rig.moves, 1000);
  EXPECT_TRUE(rig.check().ok());
  EXPECT_EQ(rig.log.counts().rows, rig.places.size());
  EXPECT_LE(rig.log.counts().bytes, rig.places.size() * 24 * 3);
}

TEST(RowLog, SegmentsWithoutRecordsGoBackToTheDisk) {
  Rig rig;
  ASSERT_TRUE(rig.log.reserve(50'000, rig).ok());
  for (uint64_t key = 0; key < 50'000; ++key) ASSERT_TRUE(rig.put(key, key));
  const uint64_t most = rig.log.counts().bytes;
  for (const auto& [key, place] : rig.places) rig.log.drop(place);
  EXPECT_LE(rig.log.counts().bytes, 4U * 64 << 10U);
  EXPECT_GE(most, 1'000'000);
  EXPECT_EQ(rig.disk().reserved.size(), rig.log.counts().bytes >> 16U);
}

TEST(RowLog, AFullDiskIsToldAndTheLogGoesOnWhereRecordsAreDropped) {
  Rig rig;
  rig.disk().most_bytes = 8 * 64 << 10U;
  uint64_t key = 0;
  Status status;
  while ((status = rig.log.reserve(1, rig)).ok()) {
    ASSERT_TRUE(rig.put(key, key));
    ++key;
  }
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("table t: no room for 1 rows more beside "));
  EXPECT_THAT(status.message(), HasSubstr("the disk is full"));
  EXPECT_TRUE(rig.check().ok());
  for (uint64_t gone = 0; gone < key; ++gone) {
    if (gone % 3 == 0) continue;
    rig.log.drop(rig.places.at(gone));
    rig.places.erase(gone);
  }
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(rig.log.reserve(1, rig).ok()) << i;
    ASSERT_TRUE(rig.put(key++, 1));
  }
  EXPECT_GT(rig.moves, 0);
  EXPECT_TRUE(rig.check().ok());
}

TEST(RowLog, AFailedWriteLosesNothingAndIsDoneAgain) {
  Rig rig;
  ASSERT_TRUE(rig.log.reserve(100'000, rig).ok());
  rig.disk().fails_writes = true;
  uint64_t key = 0;
  while (rig.put(key, key)) ++key;
  EXPECT_GT(key, 1000);
  EXPECT_TRUE(rig.check().ok());
  const Status status = rig.log.reserve(1, rig);
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("table t: fake: Input/output error"));
  rig.disk().fails_writes = false;
  EXPECT_TRUE(rig.log.reserve(1, rig).ok());
  EXPECT_TRUE(rig.put(key, key));
  EXPECT_TRUE(rig.check().ok());
}

TEST(RowLog, AFlippedBitIsFoundWhereverItIs) {
  for (const size_t at : {0U, 5U, 9U, 17U, 4095U}) {
    Rig rig;
    ASSERT_TRUE(rig.log.reserve(20'000, rig).ok());
    for (uint64_t key = 0; key < 20'000; ++key) ASSERT_TRUE(rig.put(key, key));
    ASSERT_TRUE(rig.check().ok());
    rig.disk().bytes[4096 * 3 + at] ^= std::byte{4};
    const Status status = rig.check();
    EXPECT_EQ(status.code(), Code::kDataLoss);
    EXPECT_THAT(status.message(), HasSubstr("table t: rows on disk: the block at byte 12288 is"));
  }
}

TEST(RowLog, ABlockInThePlaceOfAnotherIsFound) {
  Rig rig;
  ASSERT_TRUE(rig.log.reserve(20'000, rig).ok());
  for (uint64_t key = 0; key < 20'000; ++key) ASSERT_TRUE(rig.put(key, key));
  std::memcpy(&rig.disk().bytes[4096], &rig.disk().bytes[8192], 4096);
  EXPECT_EQ(rig.check().code(), Code::kDataLoss);
}

TEST(RowLog, ASegmentThatCannotBeReadKeepsItsRecords) {
  Rig rig;
  ASSERT_TRUE(rig.log.reserve(20'000, rig).ok());
  for (uint64_t key = 0; key < 20'000; ++key) ASSERT_TRUE(rig.put(key, key));
  for (uint64_t key = 0; key < 20'000; ++key) {
    if (key % 4 == 0) continue;
    rig.log.drop(rig.places.at(key));
    rig.places.erase(key);
  }
  rig.disk().fails_reads = true;
  rig.log.compact(1000, rig);
  rig.disk().fails_reads = false;
  EXPECT_EQ(rig.moves, 0);
  EXPECT_TRUE(rig.check().ok());
}

}  // namespace
}  // namespace corro::table
