#include "kube/client/log_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::kube {
namespace {

using std::chrono::seconds;

struct Written {
  std::string time;
  std::string text;
};
/// Two of one time, some out of order, an empty one.
const std::vector<Written> kLog = {
    {"2026-11-24T20:15:04.000000001Z", "one\n"}, {"2026-11-24T20:15:04.000000002Z", "two\n"},
    {"2026-11-24T20:15:04.9Z", "three\n"},       {"2026-11-24T20:15:05.1Z", "four\n"},
    {"2026-11-24T20:15:04.95Z", "five\n"},       {"2026-11-24T20:15:05.1Z", "\n"},
    {"2026-11-24T20:15:07Z", "seven\n"},         {"2026-11-24T21:15:08.5+01:00", "eight\n"},
};

/// The bytes that a server sends of the log: whole seconds count.
std::string sent_since(std::optional<std::chrono::sys_seconds> since, size_t skipped = 0) {
  std::string text;
  for (size_t i = skipped; i < kLog.size(); ++i) {
    const auto time = parse_rfc3339(kLog[i].time);
    if (!since || *time >= *since) text += kLog[i].time + " " + kLog[i].text;
  }
  return text;
}

std::string texts_from(size_t first) {
  std::string texts;
  for (size_t i = first; i < kLog.size(); ++i) texts += kLog[i].text;
  return texts;
}

/// The text that a receiver has got.
struct Received {
  std::string text;
  void take(LogLines& lines, std::string_view piece) {
    const Status status = lines.feed(piece, [this](std::string_view bytes) {
      text += bytes;
      return Status();
    });
    EXPECT_TRUE(status.ok());
  }
};

TEST(LogLines, LoseTheirTimesHoweverTheyAreCut) {
  const std::string whole = sent_since({});
  for (const size_t bytes : {size_t{1}, size_t{3}, size_t{50}, whole.size()}) {
    LogLines lines(false);
    Received received;
    lines.begin();
    for (size_t i = 0; i < whole.size(); i += bytes) received.take(lines, whole.substr(i, bytes));
    EXPECT_EQ(received.text, texts_from(0));
  }
}

TEST(LogLines, AreGivenOnceWhereverTheStreamsWereCut) {
  const std::string whole = sent_since({});
  for (size_t first = 0; first <= whole.size(); ++first) {
    for (const size_t second : {size_t{0}, size_t{40}, size_t{90}, size_t{200}}) {
      LogLines lines(false);
      Received received;
      lines.begin();
      received.take(lines, whole.substr(0, first));
      const std::string next = sent_since(lines.since());
      lines.begin();
      received.take(lines, next.substr(0, second));
      const std::string last = sent_since(lines.since());
      lines.begin();
      received.take(lines, last);
      EXPECT_EQ(received.text, texts_from(0)) << first << " " << second;
    }
  }
}

TEST(LogLines, AskFromASecondBeforeTheNewest) {
  LogLines lines(false);
  Received received;
  lines.begin();
  EXPECT_FALSE(lines.since().has_value());
  received.take(lines, "2026-11-24T20:15:04.5Z a\n2026-11-24T20:15:03.5Z b\n");
  EXPECT_EQ(*lines.since(), *parse_rfc3339("2026-11-24T20:15:03Z"));
}

TEST(LogLines, OfATailHaveNoOlderOnesAfterACut) {
  LogLines lines(true);
  Received received;
  lines.begin();
  const std::string tail = sent_since({}, 2);
  received.take(lines, tail.substr(0, 60));
  lines.begin();
  received.take(lines, sent_since(lines.since()));
  EXPECT_EQ(received.text, texts_from(2));
}

TEST(LogLines, OfAServerThatIgnoresTheTimeAreGivenOnce) {
  LogLines lines(false);
  Received received;
  for (int i = 0; i < 3; ++i) {
    lines.begin();
    received.take(lines, sent_since({}));
  }
  EXPECT_EQ(received.text, texts_from(0));
}

TEST(LogLines, WithoutATimeAreGivenAsTheyAre) {
  LogLines lines(false);
  Received received;
  lines.begin();
  const std::string long_word(100, 'x');
  received.take(lines, "failed to watch\n\n" + long_word + "\n2026-11-24T20:15:04Z a\nb\n");
  EXPECT_EQ(received.text, "failed to watch\n\n" + long_word + "\na\nb\n");
  // The rest of a line whose beginning is older than the second that was asked for.
  lines.begin();
  received.take(lines, "rest\n2026-11-24T20:15:04Z a\n2026-11-24T20:15:05Z c\n");
  EXPECT_EQ(received.text, "failed to watch\n\n" + long_word + "\na\nb\nc\n");
}

TEST(LogLines, ThatWereCutAndNeverComeAgainAreEnded) {
  LogLines lines(false);
  Received received;
  lines.begin();
  received.take(lines, "2026-11-24T20:15:04Z hal");
  lines.begin();
  received.take(lines, "2026-11-24T20:15:05Z new\n");
  EXPECT_EQ(received.text, "hal\nnew\n");
}

TEST(LogLines, KeepOnlyTheTimesOfTwoSeconds) {
  LogLines lines(false);
  Received received;
  lines.begin();
  for (int i = 0; i < 70000; ++i) {
    received.take(lines, fmt::format("2026-11-24T20:15:04.{:06}Z a\n", i));
  }
  // The oldest 4 464 were forgotten, and come twice.
  lines.begin();
  received.text.clear();
  received.take(lines, "2026-11-24T20:15:04.004463Z b\n2026-11-24T20:15:04.004464Z c\n");
  EXPECT_EQ(received.text, "b\n");
}

TEST(LogLines, EndWithTheFailureOfTheReceiver) {
  LogLines lines(false);
  lines.begin();
  const Status status = lines.feed("2026-11-24T20:15:04Z a\n", [](std::string_view /*bytes*/) {
    return Status(Code::kAborted, "enough");
  });
  EXPECT_EQ(status.message(), "enough");
}

}  // namespace
}  // namespace corro::kube
