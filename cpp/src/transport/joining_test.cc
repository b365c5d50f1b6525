// Ranks that join in virtual time, over connections that break, delay and repeat.
#include "transport/joining.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace corro::transport {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

/// Two bytes, never the same for two ranks.
Bytes name_of(int32_t rank) {
  return {static_cast<std::byte>(rank % 256), static_cast<std::byte>(rank / 256)};
}

struct Faults {
  double breaks = 0;   ///< How many of the messages break their connection instead of arriving.
  double refused = 0;  ///< How many of the attempts to connect have to be made again.
  double twice = 0;    ///< How many of the messages come twice.
  Duration longest = milliseconds(1);  ///< Everything takes from 1 ms to this.
  uint64_t seed = 1;
};

/// All ranks of a job, and the connections between them.
class Job {
 public:
  Job(int32_t size, const Faults& faults, std::set<int32_t> absent = {})
      : faults_(faults), random_(faults.seed), absent_(std::move(absent)) {
    for (int32_t rank = 0; rank < size; ++rank) {
      ranks_.emplace_back(Joining::Options{.rank = rank,
                                           .size = size,
                                           .introduction = name_of(rank),
                                           .started = {},
                                           .deadline = kDeadline});
    }
    for (int32_t rank = 0; rank < size; ++rank) {
      all_names_.push_back(name_of(rank));
      act(rank);
    }
  }

  static constexpr Time kDeadline{std::chrono::seconds(60)};

  Joining& rank(int32_t r) { return ranks_[static_cast<size_t>(r)]; }

  /// Until all that came are over; false if nothing is left to happen before.
  bool run() {
    while (!all_over()) {
      Time next = events_.empty() ? Time::never() : events_.begin()->first;
      for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
        if (!absent_.contains(r)) next = std::min(next, rank(r).next_wake());
      }
      if (next == Time::never()) return false;
      now_ = std::max(now_, next);
      step();
    }
    return true;
  }

  void expect_all_know_all() {
    for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
      EXPECT_TRUE(rank(r).failure().ok()) << rank(r).failure().message();
      ASSERT_EQ(rank(r).introductions(), all_names_) << r;
    }
  }

  Time now() const { return now_; }
  uint64_t messages = 0, connections = 0, asked = 0;

 private:
  /// The connection that `from` dials to `to`; `life` grows with each new one.
  struct Link {
    uint64_t life = 0;
    bool up = false;
  };

  void step() {
    while (!events_.empty() && events_.begin()->first <= now_) {
      const auto event = std::move(events_.begin()->second);
      events_.erase(events_.begin());
      event();
    }
    for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
      if (absent_.contains(r)) continue;
      if (rank(r).next_wake() <= now_) rank(r).expire(now_);
      act(r);
    }
  }

  bool all_over() {
    for (int32_t r = 0; r < std::ssize(ranks_); ++r) {
      if (!absent_.contains(r) && !rank(r).over()) return false;
    }
    return true;
  }

  bool happens(double how_often) {
    return std::uniform_real_distribution<>(0, 1)(random_) < how_often;
  }

  void later(std::function<void()> event) {
    const auto most = std::max<int64_t>(1, faults_.longest / milliseconds(1));
    const auto wait = milliseconds(std::uniform_int_distribution<int64_t>(1, most)(random_));
    events_.emplace(now_ + wait, std::move(event));
  }

  void act(int32_t r) {
    if (absent_.contains(r)) return;
    std::vector<JoiningAction> actions = rank(r).take_actions();
    for (size_t i = 0; i < actions.size(); ++i) {
      const JoiningAction action = actions[i];
      switch (action.kind) {
        case JoiningAction::Kind::kAsk:
          ++asked;
          if (!absent_.contains(action.rank)) rank(r).found(action.rank, now_);
          std::ranges::move(rank(r).take_actions(), std::back_inserter(actions));
          break;
        case JoiningAction::Kind::kDial:
          later([this, r, to = action.rank] { dial(r, to); });
          break;
        case JoiningAction::Kind::kTell:
          tell(r, action);
          break;
        case JoiningAction::Kind::kKnown:
          send(action.rank, r, action.rank, [this, r, to = action.rank, round = action.round] {
            rank(to).known(r, round, now_);
          });
          break;
      }
    }
  }

  void dial(int32_t from, int32_t to) {
    if (absent_.contains(to) || happens(faults_.refused))
      return later([this, from, to] { dial(from, to); });
    ++connections;
    Link& link = links_[{from, to}];
    ++link.life;
    link.up = true;
    rank(from).linked(to, now_);
  }

  void tell(int32_t from, const JoiningAction& action) {
    constexpr size_t kPart = 100;
    for (size_t at = 0; at < action.ranks.size(); at += kPart) {
      const auto end = std::min(at + kPart, action.ranks.size());
      std::vector<int32_t> part(action.ranks.begin() + static_cast<std::ptrdiff_t>(at),
                                action.ranks.begin() + static_cast<std::ptrdiff_t>(end));
      send(from, action.rank, action.rank,
           [this, from, to = action.rank, round = action.round, part = std::move(part)] {
             for (const int32_t one : part)
               rank(to).introduced(from, round, one, name_of(one), now_);
             rank(to).told(from, round, now_);
           });
    }
  }

  /// Over the connection that `dialer` has made, or is broken on the way.
  void send(int32_t dialer, int32_t other, int32_t to, std::function<void()> deliver) {
    const int32_t dialled = dialer == to ? other : to;
    Link& link = links_[{dialer, dialled}];
    if (!link.up) return;
    ++messages;
    const uint64_t life = link.life;
    const int times = happens(faults_.twice) ? 2 : 1;
    for (int i = 0; i < times; ++i) {
      later([this, dialer, dialled, life, deliver] {
        Link& its = links_[{dialer, dialled}];
        if (!its.up || its.life != life) return;
        if (!happens(faults_.breaks)) return deliver();
        its.up = false;
        rank(dialer).unlinked(dialled, now_);
      });
    }
  }

  const Faults faults_;
  std::mt19937_64 random_;
  const std::set<int32_t> absent_;
  std::vector<Joining> ranks_;
  std::vector<Bytes> all_names_;
  std::map<std::pair<int32_t, int32_t>, Link> links_;
  std::multimap<Time, std::function<void()>> events_;
  Time now_;
};

uint64_t rounds_of(int32_t size) { return std::bit_width(static_cast<uint32_t>(size) - 1); }

TEST(Joining, AThousandRanksKnowEachOtherAfterTenRounds) {
  for (const int32_t size : {2, 3, 5, 7, 8, 13, 64, 1024}) {
    Job job(size, {});
    ASSERT_TRUE(job.run()) << size;
    job.expect_all_know_all();
    const uint64_t rounds = rounds_of(size);
    const auto ranks = static_cast<uint64_t>(size);
    // A round takes two steps of 1 ms: to connect, to tell. Then the last answer comes.
    EXPECT_LE(job.now(), Time{milliseconds(2 * rounds + 1)}) << size;
    EXPECT_EQ(job.connections, ranks * rounds) << size;
    EXPECT_LE(job.asked, ranks * (rounds + 1)) << size;
    // Parts of a hundred introductions: six of the last round of 1024.
    EXPECT_LE(job.messages, ranks * (2 * rounds + 11)) << size;
  }
}

TEST(Joining, WhatIsLostLateOrTwiceCostsTimeOnly) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const int32_t size = seed == 20 ? 1024 : 2 + static_cast<int32_t>(seed * 7 % 60);
    Job job(size, {.breaks = 0.2,
                   .refused = 0.2,
                   .twice = 0.3,
                   .longest = milliseconds(size > 100 ? 5 : 50),
                   .seed = seed});
    ASSERT_TRUE(job.run()) << seed;
    job.expect_all_know_all();
    EXPECT_LT(job.now(), Job::kDeadline) << seed;
  }
}

TEST(Joining, ARankThatNeverComesIsNamedByAllAtTheDeadline) {
  for (const int32_t size : {2, 3, 16, 60}) {
    const int32_t absent = size / 2;
    Job job(size, {.breaks = 0.1, .refused = 0.1, .longest = milliseconds(20)}, {absent});
    ASSERT_TRUE(job.run()) << size;
    EXPECT_EQ(job.now(), Job::kDeadline);
    for (int32_t r = 0; r < size; ++r) {
      if (r == absent) continue;
      const Status& failure = job.rank(r).failure();
      EXPECT_EQ(failure.code(), Code::kDeadlineExceeded);
      EXPECT_THAT(failure.message(), HasSubstr(fmt::format("but rank {} did not start", absent)));
      EXPECT_EQ(failure.detail()->rank, absent);
    }
  }
}

TEST(Joining, ARankThatIsGoneEndsItAtOnce) {
  Job job(8, {}, {3});
  job.rank(0).gone(3, Status(Code::kUnavailable, "rank 3 ended"));
  EXPECT_TRUE(job.rank(0).over());
  EXPECT_EQ(job.rank(0).failure().message(), "rank 3 ended");
}

TEST(Joining, ARankThatRefusesStillTellsTheOthers) {
  Job job(8, {});
  job.rank(5).refuse(Status(Code::kInvalidArgument, "other settings"), {});
  ASSERT_TRUE(job.run());
  job.rank(5).expire(job.now());
  EXPECT_EQ(job.rank(5).failure().message(), "other settings");
  EXPECT_TRUE(job.rank(0).failure().ok());
}

TEST(Joining, WhatDoesNotBelongIsIgnored) {
  Joining joining({.rank = 0,
                   .size = 4,
                   .introduction = name_of(0),
                   .started = {},
                   .deadline = Job::kDeadline});
  (void)joining.take_actions();
  joining.introduced(1, 0, 3, name_of(3), {});  // Rank 3 is the source of round 0.
  joining.introduced(3, 9, 3, name_of(3), {});  // No such round.
  joining.introduced(3, 0, 4, name_of(3), {});  // No such rank.
  joining.introduced(3, 0, -1, name_of(3), {});
  joining.introduced(3, 0, 3, {}, {});
  joining.told(3, 0, {});
  joining.told(1, 7, {});
  joining.known(2, 0, {});
  joining.known(1, 9, {});
  EXPECT_TRUE(joining.introductions()[3].empty());
  EXPECT_TRUE(joining.take_actions().empty());
}

}  // namespace
}  // namespace corro::transport
