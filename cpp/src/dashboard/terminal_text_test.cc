#include "dashboard/terminal_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::dashboard {
namespace {

using testing::ElementsAre;

TEST(TerminalText, NothingOfOthersMovesTheCursor) {
  EXPECT_EQ(printable("node\x1b[2Jone\r\n\tb\x7f"), "node?[2Jone???b?");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(printable("a\u009b2Jb"), "a?2Jb") << "CSI as one character";
  EXPECT_EQ(printable("gnp\u202Egpj"), "gnp?gpj") << "right to left";
  EXPECT_EQ(printable("größe 节点 🚀"), "größe 节点 🚀");
}

TEST(TerminalText, BytesThatAreNoUtf8AreReplacedOneByOne) {
  EXPECT_EQ(printable("\xff\xc3"), "??");
  EXPECT_EQ(printable("\xc0\xafx"), "??x") << "too long a form";
  EXPECT_EQ(printable("\xed\xa0\x80"), "???") << "half a pair";
  EXPECT_EQ(printable("\xf5\x80\x80\x80"), "????") << "above Unicode";
  EXPECT_EQ(printable("\xe2\x80"), "??") << "cut off";
}

TEST(TerminalText, WideCharactersTakeTwoColumnsAndAccentsNone) {
  EXPECT_EQ(width_of("node1"), 5U);
  EXPECT_EQ(width_of("● größe"), 7U);
  EXPECT_EQ(width_of("节点1"), 5U);
  EXPECT_EQ(width_of("🚀"), 2U);
  EXPECT_EQ(width_of("e\u0301"), 1U);
}

TEST(TerminalText, WhatIsTooWideIsCut) {
  EXPECT_EQ(cut("node1", 5), "node1");
  EXPECT_EQ(cut("node12", 5), "node…");
  EXPECT_EQ(cut("节点", 3), "节…");
  EXPECT_EQ(cut("节点", 2), "…") << "half a character has no room";
  EXPECT_EQ(cut("node", 0), "");
  EXPECT_EQ(padded("节点", 3), "节…");
  EXPECT_EQ(padded("节点", 2), "… ");
  EXPECT_EQ(padded("ab", 4), "ab  ");
}

TEST(TerminalText, LinesAreCutAtBlanks) {
  EXPECT_THAT(wrapped("rank 0 waits for rank 1", 12, 3), ElementsAre("rank 0 waits", "for rank 1"));
  EXPECT_THAT(wrapped("rank 0 waits for rank 1", 8, 2), ElementsAre("rank 0", "waits f…"));
  EXPECT_THAT(wrapped("abcdefgh", 3, 3), ElementsAre("abc", "def", "gh"));
  EXPECT_THAT(wrapped("节点", 1, 3), ElementsAre("…")) << "a terminal that is too narrow";
  EXPECT_THAT(wrapped("", 10, 3), ElementsAre(""));
}

}  // namespace
}  // namespace corro::dashboard
