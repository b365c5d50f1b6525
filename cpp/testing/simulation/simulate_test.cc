// The simulation finds what is wrong with a schedule, and its times are those of the models.
#include "testing/simulation/simulate.h"

#include <functional>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::collective {
namespace {

using testing::HasSubstr;

std::vector<Problem> group(Problem problem) {
  std::vector<Problem> problems;
  for (problem.rank = 0; problem.rank < problem.size; ++problem.rank) problems.push_back(problem);
  return problems;
}

/// Everything that is said about a group's schedules after `spoil` has changed rank 1's.
std::string complaint(const Problem& problem, Algorithm algorithm,
                      const std::function<void(Schedule&)>& spoil) {
  const std::vector<Problem> problems = group(problem);
  std::vector<Schedule> schedules = generate_all(problems, algorithm);
  spoil(schedules[1]);
  std::string text;
  if (const Status status = check_messages(schedules); !status.ok())
    text += status.message() + "\n";
  if (const Status status = check_memory(problems[1], schedules[1]); !status.ok()) {
    text += status.message() + "\n";
  }
  if (const Status status = simulate(problems, schedules, {}); !status.ok())
    text += status.message();
  return text;
}

Step& first_of(Schedule& schedule, StepKind kind) {
  for (Step& step : schedule.steps) {
    if (step.kind == kind) return step;
  }
  throw std::logic_error("no such step");
}

const Problem kAllreduceOfThree{.kind = OpKind::kAllreduce, .size = 3, .count = 30};

TEST(Simulate, SaysNothingOfRightSchedules) {
  EXPECT_EQ(complaint(kAllreduceOfThree, Algorithm::kTwoShot, [](Schedule&) {}), "");
}

TEST(Simulate, FindsALostMessage) {
  const std::string text = complaint(kAllreduceOfThree, Algorithm::kTwoShot, [](Schedule& s) {
    std::erase_if(s.steps,
                  [](const Step& step) { return step.kind == StepKind::kSend && step.peer == 2; });
  });
  EXPECT_THAT(text, HasSubstr("deadlock: rank 2 waits"));
  EXPECT_THAT(text, HasSubstr("sent:"));
}

TEST(Simulate, FindsAWrongTag) {
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kTwoShot,
                        [](Schedule& s) { first_of(s, StepKind::kSend).tag += 100; }),
              HasSubstr("deadlock"));
}

TEST(Simulate, FindsATagUsedTwice) {
  const std::vector<Problem> problems = group({.kind = OpKind::kBarrier, .size = 2});
  std::vector<Schedule> schedules = generate_all(problems, Algorithm::kDirect);
  for (Schedule& schedule : schedules) {
    schedule.steps.insert(schedule.steps.end(), schedule.steps.begin(), schedule.steps.end());
  }
  EXPECT_THAT(check_messages(schedules).message(), HasSubstr("a tag is used twice"));
}

TEST(Simulate, FindsASourceLeftOut) {
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kOneShot,
                        [](Schedule& s) { --first_of(s, StepKind::kReduce).sources_count; }),
              HasSubstr("wrong contributions"));
}

TEST(Simulate, FindsAPostScaleLeftOutOrAppliedTwice) {
  const auto forget = [](Schedule& s) { first_of(s, StepKind::kReduce).final_fold = false; };
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kOneShot, forget),
              HasSubstr("post-scale missing"));
  const auto hurry = [](Schedule& s) { first_of(s, StepKind::kReduce).final_fold = true; };
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kRing, hurry), HasSubstr("folds a result"));
}

TEST(Simulate, FindsAnotherOrderOfFolding) {
  const auto swap = [](Schedule& s) { std::swap(s.sources[0], s.sources[1]); };
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kOneShot, swap), HasSubstr("another order"));
  const Problem four{.kind = OpKind::kAllreduce, .size = 4, .count = 3};
  EXPECT_THAT(complaint(four, Algorithm::kRecursiveDoubling, swap), HasSubstr("another order"))
      << "ranks would get different bits";
}

TEST(Simulate, FindsABufferOverwrittenWhileItIsSent) {
  EXPECT_THAT(complaint(kAllreduceOfThree, Algorithm::kTwoShot,
                        [](Schedule& s) {
                          for (Step& step : s.steps) step.round = 0;
                        }),
              HasSubstr("at the same time"));
}

TEST(Simulate, FindsStrandsThatShareScratch) {
  Problem problem = kAllreduceOfThree;
  problem.chunk_count = 2;
  EXPECT_THAT(complaint(problem, Algorithm::kTwoShot, [](Schedule& s) { ++s.strand_window; }),
              HasSubstr("at the same time"));
}

TEST(Simulate, FindsAWriteToTheInputAndOneOutsideABuffer) {
  EXPECT_THAT(
      complaint(kAllreduceOfThree, Algorithm::kOneShot,
                [](Schedule& s) { first_of(s, StepKind::kReduce).into.buffer = Buffer::kInput; }),
      HasSubstr("writes to the input"));
  const std::vector<Problem> problems = group(kAllreduceOfThree);
  Schedule schedule = generate(problems[1], Algorithm::kOneShot);
  schedule.scratch_count /= 2;
  EXPECT_THAT(check_memory(problems[1], schedule).message(), HasSubstr("outside its buffer"));
}

// --- Time ---

double time_of(const Problem& problem, Algorithm algorithm, const LinkModel& link) {
  return simulated_time_us(generate_all(group(problem), algorithm), 4, {link, link});
}

TEST(SimulatedTime, IsLatencyOverheadAndBytesForOneMessage) {
  const LinkModel link{.latency_us = 10, .overhead_us = 2, .us_per_byte = 0.5};
  const Problem problem{.kind = OpKind::kBroadcast, .size = 2, .count = 100};
  EXPECT_DOUBLE_EQ(time_of(problem, Algorithm::kDirect, link), 10 + 2 + 400 * 0.5);
}

TEST(SimulatedTime, PassesOneMessageAtATimeThroughAPort) {
  const LinkModel link{.latency_us = 10, .overhead_us = 0, .us_per_byte = 0.5};
  EXPECT_DOUBLE_EQ(
      time_of({.kind = OpKind::kScatter, .size = 5, .count = 100}, Algorithm::kDirect, link),
      10 + 4 * 200);
  EXPECT_DOUBLE_EQ(
      time_of({.kind = OpKind::kGather, .size = 5, .count = 100}, Algorithm::kDirect, link),
      10 + 4 * 200);
}

/// The times of the optimal split between n = 4 contributors and k aggregators, in units of (vector
/// / bandwidth): 2 n (n - 1) / (n^2 + k n - 2 k). The closed form says the same.
TEST(SimulatedTime, ReproducesTheOptimalSplit) {
  constexpr double kWant[] = {1.5, 24.0 / 18, 24.0 / 20, 24.0 / 22, 1.0};
  for (int32_t k = 0; k <= 4; ++k) {
    const auto algorithm = k == 0 ? Algorithm::kTwoShot : Algorithm::kServed;
    const Problem problem{.kind = OpKind::kAllreduce,
                          .size = 4 + k,
                          .count = 1 << 20,
                          .aggregators = k,
                          .chunk_count = 1 << 10};
    // As slow as this, so that copies in memory do not count.
    const LinkModel link{.latency_us = 0, .overhead_us = 0, .us_per_byte = 1};
    constexpr double kVector = 4 << 20;
    const double model =
        modelled_costs_us(problem, 4, {link, link})[static_cast<size_t>(algorithm)] / kVector;
    EXPECT_NEAR(time_of(problem, algorithm, link) / kVector, kWant[k], 0.02 * kWant[k]) << k;
    EXPECT_NEAR(model, kWant[k], 0.02 * kWant[k]) << k;
  }
}

}  // namespace
}  // namespace corro::collective
