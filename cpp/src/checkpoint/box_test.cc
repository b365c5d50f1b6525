#include "checkpoint/box.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace corro::checkpoint {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(Box, RowsOfATensorAreOneRun) {
  EXPECT_THAT(stretches_between({{4, 0}, {2, 8}}, {{0, 0}, {5, 8}}, 4),
              ElementsAre(Stretch{0, 128, 32}));
}

TEST(Box, ColumnsAreARunForEachRow) {
  EXPECT_THAT(stretches_between({{0, 2}, {2, 2}}, whole_of({2, 4}), 1),
              ElementsAre(Stretch{0, 2, 2}, Stretch{2, 6, 2}));
}

TEST(Box, ATensorWithoutDimsIsOneElement) {
  EXPECT_THAT(stretches_between(whole_of({}), whole_of({}), 8), ElementsAre(Stretch{0, 0, 8}));
}

TEST(Box, NothingInCommonIsNoRun) {
  EXPECT_THAT(stretches_between({{0}, {4}}, {{4}, {4}}, 4), IsEmpty());
  EXPECT_THAT(stretches_between(whole_of({0, 4}), whole_of({0, 4}), 4), IsEmpty());
  EXPECT_FALSE(overlap({{0, 0}, {2, 2}}, {{0, 2}, {2, 2}}));
  EXPECT_TRUE(overlap({{0, 0}, {2, 3}}, {{1, 2}, {2, 2}}));
}

TEST(Box, LengthsWhoseBytesDoNotFitAreNotSensible) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  EXPECT_TRUE(is_sensible({}, 8));
  EXPECT_TRUE(is_sensible({0, 5}, 8));
  EXPECT_FALSE(is_sensible({-1}, 1));
  EXPECT_FALSE(is_sensible({kHuge, kHuge}, 1));
  EXPECT_FALSE(is_sensible({0, kHuge, kHuge}, 1));
}

/// Random boxes of random tensors: each element that both have is copied once, to its place.
TEST(Box, RunsCopyExactlyTheElementsThatBothHave) {
  std::mt19937 random(11);
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(bound));
  };
  for (int round = 0; round < 2000; ++round) {
    const auto dims = static_cast<size_t>(below(4));
    Box source;
    Box target;
    Shape whole;
    for (size_t dim = 0; dim < dims; ++dim) {
      whole.push_back(below(5) + 1);
      for (Box* box : {&source, &target}) {
        box->offsets.push_back(below(whole[dim]));
        box->shape.push_back(below(whole[dim] - box->offsets[dim] + 1));
      }
    }
    std::vector<uint64_t> numbers(elements_of(whole));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = i + 1;
    const auto cut = [&](const Box& box) {
      std::vector<uint64_t> part(elements_of(box.shape));
      for (const Stretch& one : stretches_between(whole_of(whole), box, 1)) {
        for (uint64_t i = 0; i < one.bytes; ++i) part[one.to + i] = numbers[one.from + i];
      }
      return part;
    };
    const std::vector<uint64_t> from = cut(source);
    const std::vector<uint64_t> wanted = cut(target);
    for (const std::vector<uint64_t>* part : {&from, &wanted}) {
      EXPECT_EQ(std::ranges::count(*part, 0), 0) << "a box of the tensor is whole";
    }
    std::vector<uint64_t> got(wanted.size());
    for (const Stretch& one : stretches_between(source, target, 1)) {
      for (uint64_t i = 0; i < one.bytes; ++i) {
        EXPECT_EQ(got[one.to + i], 0U) << "copied twice";
        got[one.to + i] = from[one.from + i];
      }
    }
    for (size_t i = 0; i < got.size(); ++i) {
      const bool has = std::ranges::count(from, wanted[i]) == 1;
      EXPECT_EQ(got[i], has ? wanted[i] : 0);
    }
  }
}

}  // namespace
}  // namespace corro::checkpoint
