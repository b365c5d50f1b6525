#include "launch/stopping.h"

#include <gtest/gtest.h>

#include <csignal>
#include <vector>

namespace corro::launch {
namespace {

using Order = Stopping::Order;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kBegin = Time{seconds(100)};

/// Everything that is due until `end`, each order when it is.
std::vector<std::pair<Duration, Order>> orders_until(Stopping& stopping, Time end) {
  std::vector<std::pair<Duration, Order>> orders;
  while (stopping.wake() <= end) {
    const Time now = stopping.wake();
    for (Order order = stopping.take(now); order != Order::kNone; order = stopping.take(now))
      orders.emplace_back(now - kBegin, order);
  }
  return orders;
}

using Orders = std::vector<std::pair<Duration, Order>>;

TEST(Stopping, GivesAFailureAGraceThenTermThenKill) {
  Stopping stopping;
  stopping.start({}, kBegin);
  EXPECT_EQ(stopping.wake(), Time::never());
  EXPECT_TRUE(stopping.on_failure(false, kBegin));
  EXPECT_FALSE(stopping.undisturbed());
  EXPECT_FALSE(stopping.stopping());
  const Orders expected = {{milliseconds(200), Order::kTerminate},
                           {milliseconds(700), Order::kKill}};
  EXPECT_EQ(orders_until(stopping, kBegin + seconds(10)), expected);
  EXPECT_FALSE(stopping.on_failure(false, kBegin + seconds(1))) << "ranks that were stopped";
}

TEST(Stopping, EndsAnElasticJobThatCannotGoOn) {
  Stopping stopping;
  stopping.on_no_way_on(kBegin);
  EXPECT_FALSE(stopping.undisturbed());
  EXPECT_EQ(stopping.wake(), kBegin + milliseconds(400));
}

TEST(Stopping, EndsAnElasticJobThatCannotGoOnAlthoughItWasAskedToEnd) {
  Stopping stopping;
  (void)stopping.on_signal(SIGTERM, true, kBegin);
  EXPECT_TRUE(stopping.undisturbed());
  stopping.on_no_way_on(kBegin);
  EXPECT_EQ(stopping.wake(), kBegin + milliseconds(400));
}

TEST(Stopping, WithoutItsCallerAJobIsStoppedAtOnce) {
  Stopping stopping;
  stopping.on_caller_gone(true, kBegin);
  EXPECT_EQ(stopping.asked(), SIGTERM);
  EXPECT_FALSE(stopping.impatient());
  const Orders expected = {{milliseconds(0), Order::kTerminate}, {milliseconds(500), Order::kKill}};
  EXPECT_EQ(orders_until(stopping, kBegin + seconds(10)), expected);
  stopping.on_caller_gone(false, kBegin + seconds(1));
  EXPECT_TRUE(stopping.impatient());
}

TEST(Stopping, WaitsLongerForWhomAWitnessSawLeave) {
  Stopping stopping;
  stopping.on_failure(true, kBegin);
  EXPECT_EQ(stopping.wake(), kBegin + milliseconds(400));
  stopping.on_failure(false, kBegin);
  EXPECT_EQ(stopping.wake(), kBegin + milliseconds(200));
}

TEST(Stopping, LooksBeforeATimeoutStops) {
  Stopping stopping;
  stopping.start(seconds(5), kBegin);
  const Orders expected = {{seconds(5), Order::kLook},
                           {seconds(6), Order::kTimedOut},
                           {seconds(6), Order::kTerminate},
                           {milliseconds(6500), Order::kKill}};
  EXPECT_EQ(orders_until(stopping, kBegin + seconds(60)), expected);
}

TEST(Stopping, StopsAsSoonAsAllHaveSaidWhatTheyDo) {
  Stopping stopping;
  stopping.start(seconds(5), kBegin);
  const Time over = kBegin + seconds(5);
  stopping.all_seen(kBegin);
  EXPECT_EQ(stopping.wake(), over) << "nobody has asked yet";
  EXPECT_EQ(stopping.take(over), Order::kLook);
  stopping.all_seen(over + milliseconds(3));
  EXPECT_EQ(stopping.take(over + milliseconds(3)), Order::kTimedOut);
  EXPECT_EQ(stopping.take(over + milliseconds(3)), Order::kTerminate);
}

TEST(Stopping, PassesTheFirstInterruptOnStopsAtTheSecondAndKillsAtTheThird) {
  Stopping stopping;
  EXPECT_TRUE(stopping.on_signal(SIGINT, true, kBegin));
  EXPECT_EQ(stopping.asked(), SIGINT);
  EXPECT_FALSE(stopping.on_failure(false, kBegin)) << "the ranks end because they were asked";
  EXPECT_EQ(stopping.take(kBegin + seconds(1)), Order::kRemind);
  EXPECT_EQ(stopping.wake(), Time::never());
  EXPECT_FALSE(stopping.on_signal(SIGINT, true, kBegin + seconds(2)));
  EXPECT_EQ(stopping.take(kBegin + seconds(2)), Order::kTerminate);
  EXPECT_TRUE(stopping.hard());
  EXPECT_FALSE(stopping.impatient());
  EXPECT_FALSE(stopping.on_signal(SIGINT, true, kBegin + seconds(2)));
  EXPECT_TRUE(stopping.impatient());
  EXPECT_EQ(stopping.take(kBegin + seconds(2)), Order::kKill);
  EXPECT_EQ(stopping.take(kBegin + seconds(2)), Order::kNone);
}

TEST(Stopping, StopsARankThatOneHasGivenUpWaitingForOnceItWasAsked) {
  Stopping stopping;
  stopping.on_given_up(kBegin);
  EXPECT_EQ(stopping.wake(), Time::never());
  (void)stopping.on_signal(SIGTERM, true, kBegin);
  stopping.on_given_up(kBegin);
  EXPECT_EQ(stopping.take(kBegin + milliseconds(200)), Order::kTerminate);
}

TEST(Stopping, IsImpatientWhereNoRankRunsAnyMore) {
  Stopping stopping;
  EXPECT_TRUE(stopping.on_signal(SIGTERM, false, kBegin));
  EXPECT_TRUE(stopping.impatient());
  EXPECT_TRUE(stopping.on_signal(SIGUSR1, false, kBegin)) << "asks for nothing";
}

}  // namespace
}  // namespace corro::launch
