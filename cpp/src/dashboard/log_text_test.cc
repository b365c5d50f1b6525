#include "dashboard/log_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::dashboard {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Seen {
  size_t at;
  uint64_t before;
  std::string piece;
};

std::vector<Seen> find_all(std::string_view text, std::string_view wanted) {
  std::vector<Seen> seen;
  find_lines(text, wanted, [&](const Found& one) {
    seen.push_back({one.at, one.before, std::string(one.piece)});
  });
  return seen;
}

TEST(LogText, HasNoSequencesOfATerminal) {
  EXPECT_EQ(clean("\x1b[1;31mred\x1b[0m"), "red");
  EXPECT_EQ(clean("\x1b]0;title\aafter"), "after");
  EXPECT_EQ(clean("\x1b]8;;http://x\x1b\\link"), "link");
  EXPECT_EQ(clean("\x1b(Bb\x1b"
                  "7c"),
            "bc");
  for (const char* cut : {"a\x1b", "a\x1b[", "a\x1b[1;", "a\x1b]0;tit", "a\x1b(", "a\x1b]0\x1b"})
    EXPECT_EQ(clean(cut), "a") << testing::PrintToString(cut);
}

TEST(LogText, ShowsControlCharactersByTheirPictures) {
  EXPECT_EQ(clean(std::string_view("a\0b\tc\x7f", 6)),
            "a\xE2\x90\x80"
            "b\tc\xE2\x90\xA1");
  EXPECT_EQ(clean("\x08"), "\xE2\x90\x88");
  EXPECT_EQ(clean("\xC3\xA4\xff"), "\xC3\xA4\xff") << "JSON replaces what is no UTF-8";
}

TEST(LogText, OfAProgressBarTheLastStateStands) {
  EXPECT_EQ(shown_line("10%\r50%\r100%"), "100%");
  EXPECT_EQ(shown_line("10%\r100%\r"), "100%") << "a line that ends with \\r\\n";
  EXPECT_EQ(shown_line("\r\r"), "");
}

TEST(LogText, CutsALongLine) {
  const std::string shown = shown_line(std::string(kMostLineBytes + 1, 'x'));
  EXPECT_THAT(shown, EndsWith("x \xE2\x80\xA6"));
  EXPECT_THAT(shown, SizeIs(kMostLineBytes + 4));
  EXPECT_EQ(shown_line(std::string(kMostLineBytes, 'x')), std::string(kMostLineBytes, 'x'));
}

TEST(LogText, IsCutIntoLines) {
  EXPECT_THAT(cut_lines("a\n\nb"), ElementsAre("a", "", "b"));
  EXPECT_THAT(cut_lines("a\n"), ElementsAre("a"));
  EXPECT_THAT(cut_lines(""), IsEmpty());
}

TEST(FindLines, FindsEachLineOnceWhateverTheSizeOfItsLetters) {
  const auto seen = find_all("Loss 1\nnothing\nthe loss, the LOSS\n", "lOsS");
  ASSERT_THAT(seen, SizeIs(2));
  EXPECT_EQ(seen[0].at, 0U);
  EXPECT_EQ(seen[0].before, 0U);
  EXPECT_EQ(seen[0].piece, "Loss 1");
  EXPECT_EQ(seen[1].at, 15U);
  EXPECT_EQ(seen[1].before, 2U);
  EXPECT_EQ(seen[1].piece, "the loss, the LOSS");
  EXPECT_THAT(find_all("abc", ""), IsEmpty());
  EXPECT_THAT(find_all("", "a"), IsEmpty());
  EXPECT_THAT(find_all("a.c", "abc"), IsEmpty()) << "a plain text";
}

TEST(FindLines, ShowsTheStateOfAProgressBarThatHasTheText) {
  const auto seen = find_all("x\n10% slow\r50% fast\r100%\n", "fast");
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].at, 2U);
  EXPECT_EQ(seen[0].piece, "50% fast");
}

TEST(FindLines, ShowsWhatStandsFarBehindInALongLine) {
  const auto seen = find_all(std::string(10 * kMostLineBytes, 'x') + "needle and more", "NEEDLE");
  ASSERT_THAT(seen, SizeIs(1));
  EXPECT_EQ(seen[0].at, 0U);
  EXPECT_LT(seen[0].piece.size(), kMostLineBytes);
  EXPECT_THAT(seen[0].piece, HasSubstr("needle and more"));
}

TEST(LineIndex, CountsTheSameHoweverTheBytesAreCut) {
  std::string text;
  while (text.size() < 3 * LineIndex::kMarkBytes) text += "line\n";
  for (const size_t block : {text.size(), size_t{100'000}, size_t{64} << 10U}) {
    LineIndex index;
    for (size_t at = 0; at < text.size(); at += block)
      index.feed(std::string_view(text).substr(at, block));
    EXPECT_EQ(index.counted(), text.size());
    const LineIndex::Mark mark = index.mark_before(2 * LineIndex::kMarkBytes + 7);
    EXPECT_EQ(mark.at, 2 * LineIndex::kMarkBytes);
    EXPECT_EQ(mark.lines, mark.at / 5);
    EXPECT_EQ(index.mark_before(text.size()).at, 3 * LineIndex::kMarkBytes);
    EXPECT_EQ(index.mark_before(5).lines, 0U);
  }
}

}  // namespace
}  // namespace corro::dashboard
