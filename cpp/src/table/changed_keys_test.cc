#include "table/changed_keys.h"

#include <gtest/gtest.h>

#include <random>

namespace corro::table {
namespace {

std::vector<uint64_t> drawn(std::mt19937_64& random, size_t count) {
  std::vector<uint64_t> keys(count);
  for (uint64_t& key : keys) key = random();
  return keys;
}

size_t found(const ChangedKeys& changed, const std::vector<uint64_t>& keys) {
  return static_cast<size_t>(
      std::ranges::count_if(keys, [&](uint64_t key) { return changed.contains(key); }));
}

TEST(ChangedKeys, HaveWhatWasAddedAndFewOthers) {
  std::mt19937_64 random(1);
  ChangedKeys changed = ChangedKeys::for_rows(100'000);
  EXPECT_LE(changed.bytes(), 2 * 100'000U);
  const std::vector<uint64_t> keys = drawn(random, 10'000);
  changed.add(keys);
  EXPECT_EQ(found(changed, keys), keys.size());
  EXPECT_LT(found(changed, drawn(random, 100'000)), 3000U);
  EXPECT_EQ(found(changed.emptied(), keys), 0U);
  EXPECT_EQ(changed.emptied().bytes(), changed.bytes());
}

TEST(ChangedKeys, OfAnySizesAddUp) {
  std::mt19937_64 random(2);
  for (const uint64_t rows : {1'000ULL, 20'000ULL, 300'000ULL}) {
    ChangedKeys sum = ChangedKeys::for_rows(20'000);
    ChangedKeys other = ChangedKeys::for_rows(rows);
    const std::vector<uint64_t> here = drawn(random, 500);
    const std::vector<uint64_t> there = drawn(random, 500);
    sum.add(here);
    other.add(there);
    sum.add(other);
    EXPECT_EQ(found(sum, here), here.size());
    EXPECT_EQ(found(sum, there), there.size());
    EXPECT_LT(found(sum, drawn(random, 10'000)), 500U);
  }
}

TEST(ChangedKeys, OfATableWithoutRowsHaveRoomForSome) {
  ChangedKeys changed = ChangedKeys::for_rows(0);
  const std::vector<uint64_t> keys = {0, 1, UINT64_MAX};
  changed.add(keys);
  EXPECT_EQ(found(changed, keys), 3U);
  EXPECT_FALSE(changed.contains(2));
}

}  // namespace
}  // namespace corro::table
