#include "table/service/changes.h"

#include <gtest/gtest.h>

namespace corro::table {
namespace {

using Indices = std::vector<uint32_t>;

TEST(Changes, KeysThatLaterStepsHaveChangedAreFound) {
  Changes changes;
  changes.add(1, {1, 2, 3});
  changes.add(2, {2, 9});
  changes.add(3, {});
  const std::vector<uint64_t> keys = {0, 2, 3, 9, 10};
  EXPECT_EQ(changes.since(0, keys), (Indices{1, 2, 3}));
  EXPECT_EQ(changes.since(1, keys), (Indices{1, 3}));
  EXPECT_EQ(changes.since(2, keys), Indices{});
  EXPECT_EQ(changes.since(3, keys), Indices{});
  EXPECT_EQ(changes.since(0, {}), Indices{});
}

TEST(Changes, WhatIsLongAgoOrForgottenIsNotKnown) {
  Changes changes;
  const std::vector<uint64_t> keys = {1};
  for (uint64_t step = 1; step <= Changes::kMostSteps + 1; ++step) changes.add(step, {step});
  EXPECT_EQ(changes.since(0, keys), std::nullopt);
  EXPECT_EQ(changes.since(1, keys), Indices{});
  changes.forget(5);
  EXPECT_EQ(changes.since(4, keys), std::nullopt);
  EXPECT_EQ(changes.since(5, keys), Indices{});
  changes.forget(100);
  EXPECT_EQ(changes.since(99, keys), std::nullopt);
  EXPECT_EQ(changes.since(100, keys), Indices{});
}

TEST(Changes, ManyKeysAreNotKept) {
  Changes changes;
  std::vector<uint64_t> many(Changes::kMostKeys + 1);
  for (size_t i = 0; i < many.size(); ++i) many[i] = i;
  changes.add(1, many);
  EXPECT_EQ(changes.since(0, many), std::nullopt);
  EXPECT_EQ(changes.since(1, many), Indices{});
}

}  // namespace
}  // namespace corro::table
