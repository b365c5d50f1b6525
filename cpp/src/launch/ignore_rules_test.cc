#include "launch/ignore_rules.h"

#include <gtest/gtest.h>

namespace corro::launch {
namespace {

TEST(FitsPattern, KnowsWhatGitKnows) {
  EXPECT_TRUE(fits_pattern("*.o", "main.o"));
  EXPECT_FALSE(fits_pattern("*.o", "src/main.o"));
  EXPECT_TRUE(fits_pattern("data-[0-9]?", "data-7x"));
  EXPECT_FALSE(fits_pattern("data-[!0-9]", "data-7"));
  EXPECT_TRUE(fits_pattern("a/**/b", "a/b"));
  EXPECT_TRUE(fits_pattern("a/**/b", "a/x/y/b"));
  EXPECT_FALSE(fits_pattern("a/**/b", "ab"));
  EXPECT_TRUE(fits_pattern("**/cache", "x/y/cache"));
  EXPECT_TRUE(fits_pattern("logs/**", "logs/a/b"));
  EXPECT_FALSE(fits_pattern("logs/**", "logs"));
  EXPECT_TRUE(fits_pattern("\\#odd", "#odd"));
  EXPECT_TRUE(fits_pattern("[a]", "a"));
  EXPECT_TRUE(fits_pattern("[]]", "]"));
  EXPECT_TRUE(fits_pattern("[a", "[a"));
  EXPECT_FALSE(fits_pattern("a*b", "a/b"));
}

TEST(IgnoreRules, LetTheLastRuleWin) {
  IgnoreRules rules;
  rules.add("# comment\n\n*.pt\n!best.pt\nbuild/\n/top\n trailing \n", "");
  EXPECT_TRUE(rules.ignores("x/last.pt", false));
  EXPECT_FALSE(rules.ignores("x/best.pt", false));
  EXPECT_TRUE(rules.ignores("x/build", true));
  EXPECT_FALSE(rules.ignores("x/build", false)) << "a file of this name is no folder";
  EXPECT_TRUE(rules.ignores("top", false));
  EXPECT_FALSE(rules.ignores("x/top", false));
  EXPECT_TRUE(rules.ignores(" trailing", false));
}

TEST(IgnoreRules, HoldBelowTheirOwnFolder) {
  IgnoreRules rules;
  rules.add("*.log", "");
  rules.add("!keep.log\n/only\nsub/*.txt\n", "a/");
  EXPECT_TRUE(rules.ignores("keep.log", false));
  EXPECT_FALSE(rules.ignores("a/b/keep.log", false));
  EXPECT_TRUE(rules.ignores("a/only", true));
  EXPECT_FALSE(rules.ignores("a/b/only", true));
  EXPECT_TRUE(rules.ignores("a/sub/x.txt", false));
  EXPECT_FALSE(rules.ignores("a/b/sub/x.txt", false));
}

}  // namespace
}  // namespace corro::launch
