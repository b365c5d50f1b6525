#include "table/service/changes_since_saves.h"

#include <gtest/gtest.h>

#include <array>

namespace corro::table {
namespace {

using Keys = std::array<uint64_t, 1>;

constexpr uint64_t kRows = 1000;

/// Keys from 1 to 9 that are there.
std::string found(const std::shared_ptr<const ChangedKeys>& changed) {
  if (changed == nullptr) return "all";
  std::string text;
  for (uint64_t key = 1; key < 10; ++key)
    if (changed->contains(key)) text += std::to_string(key);
  return text;
}

TEST(ChangesSinceSaves, HaveWhatHasChangedSinceTheBase) {
  ChangesSinceSaves changes;
  changes.note(Keys{1});
  EXPECT_EQ(found(changes.begin_save(10, kRows, {})), "all");
  changes.note(Keys{2});
  EXPECT_EQ(found(changes.begin_save(20, kRows, 10)), "2");
  changes.note(Keys{3});
  EXPECT_EQ(found(changes.begin_save(30, kRows, 20)), "3");
  EXPECT_EQ(found(changes.begin_save(40, kRows, 30)), "");
}

TEST(ChangesSinceSaves, BuildOnAnOlderOneWhereTheLastHasFailed) {
  ChangesSinceSaves changes;
  (void)changes.begin_save(10, kRows, {});
  changes.note(Keys{1});
  (void)changes.begin_save(20, kRows, 10);
  changes.note(Keys{2});
  EXPECT_EQ(found(changes.begin_save(20, kRows, 10)), "12") << "a save that is tried once more";
  changes.note(Keys{3});
  EXPECT_EQ(found(changes.begin_save(30, kRows, 10)), "123");
  EXPECT_EQ(found(changes.begin_save(30, kRows, 10)), "123") << "of the same step";
  EXPECT_EQ(found(changes.begin_save(40, kRows, 30)), "");
}

TEST(ChangesSinceSaves, OfABaseThatIsNotKnownHaveAllRows) {
  ChangesSinceSaves changes;
  EXPECT_EQ(found(changes.begin_save(20, kRows, 10)), "all") << "the server came after step 10";
  changes.note(Keys{1});
  EXPECT_EQ(found(changes.begin_save(30, kRows, 20)), "1");
  changes.stop();
  changes.note(Keys{2});
  EXPECT_EQ(found(changes.begin_save(40, kRows, 30)), "all") << "rows were others";
}

TEST(ChangesSinceSaves, KeepFewStretches) {
  ChangesSinceSaves changes;
  for (uint64_t step = 1; step <= 9; ++step) {
    (void)changes.begin_save(step, kRows, {});
    changes.note(Keys{step});
  }
  EXPECT_EQ(found(changes.begin_save(10, kRows, 7)), "789");
  EXPECT_EQ(found(changes.begin_save(11, kRows, 2)), "all");
}

}  // namespace
}  // namespace corro::table
