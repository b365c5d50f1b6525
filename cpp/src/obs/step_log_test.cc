#include "obs/step_log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "obs/flight_recorder.h"

namespace corro::obs {
namespace {

using namespace std::chrono_literals;

std::unique_ptr<FlightRecorder> recorder() {
  return std::move(FlightRecorder::create({.rank = 1, .size = 2, .capacity = 4})).value();
}

Status log_one(FlightRecorder& recorder, std::string_view name, double value, uint64_t step = 1) {
  return recorder.steps().log(step, std::vector<NamedValue>{{.name = name, .value = value}});
}

TEST(StepLog, ShowsTheNewestValueOfEachNameInTheirOrder) {
  auto made = recorder();
  EXPECT_TRUE(read_flight(made->fd())->logged.empty());
  ASSERT_TRUE(made->steps().log(3, std::vector<NamedValue>{{"loss", 0.5}, {"güte", 0.9}}).ok());
  ASSERT_TRUE(log_one(*made, "loss", std::numeric_limits<double>::infinity(), 4).ok());
  const std::vector<LoggedValue> expected = {
      {.name = "loss", .value = std::numeric_limits<double>::infinity(), .step = 4},
      {.name = "güte", .value = 0.9, .step = 3}};
  EXPECT_EQ(read_flight(made->fd())->logged, expected) << "through the memory";
}

TEST(StepLog, CountsStepsByWhatTheyTook) {
  auto made = recorder();
  const Time start{};
  made->steps().set_step(1, start);
  made->steps().add_wait(1ms);
  made->steps().set_step(2, start + 4ms);
  made->steps().set_step(5, start + 4ms + 3s);
  const StepHistograms steps = read_flight(made->fd())->steps;
  EXPECT_EQ(steps.taken.count(), 4U);
  EXPECT_EQ(steps.taken.counts[bucket_of(4ms)], 1U);
  EXPECT_EQ(steps.taken.counts[bucket_of(1s)], 3U) << "three steps that were told at once";
  EXPECT_EQ(steps.taken.sum_ns, 3'004'000'000U);
  EXPECT_EQ(steps.waited.counts[bucket_of(1ms)], 4U);
  EXPECT_EQ(steps.waited.sum_ns, 1'000'000U);
}

TEST(StepLog, ShowsThatAValueIsNoNumber) {
  auto made = recorder();
  ASSERT_TRUE(log_one(*made, "loss", std::nan("")).ok());
  EXPECT_TRUE(std::isnan(made->snapshot().logged.at(0).value));
}

TEST(StepLog, TakesSixteenNamesAndRefusesTheNextWithAllThatIsWithIt) {
  auto made = recorder();
  for (size_t i = 0; i < kMostLogged; ++i)
    ASSERT_TRUE(log_one(*made, "name " + std::to_string(i), 1).ok());
  const Status refused =
      made->steps().log(2, std::vector<NamedValue>{{"name 0", 7}, {"one more", 8}});
  EXPECT_EQ(refused.code(), Code::kResourceExhausted);
  EXPECT_NE(refused.message().find("'one more' would be name 17"), std::string::npos)
      << refused.message();
  EXPECT_EQ(made->snapshot().logged.at(0).value, 1) << "all or none";
  EXPECT_EQ(made->snapshot().logged.size(), kMostLogged);
  EXPECT_TRUE(log_one(*made, "name 15", 2).ok()) << "one that is known";
}

TEST(StepLog, RefusesNamesThatCannotBeShown) {
  auto made = recorder();
  for (const std::string& name : {std::string(), std::string(32, 'x'), std::string("a\nb"),
                                  std::string("\xff"), std::string("a\0b", 3)})
    EXPECT_EQ(log_one(*made, name, 1).code(), Code::kInvalidArgument) << name;
  EXPECT_TRUE(log_one(*made, std::string(31, 'x'), 1).ok());
  EXPECT_TRUE(log_one(*made, std::string(30, 'x'), 2).ok()) << "another one";
  EXPECT_EQ(made->snapshot().logged.size(), 2U);
}

TEST(StepLog, AStepEndsWhereTheNextOneBegins) {
  auto made = recorder();
  StepLog& steps = made->steps();
  steps.add_wait(50ms);  // Before the first one.
  steps.set_step(100, Time{1s});
  EXPECT_EQ(made->snapshot().times, StepTimes()) << "none has ended";
  steps.add_wait(20ms);
  steps.set_step(100, Time{1050ms});  // The same.
  steps.set_step(101, Time{1100ms});
  const StepTimes first{.steps = 1, .step_ns = 100'000'000, .wait_ns = 20'000'000};
  EXPECT_EQ(made->snapshot().times, first);
  steps.set_step(103, Time{1300ms});
  EXPECT_EQ(made->snapshot().times.steps, 3U) << "of two together each took half the time";
  EXPECT_EQ(made->snapshot().times.step_ns, 100'000'000U);
  EXPECT_EQ(made->snapshot().times.wait_ns, 18'000'000U) << "smoothed over ten";
  EXPECT_EQ(made->metrics().value(Metric::kStepNs), 300'000'000U);
  EXPECT_EQ(made->metrics().value(Metric::kStepWaitNs), 20'000'000U);
  EXPECT_EQ(made->metrics().value(Metric::kWaitNs), 70'000'000U);
}

TEST(StepLog, AJobThatGoesBackEndsNoStep) {
  auto made = recorder();
  made->steps().set_step(10, Time{1s});
  made->steps().set_step(4, Time{9s});
  EXPECT_EQ(made->snapshot().step, 4U);
  EXPECT_EQ(made->snapshot().times.steps, 0U);
  made->steps().set_step(5, Time{10s});
  EXPECT_EQ(made->snapshot().times.step_ns, 1'000'000'000U) << "not the time of going back";
}

TEST(StepLog, WithoutSetStepALoggedStepIsTheStep) {
  auto made = recorder();
  ASSERT_TRUE(made->steps().log(7, {}, 100, Time{1s}).ok());
  ASSERT_TRUE(made->steps().log(8, {}, {}, Time{3s}).ok());
  EXPECT_EQ(made->snapshot().step, 8U);
  EXPECT_EQ(made->snapshot().times.step_ns, 2'000'000'000U);
  EXPECT_EQ(made->snapshot().progress, (TrainingProgress{.step = 8, .of = 100}));
}

TEST(StepLog, ProgressCountsAsTheProgramDoes) {
  auto made = recorder();
  made->steps().set_step(1);  // An optimizer begins anew.
  EXPECT_EQ(made->snapshot().progress, std::nullopt);
  ASSERT_TRUE(made->steps().log(5001, {}, 9000).ok());
  made->steps().set_step(3);
  EXPECT_EQ(made->snapshot().step, 3U) << "it has told so";
  EXPECT_EQ(made->snapshot().progress, (TrainingProgress{.step = 5003, .of = 9000}));
}

TEST(StepLog, AReaderNeverSeesHalfAValue) {
  auto made = recorder();
  std::atomic<bool> over{false};
  std::thread writer([&] {
    for (uint64_t i = 1; i < 200'000; ++i) (void)log_one(*made, "x", static_cast<double>(i), i);
    over = true;
  });
  while (!over) {
    const auto seen = made->snapshot().logged;
    if (!seen.empty()) {
      ASSERT_EQ(seen[0].value, static_cast<double>(seen[0].step));
    }
  }
  writer.join();
}

}  // namespace
}  // namespace corro::obs
