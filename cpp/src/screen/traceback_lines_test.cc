#include "screen/traceback_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "diagnosis/traceback.h"

namespace corro::screen {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

Time after(int ms) { return {milliseconds(ms)}; }

std::vector<std::string> texts_of(const std::vector<Passage>& passages) {
  std::vector<std::string> texts;
  for (const Passage& passage : passages) texts.push_back(passage.text);
  return texts;
}

/// The passages of a whole text.
std::vector<std::string> cut(const std::string& text) {
  TracebackLines lines;
  std::vector<std::string> texts;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    for (auto& passage : lines.add(1, io::Output::kErr, line, after(0)))
      texts.push_back(passage.text);
  }
  for (auto& passage : lines.end(1, io::Output::kErr)) texts.push_back(passage.text);
  return texts;
}

constexpr const char* kOne =
    "Traceback (most recent call last):\n"
    "  File \"a.py\", line 1, in f\n"
    "    x[0]\n"
    "    ~^^^\n"
    "IndexError: list index out of range";

TEST(TracebackLines, ATracebackIsOnePassageAndOtherLinesAreTheirOwn) {
  EXPECT_THAT(cut(std::string("before\n\n") + kOne + "\n\nafter\n"),
              ElementsAre("before", kOne, "after"));
}

TEST(TracebackLines, TheLinesOfAMessageBelongToIt) {
  const std::string whole = std::string(kOne) + "\n  expected (3, 4)\n\tor more\nsee the manual";
  EXPECT_THAT(cut(whole), ElementsAre(whole));
  EXPECT_THAT(cut(whole + "\n\nafter\n"), ElementsAre(whole, "after"));
  EXPECT_THAT(cut(whole + "\n" + whole), ElementsAre(whole, whole));
  const std::string chain =
      whole + "\n\nDuring handling of the above exception, another exception occurred:\n\n" + whole;
  EXPECT_THAT(cut(chain + "\n\nafter\n"), ElementsAre(chain, "after"));
}

TEST(TracebackLines, TorchsRankInFrontOfEachLineIsLeftOut) {
  for (const char* prefix : {"[rank1]: ", "[rank1]: [rank1]: "}) {
    std::istringstream lines(kOne);
    std::string text;
    for (std::string line; std::getline(lines, line);) text += prefix + line + "\n";
    EXPECT_THAT(cut(text + "[rank1]: \n[rank1]:[W1122 10:00:00] leaked\n[rank1]: mine\n"),
                ElementsAre(kOne, "[rank1]:[W1122 10:00:00] leaked", "[rank1]: mine"));
  }
}

TEST(TracebackLines, AnErrorOfAnotherKindEndsAMessage) {
  EXPECT_THAT(cut(std::string(kOne) + "\nnote\nException ignored in: <x>\n" + kOne),
              ElementsAre(std::string(kOne) + "\nnote", "Exception ignored in: <x>", kOne));
}

TEST(TracebackLines, OutputBehindATracebackIsNeitherLostNorKept) {
  std::string output;
  for (size_t i = 0; i < diagnosis::kMaxMessageLines; ++i) output += "\nstep " + std::to_string(i);
  EXPECT_THAT(cut(kOne + output + "\na\n  b\n"), ElementsAre(kOne + output, "a", "  b"));
}

TEST(TracebackLines, APauseEndsAMessage) {
  TracebackLines lines;
  std::istringstream stream(kOne + std::string("\nsee the manual"));
  for (std::string line; std::getline(stream, line);) {
    EXPECT_THAT(lines.add(1, io::Output::kErr, line, after(0)), IsEmpty());
  }
  EXPECT_THAT(texts_of(lines.due(after(500))), ElementsAre(kOne + std::string("\nsee the manual")));
  EXPECT_THAT(texts_of(lines.add(1, io::Output::kErr, "after", after(501))), ElementsAre("after"));
}

TEST(TracebackLines, AChainIsOnePassage) {
  for (const char* link :
       {"\n\nDuring handling of the above exception, another exception occurred:",
        "\n\nThe above exception was the direct cause of the following "
        "exception:"}) {
    const std::string chain = std::string(kOne) + link + "\n\n" + kOne;
    EXPECT_THAT(cut(chain + "\n\nretrying\n"), ElementsAre(chain, "retrying"));
  }
}

TEST(TracebackLines, TwoTracebacksAreTwoPassages) {
  EXPECT_THAT(cut(std::string(kOne) + "\n" + kOne), ElementsAre(kOne, kOne));
}

TEST(TracebackLines, AnExceptionGroupIsOnePassage) {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"g.py\", line 1, in <module>\n"
      "  | ExceptionGroup: two (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | ValueError: a\n"
      "    +------------------------------------";
  EXPECT_THAT(cut(group + "\nafter\n"), ElementsAre(group, "after"));
}

TEST(TracebackLines, StreamsDoNotMix) {
  TracebackLines lines;
  EXPECT_THAT(lines.add(1, io::Output::kErr, "Traceback (most recent call last):", after(0)),
              IsEmpty());
  EXPECT_THAT(texts_of(lines.add(2, io::Output::kErr, "x", after(0))), ElementsAre("x"));
  EXPECT_THAT(texts_of(lines.add(1, io::Output::kOut, "y", after(0))), ElementsAre("y"));
}

TEST(TracebackLines, WhatIsCutOffIsGivenBackInTime) {
  TracebackLines lines;
  EXPECT_EQ(lines.next_due(), Time::never());
  EXPECT_THAT(lines.add(1, io::Output::kErr, "Traceback (most recent call last):", after(5)),
              IsEmpty());
  EXPECT_EQ(lines.next_due(), after(505));
  EXPECT_THAT(lines.due(after(504)), IsEmpty());
  EXPECT_THAT(texts_of(lines.due(after(505))), ElementsAre("Traceback (most recent call last):"));
  EXPECT_THAT(lines.end(1, io::Output::kErr), IsEmpty());
}

TEST(TracebackLines, OneWithoutAnEndIsNotKeptForEver) {
  TracebackLines lines;
  const std::string line = "  " + std::string(1000, 'x');
  size_t given_back =
      lines.add(1, io::Output::kErr, "Traceback (most recent call last):", after(0)).size();
  for (int i = 0; i < 300; ++i) given_back += lines.add(1, io::Output::kErr, line, after(0)).size();
  EXPECT_GE(given_back, 30U);
}

}  // namespace
}  // namespace corro::screen
