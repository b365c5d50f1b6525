// What the two sides refuse, report and give up; how they work together is in named_ops_test.cc.
#include "named/named_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "named/named_negotiator.h"
#include "named/named_test_entry.h"

namespace corro::named {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Bytes ready(std::vector<NamedRef> refs, uint32_t mode = 0) {
  return encode(Announcement{.mode = mode, .ready = std::move(refs)});
}
NamedRef full(const NamedEntry& entry) { return {.cached = NamedRef::kNone, .entry = entry}; }

Decision run_of(const std::vector<NamedEntry>& entries) {
  Decision decision;
  for (const NamedEntry& each : entries) decision.run.push_back(full(each));
  return decision;
}

TEST(NamedQueue, RefusesANameThatIsEmptyLongOrPending) {
  NamedQueue queue;
  EXPECT_EQ(queue.submit(entry(""), 1, {}).code(), Code::kInvalidArgument);
  EXPECT_EQ(queue.submit(entry(std::string(513, 'x')), 1, {}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  const Status again = queue.submit(entry("a"), 2, {});
  EXPECT_EQ(again.code(), Code::kAlreadyExists);
  EXPECT_THAT(again.message(), HasSubstr("\"a\""));
}

TEST(NamedQueue, SaysNothingWhenNothingWasSubmitted) {
  NamedQueue queue;
  EXPECT_FALSE(queue.take_announcement());
  EXPECT_EQ(queue.next_check(), Time::never());
  Negotiator negotiator({0, 1});
  EXPECT_FALSE(negotiator.take_decision());
}

TEST(NamedQueue, GathersSubmissionsIntoOneAnnouncement) {
  NamedQueue queue;
  for (const char* name : {"a", "b", "c"}) ASSERT_TRUE(queue.submit(entry(name), 0, {}).ok());
  const auto message = decode_announcement(*queue.take_announcement());
  ASSERT_TRUE(message.ok());
  EXPECT_EQ(message->ready.size(), 3U);
  EXPECT_FALSE(queue.take_announcement());
}

TEST(NamedQueue, CutsWhatDoesNotFitIntoAMessage) {
  NamedQueue queue;
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(queue.submit(entry(std::string(500, 'x') + std::to_string(i)), 0, {}).ok());
  }
  size_t announced = 0;
  while (const auto bytes = queue.take_announcement()) {
    EXPECT_LE(bytes->size(), size_t{64} << 10U);
    announced += decode_announcement(*bytes)->ready.size();
  }
  EXPECT_EQ(announced, 500U);
}

TEST(NamedQueue, CutsShortNamesIntoMessagesByTheirBytesOnTheWire) {
  for (const char* codec : {"", "bf16", "a codec of the longest name 4567"}) {
    NamedQueue queue;
    Negotiator negotiator({0});
    for (int i = 0; i < 3000; ++i) {
      NamedEntry each = entry("n" + std::to_string(i));
      each.op.codec = codec;
      ASSERT_TRUE(queue.submit(each, static_cast<uint64_t>(i), {}).ok());
    }
    while (const auto bytes = queue.take_announcement()) {
      EXPECT_LE(bytes->size(), kMaxNamedMessage);
      ASSERT_TRUE(negotiator.receive(0, *bytes).ok());
    }
    size_t decisions = 0;
    while (const auto bytes = negotiator.take_decision()) {
      ++decisions;
      EXPECT_LE(bytes->size(), kMaxNamedMessage);
      ASSERT_TRUE(queue.receive(*bytes).ok());
    }
    EXPECT_GT(decisions, 1U);
    EXPECT_FALSE(queue.has_pending());
  }
}

TEST(Negotiator, NamesAsManyMissingRanksAsAMessageHolds) {
  std::vector<int32_t> members(20'000);
  std::iota(members.begin(), members.end(), 0);
  Negotiator negotiator(members);
  ASSERT_TRUE(negotiator.receive(1, ready({full(entry("a"))})).ok());
  const Announcement question{.kind = Announcement::Kind::kWaiting, .ready = {full(entry("a"))}};
  ASSERT_TRUE(negotiator.receive(1, encode(question)).ok());
  const auto bytes = negotiator.take_decision();
  ASSERT_TRUE(bytes);
  EXPECT_LE(bytes->size(), kMaxNamedMessage);
  EXPECT_EQ(decode_decision(*bytes)->missing_more, 19'999U - kMostMissing);
}

TEST(NamedQueue, AnnouncesByNumberWhatHasRunBefore) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a name of some length"), 7, {}).ok());
  const size_t first = queue.take_announcement()->size();
  ASSERT_TRUE(queue.receive(encode(run_of({entry("a name of some length")}))).ok());
  EXPECT_EQ(queue.take_start()->parts[0].token, 7U);
  ASSERT_TRUE(queue.submit(entry("a name of some length"), 8, {}).ok());
  EXPECT_LT(queue.take_announcement()->size(), first / 3);
}

TEST(NamedQueue, RefusesDecisionsThatMakeNoSense) {
  const auto refused = [](const Bytes& decision, bool announced = false) {
    NamedQueue queue;
    if (announced) {
      ASSERT_TRUE(queue.submit(entry("a"), 0, {}).ok());
      (void)queue.take_announcement();
    }
    EXPECT_FALSE(queue.receive(decision).ok());
    EXPECT_FALSE(queue.take_start());
  };
  refused({});
  refused(Bytes(10, std::byte{0xff}));
  refused(encode(run_of({entry("a")})));
  refused(encode(run_of({entry("a", 17)})), true);
  Decision decision = run_of({entry("a")});
  decision.mode = 2;
  refused(encode(decision), true);
  decision = Decision();
  decision.run = {{.cached = 3}};
  refused(encode(decision), true);
  for (const auto kind : {Decision::Kind::kEngage, Decision::Kind::kFreeze, Decision::Kind::kCut}) {
    Decision change;
    change.kind = kind;
    change.mode = kind == Decision::Kind::kFreeze ? 0 : 1;
    refused(encode(change), true);
  }
  Decision fail;
  fail.kind = Decision::Kind::kFail;
  fail.name = "a";
  refused(encode(fail));
}

TEST(NamedQueue, RefusesTheSameNameTwiceInARun) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 0, {}).ok());
  (void)queue.take_announcement();
  EXPECT_FALSE(queue.receive(encode(run_of({entry("a"), entry("a")}))).ok());
}

TEST(NamedQueue, RefusesAPlanItDidNotSubmitTwiceInOneOrder) {
  NamedQueue queue;
  Decision propose;
  propose.kind = Decision::Kind::kPropose;
  propose.plan = 1;
  propose.segments = {{0}};
  ASSERT_TRUE(queue.receive(encode(propose)).ok());
  const auto answer = decode_announcement(*queue.take_announcement());
  EXPECT_EQ(answer->kind, Announcement::Kind::kRefuse);
}

TEST(NamedQueue, WithdrawnBeforeItWasAnnouncedIsForgotten) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  queue.withdraw("a", 1);
  EXPECT_FALSE(queue.take_announcement());
  EXPECT_FALSE(queue.has_pending());
}

TEST(NamedQueue, WithdrawnAndRunByThePeersCancelsTheOperation) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  ASSERT_TRUE(queue.submit(entry("b"), 2, {}).ok());
  (void)queue.take_announcement();
  queue.withdraw("a", 99);
  queue.withdraw("a", 1);
  EXPECT_TRUE(queue.submit(entry("a", 17), 3, {}).ok())
      << "it waits for the end of what was given up";
  ASSERT_TRUE(queue.receive(encode(run_of({entry("a"), entry("b")}))).ok());
  EXPECT_FALSE(queue.take_start());
  const auto failure = queue.take_failure();
  ASSERT_TRUE(failure);
  EXPECT_THAT(failure->tokens, ElementsAre(2));
  EXPECT_EQ(failure->cancelled, 0U);
  ASSERT_TRUE(queue.submit(entry("b"), 4, {}).ok());
  while (queue.take_announcement()) {
  }
  ASSERT_TRUE(queue.receive(encode(run_of({entry("b")}))).ok());
  EXPECT_EQ(queue.take_start()->op, 1U) << "the cancelled one has used its id";
}

TEST(NamedQueue, WithdrawnAndSubmittedAgainRunsOnce) {
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  (void)queue.take_announcement();
  queue.withdraw("a", 1);
  ASSERT_TRUE(queue.submit(entry("a"), 2, {}).ok());
  EXPECT_EQ(decode_announcement(*queue.take_announcement())->kind, Announcement::Kind::kWithdraw);
  EXPECT_FALSE(queue.take_announcement()) << "it is announced until the leader takes it back";
  ASSERT_TRUE(queue.receive(encode(run_of({entry("a")}))).ok());
  EXPECT_EQ(queue.take_start()->parts[0].token, 2U);
}

TEST(Negotiator, RunsWhatEveryoneHasAnnouncedAndNothingElse) {
  Negotiator negotiator({0, 1});
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("a")), full(entry("b"))})).ok());
  EXPECT_FALSE(negotiator.take_decision());
  ASSERT_TRUE(negotiator.receive(1, ready({full(entry("b"))})).ok());
  const auto decision = decode_decision(*negotiator.take_decision());
  ASSERT_EQ(decision->run.size(), 1U);
  EXPECT_EQ(decision->run[0].entry.name, "b");
  EXPECT_FALSE(negotiator.take_decision());
}

TEST(Negotiator, RefusesWhatBreaksTheProtocolAndNamesTheRank) {
  Negotiator negotiator({10, 11});
  ASSERT_TRUE(negotiator.receive(1, ready({full(entry("a"))})).ok());
  EXPECT_THAT(negotiator.receive(1, ready({full(entry("a"))})).message(),
              AllOf(HasSubstr("rank 11"), HasSubstr("twice")));
  EXPECT_THAT(negotiator.receive(1, ready({}, 2)).message(), HasSubstr("ahead"));
  EXPECT_THAT(negotiator.receive(1, ready({{.cached = 5}})).message(), HasSubstr("number 5"));
  EXPECT_THAT(negotiator.receive(1, Bytes(3)).message(), HasSubstr("malformed"));
  EXPECT_FALSE(
      negotiator.receive(1, encode(Announcement{.kind = Announcement::Kind::kFrozen})).ok());
}

/// What the leader answers to a question.
Result<Decision> answer(Negotiator& negotiator, NamedQueue& queue, const std::string& name) {
  queue.ask(name);
  CORRO_TRY(negotiator.receive(1, *queue.take_announcement()));
  const auto bytes = negotiator.take_decision();
  CORRO_CHECK(bytes.has_value());
  CORRO_TRY(queue.receive(*bytes));
  return decode_decision(*bytes);
}

TEST(Negotiator, TellsWhoIsMissingWhenAsked) {
  Negotiator negotiator({10, 11, 12});
  NamedQueue queue;
  ASSERT_TRUE(queue.submit(entry("a"), 0, {}).ok());
  queue.ask("a");
  const auto announced = queue.take_announcement();
  EXPECT_FALSE(queue.take_announcement()) << "what has not been announced is not asked for";
  ASSERT_TRUE(negotiator.receive(1, *announced).ok());
  EXPECT_FALSE(negotiator.take_decision());
  EXPECT_EQ(queue.describe("a"), "") << "nobody has said anything";

  EXPECT_THAT(answer(negotiator, queue, "a")->missing, ElementsAre(10, 12));
  EXPECT_THAT(queue.describe("a"), HasSubstr("rank 10, 12"));
  EXPECT_THAT(queue.missing("a"), ElementsAre(10, 12));

  for (const int32_t rank : {0, 2}) {
    ASSERT_TRUE(negotiator.receive(rank, ready({full(entry("a"))})).ok());
  }
  EXPECT_THAT(answer(negotiator, queue, "a")->missing, IsEmpty());
  EXPECT_THAT(queue.describe("a"), HasSubstr("every rank"));
}

TEST(Negotiator, TakesBackWhatWasGivenUp) {
  Negotiator negotiator({10, 11});
  NamedQueue queue({.rank = 11});
  const auto deliver = [&] {
    while (const auto bytes = queue.take_announcement()) {
      ASSERT_TRUE(negotiator.receive(1, *bytes).ok());
    }
    while (const auto bytes = negotiator.take_decision()) ASSERT_TRUE(queue.receive(*bytes).ok());
  };
  ASSERT_TRUE(queue.submit(entry("a"), 1, {}).ok());
  deliver();
  queue.withdraw("a", 1);
  EXPECT_TRUE(queue.has_pending()) << "it may have been decided to run";
  deliver();
  EXPECT_FALSE(queue.has_pending());

  // Rank 10 alone is ready now.
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("a"))})).ok());
  EXPECT_FALSE(negotiator.take_decision());
  ASSERT_TRUE(queue.submit(entry("a", 17), 2, {}).ok()) << "another one may have the name";
  queue.withdraw("a", 2);

  // Given up and submitted again before the leader has heard of it.
  ASSERT_TRUE(queue.submit(entry("a"), 3, {}).ok());
  const auto announced = queue.take_announcement();
  queue.withdraw("a", 3);
  ASSERT_TRUE(queue.submit(entry("a"), 4, {}).ok());
  ASSERT_TRUE(negotiator.receive(1, *announced).ok());
  deliver();  // It is taken back,
  deliver();  // and announced again.
  const auto start = queue.take_start();
  ASSERT_TRUE(start);
  EXPECT_EQ(start->parts[0].token, 4U);
  EXPECT_FALSE(queue.has_pending());
}

/// What was given up is not compared with, and does not run: not the first submission of a name,
/// not one that was complete and waited for room.
TEST(Negotiator, ForgetsTheShapeThatWasGivenUp) {
  const auto withdraw = [](const NamedEntry& given_up) {
    return encode(Announcement{.kind = Announcement::Kind::kWithdraw, .ready = {full(given_up)}});
  };
  Negotiator negotiator({10, 11, 12});
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("a", 4))})).ok());
  ASSERT_TRUE(negotiator.receive(1, ready({full(entry("a", 5))})).ok());
  ASSERT_TRUE(negotiator.receive(0, withdraw(entry("a", 4))).ok());
  EXPECT_EQ(decode_decision(*negotiator.take_decision())->kind, Decision::Kind::kWithdrawn);
  ASSERT_TRUE(negotiator.receive(2, ready({full(entry("a", 5))})).ok());
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("a", 5))})).ok());
  EXPECT_FALSE(negotiator.take_decision(false)) << "there is no room, and nothing has failed";

  ASSERT_TRUE(negotiator.receive(2, withdraw(entry("a", 5))).ok());
  EXPECT_EQ(decode_decision(*negotiator.take_decision())->kind, Decision::Kind::kWithdrawn);
  EXPECT_FALSE(negotiator.take_decision()) << "one rank has given it up";
  ASSERT_TRUE(negotiator.receive(2, ready({full(entry("a", 6))})).ok());
  const auto failed = decode_decision(*negotiator.take_decision());
  EXPECT_EQ(failed->kind, Decision::Kind::kFail);
  EXPECT_EQ(failed->rank, 12);
}

TEST(Negotiator, SaysNothingOfNamesItDoesNotKnow) {
  Negotiator negotiator({0, 1});
  const Announcement question{.kind = Announcement::Kind::kWaiting, .ready = {full(entry("a"))}};
  ASSERT_TRUE(negotiator.receive(1, encode(question)).ok());
  EXPECT_FALSE(negotiator.take_decision());
}

TEST(Negotiator, HoldsRunsBackWhileThereIsNoRoom) {
  Negotiator negotiator({0});
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("a"))})).ok());
  EXPECT_FALSE(negotiator.take_decision(false));
  ASSERT_TRUE(negotiator.receive(0, ready({full(entry("b"))})).ok());
  EXPECT_EQ(decode_decision(*negotiator.take_decision())->run.size(), 2U);
}

}  // namespace
}  // namespace corro::named
