#include "screen/seen_lines.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace corro::screen {
namespace {

TEST(SeenLines, FindsWhatItHasSeen) {
  SeenLines lines(size_t{1} << 30U);
  std::map<uint64_t, uint32_t> expected;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20'000; ++i) {
    // Few hashes, which collide in what the table holds of them.
    const uint64_t key = (random() % 100 << 32U) + random() % 100;
    EXPECT_EQ(lines.count(lines.find_or_add(key), 3), ++expected[key]);
  }
  EXPECT_EQ(lines.size(), expected.size());
}

TEST(SeenLines, ForgetsTheOldestAndFindsTheRest) {
  constexpr size_t kMaxBytes = 20'000;
  constexpr uint64_t kWaits = 5;
  SeenLines lines(kMaxBytes);
  const uint32_t waiting = lines.find_or_add(kWaits);
  lines[waiting].waiting = true;
  std::mt19937_64 random(2);
  std::vector<uint64_t> keys;
  for (int i = 0; i < 20'000; ++i) {
    keys.push_back(random() | 1U << 20U);
    lines.count(lines.find_or_add(keys.back()), i % 7);
    if (i < 20) continue;
    EXPECT_EQ(lines.count(lines.find_or_add(keys[keys.size() - 20]), 9), 1U);
  }
  EXPECT_LT(lines.size() * sizeof(SeenLine), kMaxBytes);
  EXPECT_EQ(lines.find_or_add(kWaits), waiting);
  EXPECT_EQ(lines.count(lines.find_or_add(keys[100]), 9), 1U) << "it was forgotten";
}

TEST(SeenLines, CountsByRank) {
  SeenLines lines(1000);
  const uint32_t number = lines.find_or_add(7);
  for (const int rank : {4, 1, 4, 9, 1, 4}) lines.count(number, rank);
  std::map<int, uint32_t> counts;
  lines[number].for_each_count(
      [&](const SeenLine::Count& count) { counts[count.rank] = count.printed; });
  EXPECT_EQ(counts, (std::map<int, uint32_t>{{1, 2}, {4, 3}, {9, 1}}));
}

}  // namespace
}  // namespace corro::screen
