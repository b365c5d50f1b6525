// A closing round on each member: votes, verdicts, and who may say what when the decider is lost.
#include "runtime/closing_round.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace corro::runtime {
namespace {

using Kind = ClosingRound::Verdict::Kind;
constexpr SignatureBits kCall{.call = 7, .shape = 0, .extras = 0};
constexpr SignatureBits kOther{.call = 8, .shape = 0, .extras = 0};

std::optional<Kind> verdict_of(ClosingRound& round, uint64_t op) {
  const auto verdict = round.take_verdict();
  if (!verdict) return std::nullopt;
  EXPECT_EQ(verdict->op, op);
  return verdict->kind;
}

TEST(ClosingRound, CommitsOnceEveryMemberHasVoted) {
  ClosingRound decider(0, 3);
  decider.hear_vote(2, 5, kCall);
  decider.vote(5, kCall);
  EXPECT_EQ(decider.take_verdict(), std::nullopt);
  EXPECT_EQ(decider.waiting_for(5), 1);
  decider.hear_vote(1, 5, kCall);
  EXPECT_EQ(verdict_of(decider, 5), Kind::kCommitted);
  const auto message = decider.take_message();
  ASSERT_TRUE(message);
  EXPECT_TRUE(message->to_all);
  EXPECT_EQ(message->kind, wire::ControlKind::kCommit);
  EXPECT_FALSE(decider.take_message());
}

TEST(ClosingRound, AMemberVotesAndWaitsForTheDecider) {
  ClosingRound member(1, 3);
  member.vote(5, kCall);
  const auto message = member.take_message();
  ASSERT_TRUE(message);
  EXPECT_FALSE(message->to_all);
  EXPECT_EQ(message->kind, wire::ControlKind::kVote);
  EXPECT_EQ(message->signature, kCall);
  EXPECT_EQ(member.waiting_for(5), ClosingRound::kDecider);
  EXPECT_EQ(member.take_verdict(), std::nullopt);
  member.hear_commit(5);
  EXPECT_EQ(verdict_of(member, 5), Kind::kCommitted);
  member.hear_commit(5);
  EXPECT_EQ(member.take_verdict(), std::nullopt) << "once";
}

TEST(ClosingRound, TwoSignaturesAreADisagreementThatNamesBoth) {
  ClosingRound decider(0, 3);
  decider.hear_vote(1, 5, kCall);
  decider.hear_vote(2, 5, kOther);
  const auto verdict = decider.take_verdict();
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->kind, Kind::kDisagree);
  EXPECT_EQ(verdict->one, 1);
  EXPECT_EQ(verdict->signature, kCall);
  EXPECT_EQ(verdict->other, 2);
  EXPECT_EQ(verdict->others, kOther);
}

TEST(ClosingRound, AfterAFailureTheDeciderSettlesAndCommitsNoMore) {
  ClosingRound decider(0, 2);
  decider.vote(5, kCall);
  decider.fail(Time{});
  EXPECT_EQ(verdict_of(decider, 5), Kind::kFailed);
  const auto message = decider.take_message();
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, wire::ControlKind::kSettled);
  decider.hear_vote(1, 5, kCall);
  EXPECT_EQ(decider.take_verdict(), std::nullopt);
  EXPECT_FALSE(decider.take_message());
}

TEST(ClosingRound, AfterAFailureAMemberWaitsForTheDecidersWord) {
  ClosingRound member(1, 2);
  member.vote(5, kCall);
  member.vote(6, kCall);
  member.fail(Time{});
  member.check(Time{});
  EXPECT_EQ(member.take_verdict(), std::nullopt);
  member.hear_commit(5);
  EXPECT_EQ(verdict_of(member, 5), Kind::kCommitted);
  member.hear_settled();
  EXPECT_EQ(verdict_of(member, 6), Kind::kFailed);
}

TEST(ClosingRound, WithoutTheDecidersWordTheOutcomeIsUnknown) {
  for (const bool lost : {true, false}) {
    ClosingRound member(1, 2);
    member.vote(5, kCall);
    member.fail(Time{});
    EXPECT_EQ(member.next_check(), Time{} + ClosingRound::kVerdictTime);
    if (lost) {
      member.lose_decider();
    } else {
      member.check(Time{} + ClosingRound::kVerdictTime);
    }
    EXPECT_EQ(verdict_of(member, 5), Kind::kUnknown);
    EXPECT_EQ(member.next_check(), Time::never());
  }
}

/// Members vote in any order, messages travel in order for each pair, a member fails at some
/// moment.
TEST(ClosingRound, NoMemberCommitsWhatAnotherHasFailed) {
  constexpr int32_t kSize = 4;
  constexpr uint64_t kOps = 3;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<ClosingRound> rounds;
    for (int32_t r = 0; r < kSize; ++r) rounds.emplace_back(r, kSize);
    std::vector<std::deque<ClosingRound::Message>> to(kSize), from(kSize);
    std::vector<uint64_t> voted(kSize);
    std::vector<std::map<uint64_t, Kind>> ended(kSize);
    for (int step = 0; step < 200; ++step) {
      const auto r = static_cast<int32_t>(random() % kSize);
      const auto i = static_cast<size_t>(r);
      const uint64_t choice = random() % 8;
      if (choice < 3 && voted[i] < kOps && seed % 7 != choice) rounds[i].vote(voted[i]++, kCall);
      if (choice == 7 && step > 20) rounds[i].fail(Time{});
      if (choice >= 3 && r != 0 && !to[i].empty()) {
        const auto message = to[i].front();
        to[i].pop_front();
        if (message.kind == wire::ControlKind::kCommit) rounds[i].hear_commit(message.op);
        if (message.kind == wire::ControlKind::kSettled) {
          rounds[i].fail(Time{});
          rounds[i].hear_settled();
        }
      }
      if (choice >= 3 && r == 0) {
        auto& votes = from[1 + random() % (kSize - 1)];
        const auto sender = static_cast<int32_t>(&votes - from.data());
        if (!votes.empty()) {
          rounds[0].hear_vote(sender, votes.front().op, votes.front().signature);
          votes.pop_front();
        }
      }
      for (size_t m = 0; m < rounds.size(); ++m) {
        while (const auto message = rounds[m].take_message()) {
          if (!message->to_all) from[m].push_back(*message);
          for (size_t other = 1; message->to_all && other < rounds.size(); ++other)
            to[other].push_back(*message);
        }
        while (const auto verdict = rounds[m].take_verdict()) ended[m][verdict->op] = verdict->kind;
      }
    }
    for (uint64_t op = 0; op < kOps; ++op) {
      bool committed = false;
      bool failed = false;
      for (const auto& of_member : ended) {
        const auto found = of_member.find(op);
        committed = committed || (found != of_member.end() && found->second == Kind::kCommitted);
        failed = failed || (found != of_member.end() && found->second == Kind::kFailed);
      }
      ASSERT_FALSE(committed && failed) << "seed " << seed << ", operation " << op;
    }
  }
}

}  // namespace
}  // namespace corro::runtime
