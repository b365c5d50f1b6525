#include "kube/user/progress_line.h"

#include <gtest/gtest.h>

namespace corro::kube {
namespace {

TEST(ProgressLine, IsAsItIsWhereItFits) {
  ProgressLine line;
  EXPECT_EQ(line.fit(std::string(149, 'x'), 150).status, std::string(149, 'x'));
  EXPECT_EQ(line.fit("größe", 6).status, "größe");
  EXPECT_EQ(line.fit("größe", 6).whole, "");
}

TEST(ProgressLine, IsCutToTheTerminalAndSaidWholeOnce) {
  ProgressLine line;
  const std::string reason = "quota few: tried again at 10:00:20";
  ProgressLine::Fitted shown = line.fit(reason, 20);
  EXPECT_EQ(shown.status, "quota few: tried...");
  EXPECT_EQ(shown.whole, reason);
  EXPECT_EQ(line.fit("quota few: tried again at 10:00:30", 20).whole, "") << "numbers alone differ";
  EXPECT_EQ(line.fit("2 of 3", 20).whole, "");
  EXPECT_EQ(line.fit(reason, 20).whole, "");
  shown = line.fit("another reason, as long", 20);
  EXPECT_EQ(shown.whole, "another reason, as long");
}

TEST(ProgressLine, IsNotCutWithinACharacter) {
  ProgressLine line;
  EXPECT_EQ(line.fit("ääääääää", 8).status, "ääää...");
  EXPECT_EQ(line.fit("ääääääää", 2).status, "...");
}

}  // namespace
}  // namespace corro::kube
