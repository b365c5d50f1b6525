#include "table/index.h"

#include <cstdint>
#include <random>
#include <set>
#include <unordered_map>
#include <vector>

#include <gtest/gtest.h>

#include "table/hash.h"

namespace corro::table {
namespace {

struct Good {
  uint64_t operator()(uint64_t key) const { return mix64(key); }
};
/// All keys begin in the same group, and have one of two tags.
struct Bad {
  uint64_t operator()(uint64_t key) const { return key & 1U; }
};

/// Does a random mixture of insertions and erasures, and compares with std::unordered_map.
template <typename Hash>
void compare_with_a_map(uint32_t keys, int steps) {
  const Hash hash;
  Index index(17, true);
  std::unordered_map<uint64_t, uint32_t> expected;
  std::mt19937_64 random(keys);
  for (int step = 0; step < steps; ++step) {
    const uint64_t key = random() % keys;
    const uint32_t place = index.find(hash(key), key);
    const auto found = expected.find(key);
    ASSERT_EQ(place != Index::kNone, found != expected.end()) << key;
    if (place == Index::kNone) {
      const auto slot = static_cast<uint32_t>(random() % Index::kSlots);
      index.make_room(hash);
      const uint32_t made = index.insert(hash(key), key, slot);
      ASSERT_EQ(index.find(hash(key), key), made);
      ASSERT_FALSE(index.used_at(made));
      ASSERT_EQ(index.date_at(made), 0);
      if (key % 3 == 0) index.set_used(made);
      index.set_date(made, ~slot);
      expected[key] = slot;
    } else {
      ASSERT_EQ(index.slot_at(place), found->second);
      ASSERT_EQ(index.key_at(place), key);
      ASSERT_EQ(index.used_at(place), key % 3 == 0);
      ASSERT_EQ(index.date_at(place), ~found->second);
      if (random() % 2 == 0) {
        index.erase(place);
        expected.erase(found);
      }
    }
    ASSERT_EQ(index.entries(), expected.size());
  }
  std::set<uint64_t> left;
  for (uint32_t group = 0; group < index.capacity(); group += kGroup) {
    for (uint32_t full = index.entries_of(group); full != 0; full &= full - 1) {
      left.insert(index.key_at(group + lowest(full)));
    }
  }
  EXPECT_EQ(left.size(), expected.size());
  for (const uint64_t key : left) EXPECT_TRUE(expected.contains(key)) << key;
}

TEST(Index, DoesAsAMapDoes) {
  compare_with_a_map<Good>(50, 2000);
  compare_with_a_map<Good>(5000, 40000);
}

TEST(Index, FindsKeysThatBeginInTheSameGroup) { compare_with_a_map<Bad>(300, 4000); }

TEST(Index, KeepsItsSizeWhenAsManyKeysGoAsCome) {
  Index index(0, false);
  const Good hash;
  for (uint64_t key = 0; key < 100000; ++key) {
    index.make_room(hash);
    index.insert(hash(key), key, 0);
    if (key < 500) continue;
    index.erase(index.find(hash(key - 500), key - 500));
  }
  EXPECT_EQ(index.entries(), 500);
  EXPECT_LE(index.capacity(), 1100);
}

TEST(Index, SaysHowMuchItGrows) {
  Index index(5, true);
  for (uint64_t key = 0; key < 5000; ++key) {
    const size_t expected = index.bytes() + index.bytes_to_grow();
    index.make_room(Good{});
    ASSERT_EQ(index.bytes(), expected);
    index.insert(mix64(key), key, 0);
  }
}

TEST(Index, LivesWithoutMoreMemory) {
  Index index(0, false);
  const Good hash;
  uint64_t key = 0;
  while (index.bytes_to_grow() == 0 || key < 3000) {
    index.make_room(hash);
    index.insert(hash(key), key, 0);
    ++key;
  }
  const size_t bytes = index.bytes();
  const uint64_t entries = key;
  for (; key < 50000; ++key) {
    index.erase(index.find(hash(key - entries), key - entries));
    index.make_room(hash, false);
    index.insert(hash(key), key, 0);
    ASSERT_EQ(index.bytes(), bytes);
  }
  for (uint64_t old = key - entries; old < key; ++old) {
    EXPECT_NE(index.find(hash(old), old), Index::kNone);
  }
}

TEST(Index, ShardsGrowOneByOne) {
  std::set<uint32_t> capacities;
  for (uint32_t shard = 0; shard < 64; ++shard) {
    Index index(shard, false);
    for (uint64_t key = 0; key < 20000; ++key) {
      index.make_room(Good{});
      index.insert(mix64(key), key, 0);
    }
    EXPECT_LE(index.bytes(), 20000 * 13 / 0.69) << shard;
    capacities.insert(index.capacity());
  }
  EXPECT_GT(capacities.size(), 14);
}

TEST(Index, RoomThatWasReservedIsEnough) {
  constexpr uint32_t kEntries = 20000;
  for (uint32_t shard = 0; shard < 64; shard += 21) {
    Index index(shard, true);
    index.insert(mix64(0), 0, 5);
    index.reserve(kEntries, Good{});
    const size_t reserved = index.bytes();
    EXPECT_LE(reserved, kEntries * 17 / 0.75) << shard;
    for (uint64_t key = 1; key < kEntries; ++key) {
      index.make_room(Good{});
      index.prefetch_free(mix64(key));
      index.insert(mix64(key), key, 0);
    }
    index.reserve(kEntries / 2, Good{});
    EXPECT_EQ(index.bytes(), reserved) << shard;
    EXPECT_EQ(index.slot_at(index.find(mix64(0), 0)), 5U);
  }
}

TEST(Index, MatchesSixteenTags) {
  alignas(16)
      uint8_t tags[kGroup] = {0x80, 0, 1, 0xff, 0x81, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 1, 0x81};
  EXPECT_EQ(match(tags, 0x81), 0b1000'1000'0001'0000U);
  EXPECT_EQ(match(tags, 1), 0b0100'0000'0000'0100U);
  EXPECT_EQ(match_high(tags), 0b1000'1000'0001'1001U);
}

}  // namespace
}  // namespace corro::table
