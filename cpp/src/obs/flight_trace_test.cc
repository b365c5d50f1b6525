#include "obs/flight_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace corro::obs {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr Time kNow{std::chrono::microseconds(100)};

/// Times are in microseconds.
OpSnapshot allreduce(uint64_t number, uint64_t queued, uint64_t started, uint64_t done) {
  OpSnapshot op;
  op.sequence = number;
  op.phase = Phase::kDone;
  op.op = {
      .op_id = number, .lane = 7, .kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 9};
  op.queued_ns = queued * 1000, op.started_ns = started * 1000, op.done_ns = done * 1000;
  return op;
}

TracedRank traced(int rank, const std::vector<OpSnapshot>& operations) {
  ProcessTrace process{.step = 4, .operations = {}};
  for (const OpSnapshot& op : operations) process.operations.push_back({.op = op, .step = 4});
  return {.rank = rank, .host = "", .process = std::move(process), .missing = ""};
}

TEST(FlightTrace, WhoWaitsForWhomIsApartFromWork) {
  const std::array ranks = {traced(0, {allreduce(1, 10, 12, 50)}),
                            traced(1, {allreduce(1, 30, 31, 49)})};
  const std::string trace = format_trace(ranks, kNow);
  for (const char* slice :
       {R"("pid":1,"tid":100000,"ts":20.000,"dur":1.000,"name":"queued")",
        R"("pid":0,"tid":100000,"ts":0.000,"dur":20.000,"name":"wait")", R"("awaits":"rank 1")",
        R"("pid":0,"tid":100000,"ts":20.000,"dur":20.000,"name":"allreduce")",
        R"("pid":1,"tid":100000,"ts":21.000,"dur":18.000,"name":"allreduce")",
        R"("step":4,"phase":"done","number":1,"elements":9,"dtype":"f32")"})
    EXPECT_THAT(trace, HasSubstr(slice));
  EXPECT_THAT(trace,
              Not(HasSubstr(R"("pid":1,"tid":100000,"ts":21.000,"dur":18.000,"name":"wait")")));
  EXPECT_THAT(trace, HasSubstr(R"("note":"")"));
}

TEST(FlightTrace, WhatIsNotOverGoesOnUntilNow) {
  OpSnapshot hangs = allreduce(1, 20, 20, 0);
  hangs.phase = Phase::kExchange;
  hangs.waiting_for = 3;
  const std::array ranks = {traced(0, {hangs})};
  const std::string trace = format_trace(ranks, kNow);
  EXPECT_THAT(trace, HasSubstr(R"("dur":80.000,"name":"wait")"));
  EXPECT_THAT(trace, HasSubstr(R"("awaits":"rank 3")"));
}

TEST(FlightTrace, WhatOverlapsIsOnFurtherThreadsOfItsLane) {
  const std::array ranks = {
      traced(0, {allreduce(1, 10, 10, 40), allreduce(2, 20, 20, 30), allreduce(3, 40, 40, 50)})};
  const std::string trace = format_trace(ranks, kNow);
  EXPECT_THAT(trace, HasSubstr(R"("tid":100001,"ts":10.000)"));
  EXPECT_THAT(trace, HasSubstr(R"("tid":100000,"ts":30.000)"));
  EXPECT_THAT(trace,
              HasSubstr(R"("tid":100001,"name":"thread_name","args":{"name":"operations"})"));
}

TEST(FlightTrace, AFiringIsInTheLaneOfItsPlan) {
  OpSnapshot firing = allreduce(2, 10, 10, 20);
  firing.op.kind = std::nullopt;
  firing.name = "forward";
  firing.plan_lane = "stage 0";
  const std::array ranks = {traced(0, {firing, allreduce(1, 20, 20, 30)})};
  const std::string trace = format_trace(ranks, kNow);
  EXPECT_THAT(trace, HasSubstr(R"("args":{"name":"stage 0"})"));
  EXPECT_THAT(trace,
              HasSubstr(R"("name":"forward","args":{"step":4,"phase":"done","micro_batch":2})"));
}

TEST(FlightTrace, SaysWhatIsNotToBeSeen) {
  TracedRank silent = traced(0, {allreduce(1, 10, 10, 20)});
  silent.process->step = 0;
  const std::array ranks = {
      silent, TracedRank{.rank = 1, .host = "", .process = {}, .missing = "has ended"}};
  const std::string trace = format_trace(ranks, kNow);
  EXPECT_THAT(trace, HasSubstr(R"("note":"rank 1: has ended; no rank tells its step)"));
  EXPECT_THAT(trace, HasSubstr(R"x("name":"rank 1 (has ended)")x"));
}

TEST(FlightTrace, StepsAreCutOffWhole) {
  auto recorder = FlightRecorder::create({}).value();
  const auto operate = [&recorder](uint64_t step, bool ends) {
    recorder->steps().set_step(step);
    const auto handle = recorder->begin({.kind = std::nullopt, .plan_lane = "rank0"});
    if (ends) recorder->end(handle, Code::kOk);
  };
  operate(69'997, false);  // Hangs.
  for (const uint64_t step : {69'998U, 69'999U, 70'000U}) operate(step, true);
  const auto trace = trace_flight(recorder->fd(), 1);
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(trace->step, 70'000U);
  std::vector<uint64_t> steps;
  for (const TracedOp& one : trace->operations) {
    EXPECT_FALSE(one.op.op.kind) << "the step stands beside it";
    steps.push_back(one.step);
  }
  EXPECT_THAT(steps, testing::ElementsAre(69'997, 69'999, 70'000));
}

TEST(FlightTrace, NoRankAtAllIsATraceStill) {
  EXPECT_EQ(format_trace({}, kNow),
            "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":\"\"},\"traceEvents\":[\n\n]}\n");
}

}  // namespace
}  // namespace corro::obs
