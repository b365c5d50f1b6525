#include "transport/key_table.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace corro::transport {
namespace {

TEST(KeyTable, FindsWhatWasInsertedAndNothingElse) {
  KeyTable<int> table;
  EXPECT_EQ(table.find({{0, 1}, 2, 3}), nullptr);
  table.insert({{0, 1}, 2, 3}) = 7;
  ASSERT_NE(table.find({{0, 1}, 2, 3}), nullptr);
  EXPECT_EQ(*table.find({{0, 1}, 2, 3}), 7);
  EXPECT_EQ(table.find({{0, 1}, 2, 4}), nullptr);
  EXPECT_EQ(table.find({{0, 2}, 2, 3}), nullptr);
  EXPECT_THROW(table.insert({{0, 1}, 2, 3}), ContractError);
  table.erase({{0, 1}, 2, 4});
  table.erase({{0, 1}, 2, 3});
  EXPECT_EQ(table.find({{0, 1}, 2, 3}), nullptr);
  EXPECT_EQ(table.size(), 0U);
}

TEST(KeyTable, BehavesAsAMapUnderRandomCalls) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    KeyTable<uint64_t> table;
    std::map<MessageKey, uint64_t> model;
    for (int call = 0; call < 3'000; ++call) {
      // Few different keys: runs of collisions and gaps in the middle of them.
      const MessageKey key{{static_cast<uint32_t>(random() % 2), random() % 2},
                           random() % 10,
                           static_cast<uint32_t>(random() % 6)};
      if (random() % 2 == 0) {
        table.erase(key);
        model.erase(key);
      } else if (!model.contains(key)) {
        table.insert(key) = model[key] = random();
      }
      ASSERT_EQ(table.size(), model.size());
      const auto known = model.find(key);
      const uint64_t* value = table.find(key);
      ASSERT_EQ(value != nullptr, known != model.end());
      if (value != nullptr) {
        ASSERT_EQ(*value, known->second);
      }
    }
    for (const auto& [key, value] : model) {
      ASSERT_NE(table.find(key), nullptr);
      EXPECT_EQ(*table.find(key), value);
    }
  }
}

TEST(KeyTable, ErasesByPredicate) {
  KeyTable<int> table;
  for (uint32_t step = 0; step < 100; ++step) table.insert({{0, 1}, step % 2, step}) = 1;
  table.erase_if([](const MessageKey& key, int&) { return key.op == 0; });
  EXPECT_EQ(table.size(), 50U);
  for (uint32_t step = 0; step < 100; ++step) {
    EXPECT_EQ(table.find({{0, 1}, step % 2, step}) != nullptr, step % 2 == 1) << step;
  }
}

}  // namespace
}  // namespace corro::transport
