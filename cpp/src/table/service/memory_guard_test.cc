#include "table/service/memory_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace corro::table {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGib = 1ULL << 30U;

std::vector<uint64_t> keys_from(uint64_t first, size_t count) {
  std::vector<uint64_t> keys(count);
  for (size_t i = 0; i < count; ++i) keys[i] = first + i;
  return keys;
}

/// A table of rows of 4 KiB, with the keys 0 to 99.
std::unique_ptr<LocalTable> table_with(const Retention& retention = {}) {
  auto table = LocalTable::create({.name = "t", .dim = 1024, .retention = retention}).value();
  const auto keys = keys_from(0, 100);
  EXPECT_TRUE(table->push(keys, std::vector<float>(keys.size() * 1024, 1), 1).ok());
  return table;
}

TEST(MemoryGuard, RefusesNewRowsWhereMemoryIsShortAndSaysWhatToDo) {
  const auto table = table_with();
  uint64_t used = 15 * kGib - (1U << 20U);
  MemoryGuard guard([&] { return io::MemoryLimit{"cgroup limit /job", 16 * kGib, used}; });
  EXPECT_TRUE(guard.check(*table, keys_from(100, 200)).ok());
  const Status status = guard.check(*table, keys_from(50, 1000));
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("table t: no memory for 950 new rows (3 MiB) beside 100 "
                                          "rows (0 MiB): 15359 MiB of the 16384 MiB of cgroup "
                                          "limit /job are used, and 1024 are kept free: give "));
  EXPECT_THAT(status.message(), HasSubstr("budget= and spill="));
  used = 16 * kGib;
  EXPECT_TRUE(guard.check(*table, keys_from(0, 100)).ok()) << "rows that are there change";
  used = 0;
  EXPECT_TRUE(guard.check(*table, keys_from(50, 1000)).ok());
}

TEST(MemoryGuard, AsksSeldomWhileMuchIsLeft) {
  const auto table = table_with();
  int asked = 0;
  MemoryGuard guard([&] {
    ++asked;
    return io::MemoryLimit{"memory", 16 * kGib, 0};
  });
  for (uint64_t i = 0; i < 10'000; ++i)
    ASSERT_TRUE(guard.check(*table, keys_from(i * 100, 100)).ok());
  EXPECT_LE(asked, 3);
}

TEST(MemoryGuard, LeavesTablesAloneThatSpillAndLimitsThatNobodyKnows) {
  const auto none = [] { return std::optional<io::MemoryLimit>(); };
  EXPECT_TRUE(MemoryGuard(none).check(*table_with(), keys_from(100, 10'000)).ok());
  MemoryGuard full([] { return io::MemoryLimit{"memory", kGib, kGib}; });
  const auto spills = table_with({.most_bytes = 1U << 20U, .spill = testing::TempDir()});
  EXPECT_TRUE(full.check(*spills, keys_from(100, 10'000)).ok());
  EXPECT_FALSE(full.check(*table_with(), keys_from(100, 1)).ok());
}

}  // namespace
}  // namespace corro::table
