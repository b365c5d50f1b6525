// What every survivor is told when ranks die, stall or disagree: on the board and over streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

OpRequest allreduce(std::vector<float>& data) {
  OpRequest request;
  request.kind = OpKind::kAllreduce;
  request.dtype = DType::kF32;
  request.input = reinterpret_cast<const std::byte*>(data.data());
  request.output = reinterpret_cast<std::byte*>(data.data());
  request.count = data.size();
  return request;
}

struct Case {
  int32_t size;
  bool board;
  uint64_t count;
  bool commit = false;          ///< With closing rounds: nobody returns before all are told.
  std::string_view hosts = {};  ///< Of each rank, with two levels; empty: all on one.
  /// All ranks see what each has called.
  [[nodiscard]] bool sees_all() const { return board && hosts.empty(); }
};

class Failures : public ::testing::TestWithParam<Case> {
 protected:
  Failures()
      : world_(options(3)),
        data_(static_cast<size_t>(GetParam().size), std::vector<float>(GetParam().count, 1)) {}
  [[nodiscard]] static WorldOptions options(uint64_t seed) {
    const Case& c = GetParam();
    return {.size = c.size,
            .seed = seed,
            .board = c.board,
            .hosts = hosts_of(c.hosts),
            .selection = two_level_everywhere(),
            .commit = c.commit};
  }
  [[nodiscard]] int32_t size() const { return GetParam().size; }
  std::vector<float>& data(int32_t rank) { return data_[static_cast<size_t>(rank)]; }
  World::Works submit_all_but(int32_t missing) {
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      if (r != missing) works.push_back(world_.submit(r, {allreduce(data(r))}));
    }
    return works;
  }

  /// Rank 1 calls something else. Every rank gets an error with the text, from the operation or,
  /// where it had returned, from its next call; the group goes on.
  void expect_everyone_is_told(const std::function<void(OpRequest&)>& change,
                               const std::string& text) {
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      OpRequest request = allreduce(data(r));
      if (r == 1) change(request);
      works.push_back(world_.submit(r, {request}));
    }
    world_.run(works);
    int inside = 0;
    for (int32_t r = 0; r < size(); ++r) {
      Status status = works[static_cast<size_t>(r)]->status();
      if (status.ok()) {
        world_.pass_time(std::chrono::milliseconds(1));
        auto next = world_.submit(r, {allreduce(data(r))});
        if (next->done()) status = next->status();
      } else {
        ++inside;
      }
      EXPECT_EQ(status.code(), Code::kInvalidArgument) << status.to_string();
      EXPECT_THAT(status.message(), HasSubstr("called allreduce(f32[")) << "the other side";
      EXPECT_THAT(status.message(), HasSubstr(text));
      ASSERT_TRUE(status.detail().has_value()) << status.to_string();
      EXPECT_NE(status.detail()->op, "") << status.to_string();
    }
    EXPECT_GE(inside, GetParam().sees_all() || GetParam().commit ? size() : 1);
    expect_usable_again();
  }

  void expect_usable_again() {
    // Over streams a rank that had returned is told by its next call; so everyone calls until
    // nobody is told.
    for (int attempt = 0; attempt < 2; ++attempt) {
      World::Works works;
      world_.poll_rounds(100);
      for (int32_t r = 0; r < size(); ++r) {
        auto work = world_.submit(r, {allreduce(data(r))});
        if (work->done() && !work->status().ok()) work = world_.submit(r, {allreduce(data(r))});
        works.push_back(work);
      }
      world_.run(works);
      for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
    }
  }

  World world_;
  std::vector<std::vector<float>> data_;
};

TEST_P(Failures, AKilledRankIsNamedToEverySurvivor) {
  const int32_t victim = size() - 1;
  const World::Works works = submit_all_but(victim);
  world_.poll_rounds(3);
  const Time killed = world_.now();
  world_.kill(victim);
  world_.run(works);
  EXPECT_EQ(world_.now(), killed) << "it was a deadline that named the rank";
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kUnavailable);
    ASSERT_TRUE(work->status().detail().has_value());
    EXPECT_EQ(work->status().detail()->rank, victim);
    EXPECT_EQ(work->status().detail()->op, "allreduce");
    EXPECT_NE(work->status().detail()->phase, "");
  }
}

TEST_P(Failures, KilledInTheMiddleAtEveryPointEndsForAllSurvivors) {
  for (int rounds = 0; rounds < 40; rounds += 3) {
    World world(options(static_cast<uint64_t>(rounds)));
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) works.push_back(world.submit(r, {allreduce(data(r))}));
    world.poll_rounds(rounds);
    world.kill(0);
    works.erase(works.begin());
    world.run(works);
    for (const auto& work : works) {
      // It may have completed before the death; else it says who.
      if (work->status().ok()) continue;
      EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
      EXPECT_EQ(work->status().detail()->rank, 0) << work->status().to_string();
    }
  }
}

TEST_P(Failures, AfterALossEveryCallFailsFastWithTheSameCause) {
  world_.kill(0);
  const auto work = world_.submit(1, {allreduce(data(1))});
  ASSERT_TRUE(work->done());
  EXPECT_EQ(work->status().code(), Code::kUnavailable);
  EXPECT_EQ(work->status().detail()->rank, 0);
  EXPECT_EQ(work->status().detail()->op, "allreduce") << "the one that was called now";
  EXPECT_EQ(work->status().detail()->phase, "queued");
}

TEST_P(Failures, ARankThatNeverCallsIsNamedWithWhatItDidLast) {
  std::vector<Status> first = world_.run_all([this](int32_t r) { return allreduce(data(r)); });
  for (const Status& status : first) ASSERT_TRUE(status.ok()) << status.to_string();
  const int32_t absent = size() - 1;
  const World::Works works = submit_all_but(absent);
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded) << work->status().to_string();
    EXPECT_EQ(work->status().detail()->rank, absent) << work->status().to_string();
    // With two levels not every pair of ranks exchanges messages.
    const std::string& message = work->status().message();
    const bool untold = message.find("nothing yet") != std::string::npos;
    EXPECT_TRUE(untold ? !GetParam().hosts.empty()
                       : message.find("#1 allreduce(f32[") != std::string::npos)
        << message;
  }
}

TEST_P(Failures, ARankThatNeverCallsIsNamedByThoseWhoWaitForOthersToo) {
  // A large broadcast goes from neighbour to neighbour: the last ones never talk to the root.
  std::vector<std::vector<float>> large(static_cast<size_t>(size()),
                                        std::vector<float>(1U << 18U, 1));
  for (const int32_t absent : {0, size() - 1}) {
    World world(options(7));
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      OpRequest request = allreduce(large[static_cast<size_t>(r)]);
      request.kind = OpKind::kBroadcast;
      if (r != absent) works.push_back(world.submit(r, {request}));
    }
    world.run(works);
    for (const auto& work : works) {
      if (work->status().ok()) continue;  // It did not need the absent one.
      EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded) << work->status().to_string();
      EXPECT_EQ(work->status().detail()->rank, absent) << work->status().to_string();
    }
  }
}

TEST_P(Failures, DifferentCountsAreAnErrorOnEveryRankSoonerOrLater) {
  std::vector<float> longer(GetParam().count + 1, 1);
  expect_everyone_is_told([&](OpRequest& request) { request = allreduce(longer); },
                          fmt::format("rank 1 called allreduce(f32[{}], sum)", longer.size()));
}

TEST_P(Failures, DifferentOperationsAreAnErrorOnEveryRankSoonerOrLater) {
  expect_everyone_is_told([](OpRequest& request) { request.kind = OpKind::kBroadcast; },
                          "rank 1 called broadcast(f32[");
}

TEST_P(Failures, DifferentDTypesAreAnErrorOnEveryRankSoonerOrLater) {
  expect_everyone_is_told([](OpRequest& request) { request.dtype = DType::kI32; },
                          "rank 1 called allreduce(i32[");
}

TEST_P(Failures, DifferentReduceOpsAreAnErrorOnEveryRankSoonerOrLater) {
  expect_everyone_is_told([](OpRequest& request) { request.reduce_op = ReduceOp::kMax; }, ", max)");
}

TEST_P(Failures, DifferentShapesOfOneCountAreAnErrorOnEveryRankSoonerOrLater) {
  expect_everyone_is_told(
      [](OpRequest& request) {
        request.shape = collective::pack_shape(std::vector<uint64_t>{1, GetParam().count});
      },
      fmt::format("rank 1 called allreduce(f32[1,{}], sum)", GetParam().count));
}

TEST_P(Failures, DifferentScalesAreAnErrorOnEveryRankSoonerOrLater) {
  expect_everyone_is_told([](OpRequest& request) { request.prescale = 0.5; },
                          "with other scales or other counts per rank");
}

TEST_P(Failures, AReceiveThatDoesNotFitItsMessageNamesBothAndTheGroupGoesOn) {
  const auto exchange = [this](const std::function<void(OpRequest&)>& change) {
    OpRequest send = allreduce(data(0)), recv = allreduce(data(1));
    send.kind = OpKind::kSend;
    send.root = 1;
    recv.kind = OpKind::kRecv;
    recv.root = 0;
    change(recv);
    World::Works works = {world_.submit(0, {send}), world_.submit(1, {recv})};
    world_.run(works);
    EXPECT_TRUE(works[0]->status().ok()) << works[0]->status().to_string();
    return works[1]->status();
  };
  const uint64_t count = GetParam().count;
  const Status smaller = exchange([](OpRequest& recv) { --recv.count; });
  EXPECT_EQ(smaller.code(), Code::kInvalidArgument) << smaller.to_string();
  EXPECT_THAT(smaller.message(),
              HasSubstr(fmt::format("rank 1 called recv(f32[{}]), rank 0 called send(f32[{}])",
                                    count - 1, count)));
  const Status of_integers = exchange([](OpRequest& recv) { recv.dtype = DType::kI32; });
  EXPECT_THAT(of_integers.message(), HasSubstr("rank 1 called recv(i32["));
  data(0).assign(count, 7);
  const Status fitting = exchange([](OpRequest&) {});
  EXPECT_TRUE(fitting.ok()) << fitting.to_string();
  EXPECT_EQ(data(1), data(0));
  expect_usable_again();
}

TEST_P(Failures, WhoWaitsForAMessageHearsWhyTheGroupFailed) {
  // Rank 1 waits for a message of rank 0, whose own operation nobody else calls.
  float value = 0;
  const auto receives = world_.submit(1, {{.kind = OpKind::kRecv,
                                           .dtype = DType::kF32,
                                           .root = 0,
                                           .output = reinterpret_cast<std::byte*>(&value),
                                           .count = 1,
                                           .timeout = std::chrono::hours(1)}});
  OpRequest request = allreduce(data(0));
  request.timeout = std::chrono::seconds(2);
  const auto expires = world_.submit(0, {request});
  const Time before = world_.now();
  world_.run({expires, receives});
  EXPECT_EQ(expires->status().code(), Code::kDeadlineExceeded) << expires->status().to_string();
  EXPECT_EQ(receives->status().code(), Code::kDeadlineExceeded) << receives->status().to_string();
  EXPECT_THAT(receives->status().message(), HasSubstr("for 2 s"));
  EXPECT_LT(world_.now() - before, std::chrono::minutes(1));
}

TEST_P(Failures, ALateRankIsToldThatItWasLateAndNotThatItWaitedForItself) {
  world_.run(submit_all_but(-1));
  const World::Works works = submit_all_but(0);
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_THAT(work->status().message(),
                AnyOf(HasSubstr("waited for rank 0"), HasSubstr("rank 0 was late: rank ")));
  }
  world_.poll_rounds(100);  // What others left on the board would be enough for a small operation.
  for (int call = 0; call < 2; ++call) {
    const auto late = world_.submit(0, {allreduce(data(0))});
    world_.run({late});
    EXPECT_EQ(late->status().code(), Code::kDeadlineExceeded) << late->status().to_string();
    EXPECT_THAT(late->status().message(), HasSubstr("rank 0 was late: rank "));
    EXPECT_THAT(late->status().message(), Not(HasSubstr("for rank 0")));
    EXPECT_EQ(late->status().detail()->rank, 0);
  }
}

TEST_P(Failures, ARankThatStandsStillInsideIsNotToldThatItWaitedForItself) {
  for (int rounds = 0; rounds < 24; rounds += 2) {
    World world(options(static_cast<uint64_t>(rounds)));
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) works.push_back(world.submit(r, {allreduce(data(r))}));
    world.poll_rounds(rounds);
    world.stop(0);
    world.run({works.begin() + 1, works.end()});
    world.resume(0);
    world.run({works[0]});
    const std::string& message = works[0]->status().message();
    EXPECT_THAT(message, Not(HasSubstr("waited for rank 0"))) << rounds;
    EXPECT_THAT(message, Not(HasSubstr("because of rank 0"))) << rounds;
  }
}

TEST_P(Failures, WhoIsLateWithAMessageIsNamedToAll) {
  OpRequest request = allreduce(data(1));
  request.kind = OpKind::kRecv;
  request.root = 0;
  const auto waits = world_.submit(1, {request});
  world_.run({waits});
  EXPECT_THAT(waits->status().message(),
              HasSubstr("on rank 1 (phase transfer): waited for rank 0"));
  for (int32_t r = 0; r < size(); ++r) {
    if (r == 1) continue;
    const auto later = world_.submit(r, {allreduce(data(r))});
    world_.run({later});
    EXPECT_THAT(later->status().message(), HasSubstr("rank 0 was late: rank 1 ")) << r;
  }
}

TEST_P(Failures, AStoppedRankEndsInADeadlineAndNotInAHang) {
  world_.stop(0);
  World::Works works = submit_all_but(0);
  world_.run(works);
  for (const auto& work : works) EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded);
}

TEST_P(Failures, ALossIsNamedBeforeTheQueueOfAnotherGroup) {
  constexpr size_t kQueued = 1000;
  const int32_t victim = size() - 1;
  std::vector<runtime::Group*> alone;  // Made on every rank, without the one that dies.
  for (int32_t r = 0; r < size(); ++r) alone.push_back(world_.engine(r).create_group({0}).value());
  std::vector<float> number(1, 1);
  World::Works works = submit_all_but(victim);
  std::vector<std::shared_ptr<runtime::WorkState>> queue;
  for (size_t i = 0; i < kQueued; ++i)
    queue.push_back(world_.submit(world_.engine(0), *alone[0], {allreduce(number)}));
  world_.kill(victim);
  EXPECT_TRUE(works[0]->done());
  EXPECT_FALSE(queue.back()->done()) << "what has nothing to do with the lost rank comes later";
  world_.run(queue);
  EXPECT_TRUE(queue.back()->status().ok());
}

TEST_P(Failures, ARankThatIsWaitedForIsSuspectAndNothingEndsByThat) {
  const Time submitted = world_.now();
  world_.stop(0);
  World::Works works = submit_all_but(0);
  while (world_.now() - submitted < 2 * runtime::kSuspectAfter) {
    world_.poll_rounds(50);
    world_.pass_time(std::chrono::seconds(1));
  }
  for (const auto& work : works) EXPECT_FALSE(work->done()) << "a late rank loses nothing";
  uint64_t suspecting = 0;
  for (int32_t r = 1; r < size(); ++r) {
    suspecting += world_.engine(r).recorder().metrics().value(obs::Metric::kSuspects);
  }
  EXPECT_GE(suspecting, 1U);
  world_.resume(0);
  works.push_back(world_.submit(0, {allreduce(data(0))}));
  world_.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
}

TEST_P(Failures, ARankThatLeavesInAnOrderlyWayFailsOnlyThoseWhoWaitForIt) {
  world_.engine(0).close();
  World::Works works = submit_all_but(0);
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
    EXPECT_THAT(work->status().message(), HasSubstr("rank 0 has left the job"));
  }
}

TEST_P(Failures, InvalidRequestsAreRefusedBeforeAnythingIsSent) {
  OpRequest request = allreduce(data(0));
  request.kind = OpKind::kBroadcast;
  request.root = size();
  const auto work = world_.submit(0, {request});
  ASSERT_TRUE(work->done());
  EXPECT_EQ(work->status().code(), Code::kInvalidArgument);
  expect_usable_again();
}

INSTANTIATE_TEST_SUITE_P(
    All, Failures,
    ::testing::Values(Case{2, true, 5}, Case{3, true, 5}, Case{5, true, 100000}, Case{2, false, 5},
                      Case{3, false, 5}, Case{5, false, 100000}, Case{3, true, 5, true},
                      Case{5, true, 100000, true}, Case{3, false, 5, true},
                      Case{5, false, 100000, true}, Case{4, true, 5, false, "0011"},
                      Case{3, true, 5, false, "010"}, Case{6, true, 100000, false, "011222"},
                      Case{4, true, 5, true, "0001"}, Case{5, true, 100000, true, "01011"}),
    [](const auto& test) {
      const Case& c = test.param;
      const std::string ways = c.board ? "_board_" : "_streams_";
      return std::to_string(c.size) +
             (c.hosts.empty() ? ways : fmt::format("_hosts_{}_", c.hosts)) +
             std::to_string(c.count) + (c.commit ? "_commit" : "");
    });

}  // namespace
}  // namespace corro::testing
