#include "launch/job_world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/sanitized.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr Time kEnd = {std::chrono::hours(2)};

Time at(Duration when) { return {when}; }

TEST(JobWorld, AJobWithoutFaultsEndsWell) {
  JobWorld world({.slots = {2, 1}, .ranks = 3}, 1);
  world.begin();
  world.run(kEnd);
  world.check_end();
  EXPECT_EQ(world.epochs(), 1U);
  EXPECT_LT(world.now(), at(seconds(20)));
}

TEST(JobWorld, AJobThatIsNotElasticEndsWithTheFirstRankThatFails) {
  JobWorld world({.slots = {2, 1}, .ranks = 3, .least = std::nullopt}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.kill(1); });
  world.run(kEnd);
  world.check_end();
  EXPECT_LT(world.now(), at(seconds(4)));
}

TEST(JobWorld, OthersGoOnWithoutARankThatIsKilled) {
  JobWorld world({.slots = {2, 1}, .ranks = 3}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.kill(1); });
  world.run(kEnd);
  world.check_end();
  EXPECT_EQ(world.epochs(), 2U);
  EXPECT_THAT(world.notes(), HasSubstr("2 of 3 ranks go on"));
}

TEST(JobWorld, AHostThatIsCutOffInOneDirectionAloneIsLost) {
  for (const bool up : {true, false}) {
    JobWorld world({.slots = {2, 1}, .ranks = 3, .steps = 200}, 1);
    world.begin();
    world.at(at(seconds(2)), [&] { world.cut(1, up, !up); });
    world.run(kEnd);
    world.check_end();
    EXPECT_THAT(world.notes(), HasSubstr("2 of 3 ranks go on"));
    EXPECT_FALSE(world.is_up(1)) << "its agent hears nothing, and has ended what it has";
  }
}

TEST(JobWorld, TheSmallerOfTwoHostsThatDoNotReachEachOtherGoes) {
  JobWorld world({.slots = {1, 2}, .ranks = 3, .steps = 100}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.part(0, 1); });
  world.run(kEnd);
  world.check_end();
  EXPECT_THAT(world.notes(), HasSubstr("2 of 3 ranks go on"));
}

TEST(JobWorld, ARankIsReplacedOnAHostThatComesBack) {
  JobWorld world({.slots = {1, 1}, .ranks = 2, .most = 2, .steps = 100}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.offer(1, 0); });
  world.at(at(seconds(5)), [&] { world.offer(1, 1); });
  world.run(kEnd);
  world.check_end();
  EXPECT_THAT(world.notes(), HasSubstr("2 ranks go on, 1 of them new"));
}

TEST(JobWorld, RanksStepOnWithoutACoordinatorAndTheNextOneKnowsThem) {
  JobWorld world({.slots = {2, 1}, .ranks = 3, .steps = 100, .standalone = true}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.crash_launcher(0); });
  world.run(kEnd);
  world.check_end();
  EXPECT_EQ(world.term(), 2U);
  EXPECT_EQ(world.epochs(), 1U) << "nothing has changed";
  EXPECT_LT(world.now(), at(seconds(40))) << "no step has waited: " << world.notes();
}

TEST(JobWorld, RanksOfAHostThatIsAboutToGoLeaveAndItsAgentEnds) {
  JobWorld world({.slots = {1, 1, 1}, .ranks = 3, .most = 3, .steps = 100, .standalone = true}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.ask_host_to_end(1); });
  world.at(at(seconds(4)), [&] { EXPECT_FALSE(world.is_up(1)) << world.notes(); });
  world.run(kEnd);
  world.check_end();
  EXPECT_THAT(world.notes(), HasSubstr("1 rank has to leave: host node1 is about to go"));
  EXPECT_THAT(world.notes(), HasSubstr("2 of 3 ranks go on"));
  EXPECT_THAT(world.notes(), Not(HasSubstr("was lost")));
}

TEST(JobWorld, WhatHasHappenedWithoutACoordinatorTheNextOneDecides) {
  JobWorld world({.slots = {2, 1}, .ranks = 3, .steps = 100, .standalone = true}, 1);
  world.begin();
  world.at(at(seconds(2)), [&] { world.crash_launcher(0); });
  world.at(at(seconds(4)), [&] { world.kill(1); });
  world.run(kEnd);
  world.check_end();
  EXPECT_EQ(world.epochs(), 2U);
  EXPECT_THAT(world.notes(), HasSubstr("2 of 3 ranks go on"));
}

TEST(JobWorld, ACoordinatorMayCrashBetweenAnyTwoOfItsMessages) {
  for (int messages = 0; messages < 40; ++messages) {
    SCOPED_TRACE(messages);
    JobWorld world({.slots = {1, 1, 1}, .ranks = 3, .most = 3, .steps = 60, .standalone = true}, 1);
    world.crash_launcher(messages);
    world.begin();
    world.at(at(seconds(2)), [&] {
      if (world.processes().size() > 1) world.kill(1);
    });
    world.run(kEnd);
    world.check_end();
    EXPECT_EQ(world.term(), 2U);
  }
}

/// What a job of three hosts, one rank each, does when something strikes between any two messages
/// that are heard. Something else has struck before.
void strike_at_every_message(const JobWorld::Options& options,
                             const std::function<void(JobWorld& world)>& strike) {
  constexpr int kMessages = kSanitized ? 60 : 600;
  for (int messages = 0; messages < kMessages && !testing::Test::HasFailure(); ++messages) {
    SCOPED_TRACE(messages);
    JobWorld world(options, 1);
    world.after_messages(messages, [&] { strike(world); });
    world.begin();
    world.at(at(milliseconds(1500)), [&] {
      if (world.processes().size() > 2) world.kill(2);
    });
    world.at(at(seconds(40)), [&world] { world.mend(); });
    world.run(kEnd);
    world.check_end();
  }
}

TEST(JobWorld, AMemberMayEndOrStopBetweenAnyTwoMessages) {
  for (const bool standalone : {false, true}) {
    const JobWorld::Options options = {
        .slots = {1, 1, 1}, .ranks = 3, .most = 3, .standalone = standalone};
    strike_at_every_message(options, [](JobWorld& world) {
      if (!world.processes().empty()) world.kill(0);
    });
    strike_at_every_message(options, [](JobWorld& world) {
      if (world.processes().size() > 1) world.stop(1);
    });
    strike_at_every_message(options, [](JobWorld& world) {
      if (world.processes().size() > 1) world.ask_to_end(1);
    });
  }
}

TEST(JobWorld, AHostMayCrashOrBeCutOffBetweenAnyTwoMessages) {
  for (const bool standalone : {false, true}) {
    const JobWorld::Options options = {
        .slots = {1, 1, 1}, .ranks = 3, .most = 3, .standalone = standalone};
    strike_at_every_message(options, [](JobWorld& world) { world.crash(1); });
    strike_at_every_message(options, [](JobWorld& world) { world.ask_host_to_end(1); });
    strike_at_every_message(options, [](JobWorld& world) { world.cut(1, true, false); });
    strike_at_every_message(options, [](JobWorld& world) { world.part(0, 1); });
  }
}

// -- whatever happens -----------------------------------------------------------------------------

JobWorld::Options options_of(std::mt19937& random) {
  const auto pick = [&](int below) {
    return static_cast<int>(random() % static_cast<uint32_t>(below));
  };
  JobWorld::Options options{.slots = {}};
  int slots = 0;
  for (int host = 0; host < 1 + pick(3); ++host) slots += options.slots.emplace_back(1 + pick(3));
  options.ranks = 1 + pick(slots);
  if (pick(10) == 0)
    options.least.reset();
  else
    options.least = 1 + pick(options.ranks);
  options.most = options.least && pick(2) == 0 ? slots : 0;
  options.steps = 30 + pick(60);
  options.delay = milliseconds(1 + pick(40));
  options.twice = pick(2) == 0 ? 0 : 10;
  options.standalone = pick(3) == 0;
  return options;
}

/// Something that may go wrong.
void strike(JobWorld& world) {
  const auto host = static_cast<size_t>(world.pick(static_cast<int>(world.hosts())));
  const auto other = static_cast<size_t>(world.pick(static_cast<int>(world.hosts())));
  const size_t started = world.processes().size();
  if (started == 0) return;
  const auto process = static_cast<size_t>(world.pick(static_cast<int>(started)));
  switch (world.pick(13)) {
    case 0:
    case 1:
    case 2:
      return world.kill(process);
    case 3:
      world.stop(process);
      return world.after(milliseconds(world.pick(8000)),
                         [&world, process] { world.go_on(process); });
    case 4:
      return world.stop(process);
    case 5:
      return host > 0 && world.pick(3) == 0 ? world.crash(host) : void();
    case 6:
      if (host > 0) world.cut(host, world.pick(2) == 0, world.pick(2) == 0);
      return world.after(milliseconds(world.pick(15000)), [&world] { world.mend(); });
    case 7:
      world.part(host, other);
      return world.after(milliseconds(world.pick(15000)), [&world] { world.mend(); });
    case 8:
    case 9:
      return world.offer(host, world.pick(4));
    case 10:
      return world.crash_launcher(world.pick(12));
    case 11:
      if (world.pick(4) == 0) return world.ask_host_to_end(host);
      return world.pick(4) == 0 ? world.ask_to_end(process) : void();
    default:
      return world.pick(10) == 0 ? world.signal(world.pick(2) == 0 ? SIGTERM : SIGINT) : void();
  }
}

TEST(JobWorld, KeepsItsPromisesWhateverHappens) {
  constexpr uint32_t kSeeds = kSanitized ? 500 : 10'000;
  size_t changed = 0;
  for (uint32_t seed = 0; seed < kSeeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    JobWorld world(options_of(random), seed);
    world.begin();
    for (int faults = world.pick(7); faults > 0; --faults)
      world.at(at(milliseconds(world.pick(20'000))), [&world] { strike(world); });
    // The faults stop.
    world.at(at(seconds(40)), [&world] { world.mend(); });
    world.run(kEnd);
    world.check_end();
    changed += world.epochs() > 1 ? 1 : 0;
  }
  EXPECT_GT(changed, kSeeds / 4) << "else it shows little";
}

}  // namespace
}  // namespace corro::launch
