// Named operations that go wrong: ranks that disagree, are missing, die, leave or close.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using ::testing::AllOf;
using ::testing::HasSubstr;

class NamedFailures : public ::testing::TestWithParam<NamedCase> {
 protected:
  NamedFailures() : world_(GetParam().world(11)), tensors_(GetParam().size, 4) {}
  [[nodiscard]] int32_t size() const { return GetParam().size; }

  std::shared_ptr<runtime::WorkState> submit(int32_t rank, const std::string& name,
                                             uint64_t count = 6) {
    auto& tensor = owned_.emplace_back(
        std::make_unique<Tensor>(Tensor{name, std::vector<float>(count, 1.0F)}));
    return submit_named(world_, rank, tensor->request());
  }
  World::Works submit_all_but(int32_t absent, const std::string& name) {
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      if (r != absent) works.push_back(submit(r, name));
    }
    return works;
  }
  void expect_ok(const World::Works& works) {
    world_.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  }
  /// By name and by call.
  void expect_usable() {
    expect_ok(submit_all_but(-1, "usable"));
    for (const Status& status :
         world_.run_all([this](int32_t r) { return tensors_.of(r)[0].request(); })) {
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
  /// Until a step needs no message: it is a plan.
  void repeat_step() {
    uint64_t before = 0;
    for (int round = 0; round < 400; ++round) {
      before = named_messages(world_);
      World::Works works;
      for (const char* name : {"a", "b", "c", "d"}) {
        for (int32_t r = 0; r < size(); ++r) works.push_back(submit(r, name));
      }
      expect_ok(works);
      if (named_messages(world_) == before) return;
    }
    FAIL() << "the step has not become a plan";
  }

  World world_;
  Tensors tensors_;
  std::vector<std::unique_ptr<Tensor>> owned_;
};

TEST_P(NamedFailures, WhoIsWaitedForByNameIsSeenInTheFlightRecorder) {
  if (size() == 1) return;
  const int32_t absent = size() - 1;
  const auto works = submit_all_but(absent, "late");
  world_.poll_rounds(50);
  EXPECT_EQ(obs::longest_wait(world_.engine(0).recorder().snapshot()), nullptr);
  world_.pass_time(std::chrono::seconds(2));
  world_.poll_rounds(100);
  for (int32_t r = 0; r < absent; ++r) {
    const auto seen = world_.engine(r).recorder().snapshot();
    const obs::OpSnapshot* wait = obs::longest_wait(seen);
    ASSERT_NE(wait, nullptr) << r;
    EXPECT_EQ(wait->name, "late");
    EXPECT_EQ(wait->waiting_for, absent);
    EXPECT_EQ(wait->op.op_id, obs::kNoOpId);
  }
  auto all = works;
  all.push_back(submit(absent, "late"));
  expect_ok(all);
  for (int32_t r = 0; r < size(); ++r)
    EXPECT_EQ(obs::longest_wait(world_.engine(r).recorder().snapshot()), nullptr) << r;
}

TEST_P(NamedFailures, ADifferenceNamesBothSidesOnEveryRankAndTheGroupGoesOn) {
  World::Works works = submit_all_but(1, "x");
  works.push_back(submit(1, "x", 7));
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kInvalidArgument);
    EXPECT_THAT(work->status().message(), AllOf(HasSubstr("\"x\""), HasSubstr("f32[6]"),
                                                HasSubstr("rank 1"), HasSubstr("f32[7]")));
    EXPECT_EQ(work->status().detail()->op, "allreduce");
  }
  expect_ok(submit_all_but(-1, "x"));
  expect_usable();
}

TEST_P(NamedFailures, ARankThatNeverSubmitsIsNamedAndTheGroupGoesOn) {
  for (int32_t absent = 0; absent < size(); ++absent) {
    SCOPED_TRACE(absent);
    const std::string name = fmt::format("without {}", absent);
    const World::Works works = submit_all_but(absent, name);
    world_.run(works);
    for (const auto& work : works) {
      EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded);
      EXPECT_THAT(work->status().message(),
                  AllOf(HasSubstr(name), HasSubstr(fmt::format("not submitted by rank {}", absent)),
                        HasSubstr("60 s")));
      EXPECT_EQ(work->status().detail()->rank, absent);
      EXPECT_EQ(work->status().detail()->phase, "negotiate");
    }
    expect_usable();
  }
}

TEST_P(NamedFailures, WhoSubmitsLateWaitsUntilTheOthersSubmitAgain) {
  for (int32_t late = 0; late < size(); ++late) {
    SCOPED_TRACE(late);
    const std::string name = fmt::format("late {}", late);
    world_.run(submit_all_but(late, name));
    world_.poll_rounds(20);
    const auto work = submit(late, name);
    world_.run({work});
    EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded);
    const int32_t other = late == 0 ? 1 : 0;
    EXPECT_EQ(work->status().detail()->rank, other) << work->status().to_string();

    const auto again = submit(late, name);
    world_.poll_rounds(20);
    World::Works works = submit_all_but(late, name);
    works.push_back(again);
    expect_ok(works);
    expect_usable();
  }
}

TEST_P(NamedFailures, ANameGivenUpMayReturnWithAnotherShapeWhileTheLeaderRests) {
  WorldOptions options = GetParam().world(3);
  options.rests = true;
  World world(options);
  const int32_t hasty = size() - 1;
  Tensor shorter{.name = "x", .data = std::vector<float>(6, 1)};
  const auto given_up = submit_named(world, hasty, shorter.request());
  world.run({given_up});
  EXPECT_EQ(given_up->status().code(), Code::kDeadlineExceeded);

  std::vector<Tensor> longer(static_cast<size_t>(size()),
                             {.name = "x", .data = std::vector<float>(7, 1)});
  World::Works works;
  for (int32_t r = hasty; r >= 0; --r) {  // The leader is the last.
    works.push_back(submit_named(world, r, longer[static_cast<size_t>(r)].request()));
    world.poll_rounds(20);
  }
  world.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  for (const Tensor& tensor : longer) {
    EXPECT_EQ(tensor.data, std::vector<float>(7, static_cast<float>(size())));
  }
}

TEST_P(NamedFailures, AfterADeadlineNobodyHasAnythingToWakeUpFor) {
  world_.run(submit_all_but(0, "x"));
  world_.poll_rounds(100);
  for (int32_t r = 0; r < size(); ++r) {
    EXPECT_TRUE(world_.engine(r).idle()) << r;
    EXPECT_EQ(world_.engine(r).next_deadline(), Time::never());
  }
}

TEST_P(NamedFailures, GivingUpWhileTheLeaderDecidesEndsTheOperationOnEveryRank) {
  int crossed = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    World world(GetParam().world(seed));
    Tensors tensors(size(), 2);
    const int32_t hasty = size() - 1;
    World::Works works;
    for (int32_t r = hasty; r >= 0; --r) {
      if (r == 0) {  // The leader is the last, when the time of the hasty one is over.
        world.poll_rounds(20);
        for (const int ms : {800, 300}) {
          world.poll_rounds(ms == 300 ? 20 : 0);
          world.pass_time(std::chrono::milliseconds(ms));
        }
      }
      OpRequest request = tensors.of(r)[0].request();
      request.timeout = std::chrono::seconds(r == hasty ? 1 : 50);
      works.push_back(submit_named(world, r, request));
    }
    world.run({works.front()});
    if (works.front()->status().ok()) continue;
    EXPECT_EQ(works.front()->status().code(), Code::kDeadlineExceeded);
    world.poll_rounds(50);
    const bool decided = works.back()->done();
    crossed += decided ? 1 : 0;
    if (!decided) works.push_back(submit_named(world, hasty, tensors.of(hasty)[0].request()));
    works.erase(works.begin());
    world.run(works);
    for (const auto& work : works) {
      EXPECT_EQ(work->status().ok(), !decided) << work->status().to_string();
      if (decided) {
        EXPECT_THAT(work->status().message(), HasSubstr("given up by a rank"));
      }
    }
    works.clear();
    for (int32_t r = 0; r < size(); ++r)
      works.push_back(submit_named(world, r, tensors.of(r)[1].request()));
    world.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  }
  EXPECT_GT(crossed, 0);
}

TEST_P(NamedFailures, WhatWasGivenUpRunsWhenItIsSubmittedAgain) {
  world_.run(submit_all_but(1, "again"));
  expect_ok(submit_all_but(-1, "again"));
  expect_usable();
}

TEST_P(NamedFailures, AnOperationsOwnDeadlineCounts) {
  OpRequest request = tensors_.of(0)[1].request();
  request.timeout = std::chrono::milliseconds(200);
  const Time before = world_.now();
  const auto work = submit_named(world_, 0, request);
  world_.run({work});
  EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded);
  EXPECT_LT(world_.now() - before, std::chrono::seconds(1));
  EXPECT_THAT(work->status().message(), HasSubstr("rank 1"));
}

TEST_P(NamedFailures, ANameThatWaitsCannotBeSubmittedTwice) {
  const auto first = submit(0, "twice");
  const auto second = submit(0, "twice");
  ASSERT_TRUE(second->done());
  EXPECT_EQ(second->status().code(), Code::kAlreadyExists);
  World::Works works = submit_all_but(0, "twice");
  works.push_back(first);
  expect_ok(works);
}

TEST_P(NamedFailures, WhatHasNoNameOrCannotHaveOneIsRefused) {
  EXPECT_EQ(submit(0, "")->status().code(), Code::kInvalidArgument);
  EXPECT_EQ(submit(0, std::string(600, 'x'))->status().code(), Code::kInvalidArgument);
  OpRequest send = tensors_.of(0)[0].request(OpKind::kSend);
  send.root = 1;
  EXPECT_THAT(submit_named(world_, 0, send)->status().message(), HasSubstr("tag"));
  expect_usable();
}

TEST_P(NamedFailures, ALostRankFailsWhatWaitsForItsName) {
  for (int rounds = 0; rounds < 40; rounds += 3) {
    SCOPED_TRACE(rounds);
    World world(GetParam().world(static_cast<uint64_t>(rounds)));
    Tensors tensors(size(), 20);
    const int32_t victim = rounds % size();
    World::Works works;
    for (int32_t r = 0; r < size(); ++r) {
      for (Tensor& tensor : tensors.of(r)) {
        auto work = submit_named(world, r, tensor.request());
        if (r != victim) works.push_back(work);
      }
    }
    world.poll_rounds(rounds);
    world.kill(victim);
    world.run(works);
    for (const auto& work : works) {
      if (work->status().ok()) continue;
      EXPECT_EQ(work->status().code(), Code::kUnavailable) << work->status().to_string();
      EXPECT_EQ(work->status().detail()->rank, victim) << work->status().to_string();
      EXPECT_EQ(work->status().detail()->op, "allreduce");
    }
    const int32_t survivor = (victim + 1) % size();
    const auto next = submit_named(world, survivor, tensors.of(survivor)[0].request());
    ASSERT_TRUE(next->done());
    EXPECT_EQ(next->status().detail()->rank, victim);
    EXPECT_EQ(world.engine(survivor).next_deadline(), Time::never());
  }
}

TEST_P(NamedFailures, ARankThatLeavesFailsTheNamesItHasNotSubmitted) {
  const int32_t leaver = size() - 1;
  const World::Works works = submit_all_but(leaver, "x");
  world_.poll_rounds(10);
  world_.engine(leaver).close();
  world_.run(works);
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kUnavailable);
    EXPECT_THAT(work->status().message(), HasSubstr(fmt::format("rank {} has left", leaver)));
  }
}

TEST_P(NamedFailures, ClosingEndsWhatWaits) {
  const auto work = submit(0, "x");
  world_.poll_rounds(3);
  world_.engine(0).close();
  ASSERT_TRUE(work->done());
  EXPECT_EQ(work->status().code(), Code::kCancelled);
  EXPECT_TRUE(world_.engine(0).idle());
}

TEST_P(NamedFailures, AFailureOfTheGroupEndsWhatWaitsForItsNameEverywhere) {
  const World::Works named = submit_all_but(0, "x");
  // Rank 1 alone calls: its deadline, which is sooner, ends the group.
  OpRequest request = tensors_.of(1)[0].request();
  request.timeout = std::chrono::seconds(1);
  const auto called = world_.submit(1, {request});
  world_.run({called});
  EXPECT_EQ(called->status().code(), Code::kDeadlineExceeded);
  world_.run(named);
  for (const auto& work : named) {
    EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded);
    EXPECT_THAT(work->status().message(), HasSubstr("waited for "));
  }
}

TEST_P(NamedFailures, ADifferenceInsideAPlanIsAnErrorAndTheGroupGoesOn) {
  repeat_step();
  for (int32_t other = 0; other < size(); ++other) {
    SCOPED_TRACE(other);
    World::Works works = submit_all_but(other, "a");
    world_.poll_rounds(20);
    const auto different = submit(other, "a", 9);
    works.push_back(different);
    world_.run(works);
    for (const auto& work : works) {
      EXPECT_EQ(work->status().code(), Code::kInvalidArgument) << work->status().to_string();
      EXPECT_THAT(work->status().message(), AllOf(HasSubstr("f32[6]"), HasSubstr("f32[9]")));
    }
    // The rest of the bucket, if "a" had company, fails or waits as one.
    world_.poll_rounds(50);
    expect_usable();
    repeat_step();
  }
}

TEST_P(NamedFailures, AMissingRankInsideAPlanIsNamed) {
  repeat_step();
  const int32_t absent = size() - 1;
  const World::Works works = submit_all_but(absent, "a");
  world_.run(works);
  bool named = false;
  for (const auto& work : works) {
    EXPECT_EQ(work->status().code(), Code::kDeadlineExceeded) << work->status().to_string();
    named = named || work->status().detail()->rank == absent;
  }
  EXPECT_TRUE(named) << works.front()->status().to_string();
}

INSTANTIATE_TEST_SUITE_P(All, NamedFailures,
                         ::testing::Values(NamedCase{2, true, 1U << 16U},
                                           NamedCase{4, true, 1U << 16U}, NamedCase{4, true, 0},
                                           NamedCase{2, false, 1U << 16U},
                                           NamedCase{3, false, 1U << 16U}, NamedCase{3, false, 0}),
                         name_of_named_case);

}  // namespace
}  // namespace corro::testing
