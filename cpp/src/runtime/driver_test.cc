// Drivers with their real threads: what no single-threaded World can show.
#include "runtime/driver.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <future>

#include <gtest/gtest.h>

#include "collective/board/segment.h"
#include "runtime/buckets.h"

namespace corro::runtime {
namespace {

/// Two drivers of this process that share segments and doorbells, as two local processes would.
struct Pair {
  /// `second_pid`: what driver 0 takes for the second one's process.
  explicit Pair(LadderOptions caller, int32_t second_pid = 0,
                LadderOptions progress = DriverOptions().progress_ladder) {
    std::array<std::shared_ptr<collective::Segment>, 2> segments;
    std::array<std::optional<io::EventFd>, 2> bells;
    for (size_t r = 0; r < 2; ++r) {
      segments[r] = collective::Segment::create(size_t{8} << 20U).value();
      bells[r] = io::EventFd::create().value();
    }
    std::array<io::Fd, 2> copies = {io::Fd(::dup(bells[0]->fd())), io::Fd(::dup(bells[1]->fd()))};
    for (size_t r = 0; r < 2; ++r) {
      DriverOptions options;
      options.caller_ladder = caller;
      options.progress_ladder = progress;
      options.engine.rank = static_cast<int32_t>(r);
      options.engine.size = 2;
      options.engine.segment = segments[r];
      for (size_t p = 0; p < 2; ++p) {
        EnginePeer peer{
            .where = "in this process", .host = "here", .segment = segments[p], .stream = nullptr};
        options.engine.peers.push_back(std::move(peer));
      }
      options.peer_bells.resize(2);
      options.peer_bells[1 - r] = std::move(copies[1 - r]);
      options.peer_pids = {0, r == 0 ? second_pid : 0};
      options.doorbell = std::move(*bells[r]);
      drivers[r] = Driver::create(std::move(options)).value();
    }
  }
  std::array<std::unique_ptr<Driver>, 2> drivers;
};

/// An allreduce of one number, in place.
collective::OpRequest sum(int32_t& value) {
  collective::OpRequest request;
  request.kind = OpKind::kAllreduce;
  request.dtype = DType::kI32;
  request.count = 1;
  request.input = reinterpret_cast<const std::byte*>(&value);
  request.output = reinterpret_cast<std::byte*>(&value);
  return request;
}

Status allreduce(Driver& driver, int32_t& value) {
  return driver.run(driver.engine().world(), sum(value));
}

void wait_until_in_flight(Driver& driver) {
  bool in_flight = false;
  while (!in_flight) driver.call([&](Engine& engine) { in_flight = !engine.idle(); });
}

/// Every rank calls so often. Ends the test program where that is not over in half a minute: a
/// thread that hangs cannot be ended.
void expect_return(Pair& pair, int calls) {
  std::vector<std::thread> ranks;
  std::vector<std::future<void>> done;
  for (auto& driver : pair.drivers) {
    std::packaged_task<void()> task([&driver, calls] {
      for (int i = 0; i < calls; ++i) {
        int32_t value = i;
        const Status status = allreduce(*driver, value);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_EQ(value, 2 * i);
      }
    });
    done.push_back(task.get_future());
    ranks.emplace_back(std::move(task));
  }
  for (auto& future : done) {
    if (future.wait_for(std::chrono::seconds(30)) == std::future_status::ready) continue;
    std::fputs("a call has not returned\n", stderr);
    std::_Exit(1);
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST(DriverTest, CallersThatPollHaveNoNeedOfTheProgressThread) {
  Pair pair({.spins = 1000, .yields = 1000});
  expect_return(pair, 5000);
}

/// A caller that gives up polling at once leaves its operation to the progress thread, which may
/// just be going to sleep.
TEST(DriverTest, WorkThatACallerLeavesBehindIsNeverForgotten) {
  Pair pair({.spins = 0, .yields = 0});
  expect_return(pair, 5000);
}

/// The same before the progress thread has run for the first time.
TEST(DriverTest, TheFirstCallMayComeBeforeTheProgressThread) {
  for (int i = 0; i < 100; ++i) {
    Pair pair({.spins = 0, .yields = 0});
    expect_return(pair, 1);
  }
}

TEST(DriverTest, TryRunReturnsWhereItWouldSleep) {
  Pair pair({.spins = 100, .yields = 10});
  std::array<int32_t, 2> values = {3, 4};
  Status status;
  Driver& first = *pair.drivers[0];
  const auto rest = first.try_run(first.engine().world(), sum(values[0]), status);
  ASSERT_NE(rest, nullptr);
  EXPECT_FALSE(rest->done());
  ASSERT_TRUE(allreduce(*pair.drivers[1], values[1]).ok());
  ASSERT_TRUE(rest->wait(std::chrono::seconds(30)));
  EXPECT_TRUE(rest->status().ok()) << rest->status().message();
  EXPECT_EQ(values[0], 7);
  EXPECT_EQ(values[1], 7);
}

TEST(DriverTest, ClosingEndsWhatOtherThreadsWaitFor) {
  for (const LadderOptions ladder :
       {LadderOptions{.spins = 0, .yields = 0}, LadderOptions{.spins = 1U << 30U, .yields = 0}}) {
    Pair pair(ladder);
    Driver& driver = *pair.drivers[0];
    auto alone = std::async(std::launch::async, [&driver] {
      int32_t value = 1;
      return allreduce(driver, value);
    });
    wait_until_in_flight(driver);
    driver.close();
    EXPECT_EQ(alone.get().code(), Code::kCancelled);
    int32_t value = 1;
    EXPECT_EQ(allreduce(driver, value).code(), Code::kCancelled) << "and later calls";
  }
}

/// As under heavy traffic of another group: there is always something to do.
TEST(DriverTest, AnEndedProcessIsNoticedByAProgressThreadThatNeverSleeps) {
  const pid_t child = fork();
  if (child == 0) {
    pause();
    _exit(0);
  }
  Pair pair({.spins = 0, .yields = 0}, child, {.spins = 0, .yields = UINT32_MAX});
  Driver& driver = *pair.drivers[0];
  int32_t value = 1;
  const auto waits = std::make_shared<WorkState>(std::vector{sum(value)});
  driver.submit(driver.engine().world(), waits);
  wait_until_in_flight(driver);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  ASSERT_TRUE(waits->wait(std::chrono::seconds(30)));
  EXPECT_EQ(waits->status().code(), Code::kUnavailable);
}

TEST(DriverTest, WhatATaskThrowsIsItsCallersAndTheNextCallGoesOn) {
  Pair pair({.spins = 0, .yields = 0});
  Driver& driver = *pair.drivers[0];
  const auto fail = [](Engine&) { throw std::bad_alloc(); };
  EXPECT_THROW(driver.call(fail), std::bad_alloc) << "on this thread";
  int32_t value = 1;
  auto alone = std::async(std::launch::async, [&] { return allreduce(driver, value); });
  wait_until_in_flight(driver);
  EXPECT_THROW(driver.call(fail), std::bad_alloc) << "on the progress thread, or this one";
  int32_t other = 2;
  EXPECT_TRUE(allreduce(*pair.drivers[1], other).ok());
  EXPECT_TRUE(alone.get().ok());
  EXPECT_EQ(value, 3);
}

/// Several threads of each rank bring parts, in any order, while the training thread of the other
/// one may still be asleep in its last wait.
TEST(DriverTest, BucketsAreReducedWhicheverThreadsBringTheirParts) {
  constexpr uint32_t kParts = 64, kThreads = 3, kGenerations = 100;
  Pair pair({.spins = 0, .yields = 0});
  const auto train = [&pair](size_t rank) {
    Driver& driver = *pair.drivers[rank];
    std::vector<float> memory(kParts);
    std::vector<BucketPart> parts;
    for (uint32_t i = 0; i < kParts; ++i) {
      parts.push_back({.name = std::to_string(i),
                       .bucket = i / 16,
                       .data = reinterpret_cast<std::byte*>(&memory[i]),
                       .count = 1});
    }
    std::unique_ptr<Buckets> buckets;
    driver.call([&](Engine& engine) {
      buckets =
          Buckets::create(engine, engine.world(), parts, {.reduce_op = ReduceOp::kAverage}).value();
    });
    for (uint64_t generation = 0; generation < kGenerations; ++generation) {
      std::vector<std::thread> threads;
      for (uint32_t t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
          for (uint32_t i = t; i < kParts; i += kThreads) {
            memory[i] = static_cast<float>(generation + i + 2 * rank);
            (void)driver.ready(*buckets, i);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      EXPECT_TRUE(driver.close(*buckets, generation, 0).ok());
      const Status status = driver.wait(*buckets, Buckets::kAll, std::chrono::seconds(30));
      ASSERT_TRUE(status.ok()) << status.to_string();
      for (uint32_t i = 0; i < kParts; ++i)
        ASSERT_EQ(memory[i], static_cast<float>(generation + i + 1));
      ASSERT_TRUE(buckets->next().ok());
    }
    driver.call([&](Engine& engine) { buckets->destroy(engine); });
  };
  std::thread other([&train] { train(1); });
  train(0);
  other.join();
}

}  // namespace
}  // namespace corro::runtime
