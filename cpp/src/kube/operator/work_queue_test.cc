#include "kube/operator/work_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace corro::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class WorkQueues : public testing::Test {
 protected:
  [[nodiscard]] std::string next() {
    const auto work = queue_.try_take();
    return work ? work->key : "";
  }
  void pass(Duration time) { now_ = now_ + time; }

  corro::Time now_ = corro::Time{} + seconds(1);
  WorkQueue queue_{[this] { return now_; }};
};

TEST_F(WorkQueues, WhatIsDueLongestComesFirst) {
  queue_.add_after("late", seconds(2));
  queue_.add("a");
  pass(milliseconds(1));
  queue_.add("b");
  EXPECT_EQ(next(), "a");
  EXPECT_EQ(next(), "b");
  EXPECT_EQ(next(), "");
  pass(seconds(3));
  const auto work = queue_.try_take();
  ASSERT_TRUE(work.has_value());
  EXPECT_EQ(work->key, "late");
  EXPECT_EQ(work->waited, milliseconds(1001));
}

TEST_F(WorkQueues, TheEarliestOfSeveralTimesCounts) {
  queue_.add_after("job", seconds(10));
  queue_.add_after("job", seconds(1));
  queue_.add_after("job", seconds(5));
  pass(seconds(1));
  EXPECT_EQ(next(), "job");
  queue_.done("job");
  pass(seconds(60));
  EXPECT_EQ(next(), "");
}

TEST_F(WorkQueues, AKeyInWorkIsNotHandedOutAgainButComesBack) {
  queue_.add("job");
  EXPECT_EQ(next(), "job");
  queue_.add("job");
  EXPECT_EQ(next(), "");
  queue_.done("job");
  EXPECT_EQ(next(), "job");
  queue_.done("job");
  EXPECT_EQ(next(), "");
}

TEST_F(WorkQueues, FailuresWaitEverLongerUntilOneGoesWell) {
  queue_.add("job");
  Duration delay = milliseconds(50);
  for (int i = 0; i < 12; ++i, delay = std::min<Duration>(delay * 2, seconds(30))) {
    ASSERT_EQ(next(), "job");
    queue_.failed("job");
    pass(delay - milliseconds(1));
    EXPECT_EQ(next(), "") << i;
    pass(milliseconds(1));
  }
  ASSERT_EQ(next(), "job");
  queue_.done("job");
  queue_.add("job");
  ASSERT_EQ(next(), "job");
  queue_.failed("job");
  pass(milliseconds(50));
  EXPECT_EQ(next(), "job");
}

TEST_F(WorkQueues, AnAdditionDoesNotWaitForTheEndOfABackOff) {
  queue_.add("job");
  ASSERT_EQ(next(), "job");
  queue_.failed("job");
  queue_.add("job");
  EXPECT_EQ(next(), "job");
}

TEST_F(WorkQueues, TheBacklogIsWhatIsDueAndNotInWork) {
  queue_.add("a");
  queue_.add("b");
  queue_.add_after("c", seconds(9));
  ASSERT_EQ(next(), "a");
  pass(seconds(2));
  EXPECT_EQ(queue_.backlog().due, 1U);
  EXPECT_EQ(queue_.backlog().oldest, seconds(2));
}

TEST(WorkQueue, WorkersTakeEachKeyOnceAtATimeAndEndWhenItIsClosed) {
  constexpr int kKeys = 20;
  constexpr int kRounds = 50;
  WorkQueue queue;
  Guarded<std::map<std::string, int>> in_work;
  Guarded<int> looks;
  bool was_shared = false;
  std::vector<std::thread> workers;
  workers.reserve(4);
  for (int i = 0; i < 4; ++i) {
    workers.emplace_back([&] {
      while (const auto work = queue.take()) {
        if (++(*in_work.lock())[work->key] != 1) was_shared = true;
        --(*in_work.lock())[work->key];
        ++*looks.lock();
        queue.done(work->key);
      }
    });
  }
  for (int round = 0; round < kRounds; ++round) {
    for (int key = 0; key < kKeys; ++key) queue.add(std::to_string(key));
  }
  while (*looks.lock() < kKeys) std::this_thread::yield();
  queue.close();
  for (std::thread& worker : workers) worker.join();
  EXPECT_FALSE(was_shared);
  EXPECT_FALSE(queue.take().has_value());
}

}  // namespace
}  // namespace corro::kube
