#include "diagnosis/stacks.h"

#include <gtest/gtest.h>

namespace corro::diagnosis {
namespace {

/// As faulthandler writes it: the thread that got the signal is the current one.
std::string dump(int id, const std::string& last = "/me/train.py\", line 12 in step") {
  return "Thread 0x00007f" + std::to_string(id) +
         " (most recent call first):\n"
         "  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n"
         "  File \"/usr/lib/python3.11/queue.py\", line 171 in get\n"
         "\n"
         "Current thread 0x00007e" +
         std::to_string(id) + " (most recent call first):\n  File \"" + last +
         "\n  File \"/me/train.py\", line 40 in <module>\n";
}

constexpr const char* kSpied =
    "Process 12: python /me/train.py\n"
    "Python v3.11.2 (/usr/bin/python3.11)\n"
    "\n"
    "Thread 12 (active): \"MainThread\"\n"
    "    step (/me/train.py:12)\n"
    "    <module> (/me/train.py:40)\n"
    "Thread 13 (idle): \"Thread-1 (load)\"\n"
    "    wait (/usr/lib/python3.11/threading.py:320)\n"
    "    get (/usr/lib/python3.11/queue.py:171)\n";

constexpr const char* kBoth =
    "  main thread\n"
    "    /me/train.py:12 in step\n"
    "    /me/train.py:40 in <module>\n"
    "  thread\n"
    "    /usr/lib/python3.11/threading.py:320 in wait\n"
    "    /usr/lib/python3.11/queue.py:171 in get\n";

TEST(FormatStacks, RanksThatDoTheSameAreOne) {
  const std::vector<RankStacks> ranks = {
      {.rank = 0, .host = "", .text = dump(1), .missing = ""},
      {.rank = 1, .host = "", .text = dump(2), .missing = ""},
      {.rank = 2, .host = "", .text = dump(3, "/me/data.py\", line 3 in load"), .missing = ""},
      {.rank = 3, .host = "", .text = dump(4), .missing = ""}};
  const std::string text = format_stacks(ranks);
  EXPECT_EQ(text.find(std::string("ranks 0-1,3\n") + kBoth + "rank 2\n"), 0U) << text;
  EXPECT_NE(text.find("    /me/data.py:3 in load\n"), std::string::npos);
}

TEST(FormatStacks, WhatPySpyPrintsIsTheSame) {
  const std::vector<RankStacks> ranks = {{.rank = 0, .host = "a", .text = dump(1), .missing = ""},
                                         {.rank = 1, .host = "b", .text = kSpied, .missing = ""}};
  EXPECT_EQ(format_stacks(ranks), std::string("ranks 0-1 on a, b\n") + kBoth);
}

TEST(FormatStacks, SaysWhyThereIsNone) {
  const std::vector<RankStacks> ranks = {
      {.rank = 0, .host = "a", .text = "", .missing = "stopped by a signal"},
      {.rank = 1,
       .host = "a",
       .text = "garbage\n  File \"x\", line 3 in f",
       .missing = "has ended"},
      {.rank = 2, .host = "b", .text = "", .missing = "stopped by a signal"}};
  EXPECT_EQ(format_stacks(ranks),
            "ranks 0,2 on a, b: stopped by a signal\nrank 1 on a: has ended\n");
}

TEST(FormatStacks, EqualThreadsOfARankAreOne) {
  const std::string text =
      "Thread 0x2 (most recent call first):\n  File \"a.py\", line 1 in f\n"
      "Thread 0x3 (most recent call first):\n  File \"a.py\", line 1 in f\n"
      "Thread 0x4 (most recent call first):\n  <no Python frame>\n";
  const std::vector<RankStacks> ranks = {{.rank = 7, .host = "", .text = text, .missing = ""}};
  EXPECT_EQ(format_stacks(ranks),
            "rank 7\n  2 threads\n    a.py:1 in f\n  thread\n    no Python code\n");
}

TEST(ParseStacks, NothingOfForeignTextChangesATerminal) {
  const std::vector<RankStacks> ranks = {
      {.rank = 0, .host = "", .text = "Thread 1\n    \x1b[2J (x:y)\n", .missing = ""}};
  EXPECT_EQ(format_stacks(ranks).find('\x1b'), std::string::npos);
  EXPECT_TRUE(parse_stacks("").empty());
  EXPECT_EQ(parse_stacks("Thread \n    f ()\n    )\n     (:)").size(), 1U);
}

}  // namespace
}  // namespace corro::diagnosis
