#include "screen/prefixed_lines.h"

#include <gtest/gtest.h>

#include "screen/lines.h"

namespace corro::screen {
namespace {

std::string prefix() { return "p:"; }

TEST(PrefixedLines, CutsLinesHoweverTheyArrive) {
  PrefixedLines lines;
  EXPECT_EQ(lines.feed("ab", prefix), "");
  EXPECT_EQ(lines.feed("c\nd\r\n\ne", prefix), "p:abc\np:d\r\np:\n");
  EXPECT_EQ(lines.finish(prefix), "p:e");
  EXPECT_EQ(lines.finish(prefix), "");
}

TEST(PrefixedLines, AProgressBarStaysOne) {
  PrefixedLines lines;
  EXPECT_EQ(lines.feed("10%\r20%\r", prefix), "p:10%\rp:20%\r");
  EXPECT_EQ(lines.feed("\n", prefix), "\n") << "the end of the same line, which has its prefix";
  EXPECT_EQ(lines.feed("\n", prefix), "p:\n");
}

TEST(PrefixedLines, CharactersOfSeveralBytesStayWhole) {
  PrefixedLines lines;
  EXPECT_EQ(lines.feed("\xe2\x82", prefix), "");
  EXPECT_EQ(lines.feed("\xac\n", prefix), "p:\xe2\x82\xac\n");
}

TEST(PrefixedLines, AHugeLineDoesNotWaitAndHasOnePrefix) {
  PrefixedLines lines;
  const std::string huge(kMaxLineBytes + 1, 'x');
  EXPECT_EQ(lines.feed(huge, prefix), "p:" + huge);
  EXPECT_EQ(lines.feed("end\nnext\n", prefix), "end\np:next\n");
}

}  // namespace
}  // namespace corro::screen
