#include "coord/roster.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace corro::coord {
namespace {

using std::chrono::seconds;

MemberUuid uuid(int number) {
  MemberUuid made{};
  made[0] = static_cast<std::byte>(number + 1);
  return made;
}

int number_of(const MemberUuid& member) { return std::to_integer<int>(member[0]) - 1; }

std::vector<MemberUuid> uuids(int count) {
  std::vector<MemberUuid> all;
  for (int i = 0; i < count; ++i) all.push_back(uuid(i));
  return all;
}

/// A roster and its clock; says what was decided as words.
class Told {
 public:
  Told(int members, Options options) : options_(options), state_(begin(uuids(members))) {}

  std::string hear(const Event& event) {
    Decision decision = decide(now, state_, event, options_);
    state_ = decision.state;
    std::string text;
    for (const Action& action : decision.actions) text += std::visit(Words(), action) + ";";
    return text;
  }
  std::string killed(int member) { return hear(Ended{.member = uuid(member), .how = "killed"}); }
  std::string frozen(int member) { return hear(Frozen{.member = uuid(member), .how = "frozen"}); }
  std::string done(int member) {
    return hear(Ended{.member = uuid(member), .well = true, .how = "done"});
  }
  std::string ready(int member, uint32_t epoch) {
    return hear(Ready{.member = uuid(member), .epoch = epoch});
  }
  [[nodiscard]] const State& state() const { return state_; }

  Time now{};

 private:
  struct Words {
    std::string operator()(const Prepare& prepare) const {
      return "prepare " + std::to_string(prepare.epoch);
    }
    std::string operator()(const Commit& commit) const {
      std::string text = "commit " + std::to_string(commit.epoch) + ":";
      for (const MemberUuid& member : commit.members) text += std::to_string(number_of(member));
      return text;
    }
    std::string operator()(const Fence& fence) const {
      return "fence " + std::to_string(number_of(fence.member));
    }
    std::string operator()(const Stop& /*stop*/) const { return "stop"; }
  };

  Options options_;
  State state_;
};

TEST(Roster, GoesOnWithoutAMemberThatIsKilled) {
  Told roster(3, {.least = 2});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "commit 1:02;");
  EXPECT_EQ(roster.state().epoch, 1U);
  EXPECT_FALSE(roster.state().changing());
}

TEST(Roster, StopsWithFewerThanTheLeast) {
  Told roster(3, {.least = 2});
  (void)roster.killed(1);
  EXPECT_EQ(roster.killed(2), "stop;");
  EXPECT_EQ(roster.killed(0), "") << "it has stopped";
  EXPECT_EQ(Told(1, {.least = 1}).killed(0), "stop;") << "nobody is left";
}

TEST(Roster, SaysWhyItStops) {
  const Decision decision = decide(
      Time{}, begin(uuids(2)), Ended{.member = uuid(0), .how = "rank 0 was killed"}, {.least = 2});
  ASSERT_EQ(decision.actions.size(), 1U);
  EXPECT_EQ(std::get<Stop>(decision.actions[0]).why,
            "rank 0 was killed: 1 rank is left, at least 2 are needed");
}

TEST(Roster, BeginsAgainIfAMemberEndsMeanwhile) {
  Told roster(4, {.least = 1});
  EXPECT_EQ(roster.killed(0), "prepare 1;");
  EXPECT_EQ(roster.ready(1, 1), "");
  EXPECT_EQ(roster.killed(2), "prepare 2;");
  EXPECT_EQ(roster.ready(3, 1), "") << "of an epoch that never began";
  EXPECT_EQ(roster.ready(3, 2), "");
  EXPECT_EQ(roster.ready(1, 2), "commit 2:13;");
}

TEST(Roster, AMemberThatHasDoneItsWorkChangesNothing) {
  Told roster(3, {.least = 2});
  EXPECT_EQ(roster.done(0), "");
  EXPECT_EQ(roster.killed(1), "prepare 1;") << "0 counts";
  EXPECT_EQ(roster.ready(2, 1), "commit 1:2;");
  EXPECT_EQ(roster.done(2), "");
}

TEST(Roster, WaitsForNobodyWhoHasDoneItsWork) {
  Told roster(3, {.least = 1});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(2, 1), "");
  EXPECT_EQ(roster.done(0), "prepare 2;");
  EXPECT_EQ(roster.done(2), "");
  EXPECT_FALSE(roster.state().changing());
}

TEST(Roster, TheLastOneKilledWhileItChangesIsAFailure) {
  Told roster(3, {.least = 1});
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.done(0), "prepare 2;");
  EXPECT_EQ(roster.killed(2), "stop;");
}

TEST(Roster, FencesWhoIsNotReadyInTime) {
  Told roster(4, {.least = 2, .patience = seconds(60)});
  (void)roster.killed(3);
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.ready(2, 1), "");
  roster.now = Time{} + seconds(59);
  EXPECT_EQ(roster.hear(Tick{}), "");
  roster.now = Time{} + seconds(60);
  EXPECT_EQ(roster.hear(Tick{}), "fence 1;prepare 2;");
  EXPECT_EQ(roster.killed(1), "") << "it has counted already";
  EXPECT_EQ(roster.ready(0, 2), "");
  EXPECT_EQ(roster.ready(2, 2), "commit 2:02;");
  EXPECT_EQ(roster.state().until, Time::never());
}

TEST(Roster, FencesAFrozenMemberUnlessTooFewWouldBeLeft) {
  Told roster(4, {.least = 2});
  EXPECT_EQ(roster.frozen(1), "fence 1;prepare 1;");
  EXPECT_EQ(roster.frozen(1), "") << "it has counted already";
  EXPECT_EQ(roster.killed(1), "");
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.frozen(2), "fence 2;prepare 2;") << "while it changes, too";
  EXPECT_EQ(roster.frozen(3), "") << "it may come back";
  EXPECT_EQ(roster.ready(0, 2), "");
  EXPECT_EQ(roster.ready(3, 2), "commit 2:03;");
}

TEST(Roster, DropsWhatIsOfNoMember) {
  Told roster(2, {.least = 1});
  EXPECT_EQ(roster.killed(7), "");
  EXPECT_EQ(roster.ready(0, 0), "") << "nothing is prepared";
  EXPECT_EQ(roster.ready(0, 1), "");
  EXPECT_EQ(roster.killed(1), "prepare 1;");
  EXPECT_EQ(roster.ready(1, 1), "") << "it has ended";
}

/// Members and their roster, with messages that come late, twice and in any order, and members that
/// are killed, finish or never answer, at random.
class Fates {
 public:
  explicit Fates(uint32_t seed)
      : random_(seed),
        members_(1 + pick(8)),
        options_{.least = 1 + pick(members_), .patience = seconds(60)},
        state_(begin(uuids(members_))) {
    for (int i = 0; i < members_; ++i) alive_.insert(i);
  }

  void run() {
    constexpr int kEvents = 200;
    for (int i = 0; i < kEvents && !state_.stopped; ++i) {
      now_ = now_ + seconds(pick(20));
      happen();
    }
    // The faults stop: whoever lives answers.
    for (int i = 0; i < 3 && !state_.stopped && state_.changing(); ++i) {
      silent_.clear();
      for (const int member : std::set<int>(alive_)) answer(member);
    }
    EXPECT_EQ(state_.stopped, stops_ > 0);
    EXPECT_TRUE(state_.stopped || !state_.changing()) << "it makes progress";
    const int left = static_cast<int>(alive_.size());
    EXPECT_TRUE(state_.stopped || left == 0 || left + state_.done >= options_.least);
  }

 private:
  int pick(int below) { return static_cast<int>(random_() % static_cast<uint32_t>(below)); }

  void happen() {
    const int member = pick(members_);
    switch (pick(8)) {
      case 0:
        return end(member, /*well=*/false);
      case 1:
        return pick(4) == 0 ? end(member, /*well=*/true) : void();
      case 2:
        silent_.insert(member);
        return;
      case 3:
        return hear(Tick{});
      case 4:  // Late: of any epoch there was.
        return hear(Ready{.member = uuid(member), .epoch = static_cast<uint32_t>(pick(20))});
      case 5:
        return hear(Frozen{.member = uuid(member), .how = "frozen"});
      default:
        return answer(member);
    }
  }

  void end(int member, bool well) {
    alive_.erase(member);
    hear(Ended{.member = uuid(member), .well = well, .how = "ended"});
  }

  void answer(int member) {
    if (alive_.contains(member) && !silent_.contains(member))
      hear(Ready{.member = uuid(member), .epoch = state_.prepared});
  }

  void hear(const Event& event) {
    Decision decision = decide(now_, state_, event, options_);
    ASSERT_GE(decision.state.epoch, state_.epoch) << "epochs never go back";
    ASSERT_GE(decision.state.prepared, decision.state.epoch);
    state_ = std::move(decision.state);
    for (const Action& action : decision.actions)
      std::visit([this](const auto& what) { check(what); }, action);
  }

  void check(const Prepare& prepare) {
    EXPECT_GT(prepare.epoch, newest_) << "a number is given out once";
    newest_ = prepare.epoch;
  }
  void check(const Commit& commit) {
    EXPECT_TRUE(maps_.emplace(commit.epoch, commit.members).second) << "one map an epoch";
    EXPECT_EQ(commit.epoch, newest_);
    EXPECT_TRUE(std::ranges::is_sorted(commit.members)) << "ranks keep their order";
    for (const MemberUuid& member : commit.members)
      EXPECT_TRUE(alive_.contains(number_of(member))) << "nobody waits for one that has ended";
    EXPECT_GE(static_cast<int>(commit.members.size()) + state_.done, options_.least);
  }
  void check(const Fence& fence) { alive_.erase(number_of(fence.member)); }
  void check(const Stop& /*stop*/) { ++stops_; }

  std::mt19937 random_;
  int members_;
  Options options_;
  State state_;
  Time now_{};
  std::set<int> alive_;
  std::set<int> silent_;
  uint32_t newest_ = 0;
  std::map<uint32_t, std::vector<MemberUuid>> maps_;
  int stops_ = 0;
};

TEST(Roster, KeepsItsPromisesWhateverHappens) {
  constexpr uint32_t kSeeds = 10'000;
  for (uint32_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Fates(seed).run();
  }
}

}  // namespace
}  // namespace corro::coord
