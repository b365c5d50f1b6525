#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "obs/timeline_log.h"
#include "obs/timeline_text.h"

namespace corro::obs {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

OpRecord allreduce(std::string_view name) {
  return {.kind = OpKind::kAllreduce, .dtype = DType::kF32, .count = 3, .name = name};
}

std::vector<TimelineEvent> events_of(TimelineLog& log) {
  std::vector<TimelineEvent> events;
  for (Bytes bytes = log.take(); !bytes.empty(); bytes = log.take()) {
    ByteReader reader(bytes);
    while (reader.remaining() > 0) events.push_back(read_timeline_event(reader).value());
    EXPECT_LE(bytes.size(), TimelineLog::kChunk);
  }
  return events;
}

TEST(TimelineLog, NotesNothingWhileItIsOff) {
  TimelineLog log;
  EXPECT_EQ(log.begin(allreduce("x")), 0U);
  EXPECT_TRUE(log.empty());
}

TEST(TimelineLog, GivesBackWhatWasNotedInOrder) {
  TimelineLog log;
  log.start({.marks_cycles = true});
  const uint64_t x = log.negotiate(allreduce("x"));
  log.cycle();
  log.agreed(x);
  log.end(x, Code::kUnavailable);
  const auto events = events_of(log);
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0].kind, TimelineEvent::Kind::kNegotiate);
  EXPECT_EQ(events[0].name, "x");
  EXPECT_EQ(events[0].count, 3U);
  EXPECT_EQ(events[1].kind, TimelineEvent::Kind::kCycle);
  EXPECT_EQ(events[2].kind, TimelineEvent::Kind::kAgreed);
  EXPECT_EQ(events[2].span, x);
  EXPECT_EQ(events[3].code, Code::kUnavailable);
  EXPECT_LE(events[0].time_ns, events[3].time_ns);
  EXPECT_TRUE(log.empty());
}

TEST(TimelineLog, MarksNoCyclesUnlessAsked) {
  TimelineLog log;
  log.start({});
  log.cycle();
  EXPECT_TRUE(log.empty());
}

TEST(TimelineLog, DropsWholeSpansAndCountsThem) {
  TimelineLog log;
  log.start({.most_bytes = size_t{100} << 10U});
  std::vector<uint64_t> spans;
  for (int i = 0; i < 10'000; ++i) spans.push_back(log.begin(allreduce(std::string(60, 'n'))));
  EXPECT_GT(log.dropped(), 0U);
  for (const uint64_t span : spans) log.end(span, Code::kOk);
  const auto events = events_of(log);
  EXPECT_EQ(events.size(), 2 * (spans.size() - log.dropped()));
  EXPECT_NE(log.begin(allreduce("again")), kNoSpan);
}

OpRecord firing(std::string_view name, uint64_t micro) {
  return {.op_id = micro, .kind = std::nullopt, .name = name, .plan_lane = "rank0"};
}

Time at(int microseconds) { return {std::chrono::microseconds(microseconds)}; }

TEST(TimelineLog, NotesAFiringOnceItIsOver) {
  TimelineLog log;
  log.fired(firing("F0", 1), at(1), at(2), Code::kOk);
  EXPECT_TRUE(log.empty()) << "while it is off";
  log.start({});
  log.fired(firing("F0", 3), at(5), at(9), Code::kAborted);
  OpRecord sum = allreduce("sum");
  sum.plan_lane = "dp";
  log.fired(sum, at(6), at(7), Code::kOk);
  const auto events = events_of(log);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, TimelineEvent::Kind::kFiring);
  EXPECT_EQ(events[0].name, "F0");
  EXPECT_EQ(events[0].lane, "rank0");
  EXPECT_EQ(events[0].span, 3U) << "its micro-batch";
  EXPECT_EQ(events[0].began_ns, 5'000U);
  EXPECT_EQ(events[0].time_ns, 9'000U);
  EXPECT_EQ(events[0].code, Code::kAborted);
  EXPECT_FALSE(events[0].op.has_value());
  EXPECT_EQ(events[1].op, OpKind::kAllreduce);
  EXPECT_EQ(events[1].count, 3U);
}

TEST(TimelineLog, DropsFiringsThatDoNotFitAndCountsThem) {
  TimelineLog log;
  log.start({.most_bytes = size_t{100} << 10U});
  const std::string longest(1000, 'n');
  for (int i = 0; i < 1'000; ++i) log.fired(firing(longest, 0), at(1), at(2), Code::kOk);
  EXPECT_GT(log.dropped(), 0U);
  EXPECT_EQ(events_of(log).size(), 1'000 - log.dropped());
}

TEST(TimelineLog, ForgetsSpansOfBeforeItsStart) {
  TimelineLog log;
  log.start({});
  const uint64_t before = log.begin(allreduce("x"));
  log.stop();
  log.start({});
  log.end(before, Code::kOk);
  EXPECT_TRUE(log.empty());
}

TEST(TimelineText, ATensorIsAProcessAndARankAThread) {
  TimelineLog log;
  log.start({.marks_cycles = true});
  const uint64_t x = log.negotiate(allreduce("grad \"x\"\n\xff"));
  log.agreed(x);
  log.cycle();
  log.end(x, Code::kOk);
  TimelineText text;
  ASSERT_TRUE(text.add(3, log.take(), 0).ok());
  const std::string json = text.take();
  EXPECT_THAT(json,
              HasSubstr(R"("process_name","ph":"M","pid":1,"args":{"name":"grad \"x\"\u000a?"})"));
  EXPECT_THAT(json,
              HasSubstr(R"("thread_name","ph":"M","pid":1,"tid":3,"args":{"name":"rank 3"})"));
  EXPECT_THAT(json, HasSubstr(R"("name":"NEGOTIATE_ALLREDUCE","ph":"B","pid":1,"tid":3)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"ALLREDUCE","ph":"B","pid":1,"tid":3)"));
  EXPECT_THAT(json, HasSubstr(R"("name":"CYCLE_START","ph":"i","s":"t","pid":0,"tid":3)"));
  EXPECT_THAT(json, HasSubstr(R"("dtype":"f32","count":3)"));
  EXPECT_THAT(json, HasSubstr(R"({"ph":"E","pid":1,"tid":3)"));
}

TEST(TimelineText, OneNameIsOneProcessOnAllRanks) {
  TimelineText text;
  for (const int32_t rank : {0, 1}) {
    TimelineLog log;
    log.start({});
    log.end(log.begin(allreduce("x")), Code::kAborted);
    ASSERT_TRUE(text.add(rank, log.take(), 0).ok());
  }
  const std::string json = text.take();
  EXPECT_THAT(json, Not(HasSubstr("\"pid\":2")));
  EXPECT_THAT(json, HasSubstr(R"("pid":1,"tid":1)"));
  EXPECT_THAT(json, HasSubstr(R"("args":{"error":"ABORTED"})"));
}

TEST(TimelineText, OfPlansARankIsAProcessAndALaneAThread) {
  TimelineLog log;
  log.start({});
  log.fired(firing("F0", 0), at(1), at(4), Code::kOk);
  log.fired(firing("B0", 0), at(4), at(6), Code::kAborted);
  OpRecord sum = allreduce("sum");
  sum.plan_lane = "dp";
  log.fired(sum, at(6), at(7), Code::kOk);
  TimelineText text;
  ASSERT_TRUE(text.add(2, log.take(), 1'000).ok());
  const std::string json = text.take();
  EXPECT_THAT(json, HasSubstr(R"("process_name","ph":"M","pid":1073741826,)"
                              R"("args":{"name":"lanes of rank 2"}})"));
  EXPECT_THAT(json, HasSubstr(R"("pid":1073741826,"tid":0,"args":{"name":"rank0"}})"));
  EXPECT_THAT(json, HasSubstr(R"("pid":1073741826,"tid":1,"args":{"name":"dp"}})"));
  EXPECT_THAT(json, HasSubstr(R"({"name":"F0","ph":"X","pid":1073741826,"tid":0,"ts":2.000,)"
                              R"("dur":3.000,"args":{"micro_batch":0}})"));
  EXPECT_THAT(json, HasSubstr(R"("tid":0,"ts":5.000,"dur":2.000,)"
                              R"("args":{"micro_batch":0,"error":"ABORTED"}})"));
  EXPECT_THAT(json, HasSubstr(R"({"name":"sum","ph":"X","pid":1073741826,"tid":1,"ts":7.000,)"
                              R"("dur":1.000,"args":{"micro_batch":0,"dtype":"f32","count":3}})"));
}

TEST(TimelineText, FiringsOfALaneThatOverlapHaveRowsOfTheirOwn) {
  TimelineLog log;
  log.start({});
  log.fired(firing("a", 0), at(1), at(3), Code::kOk);
  log.fired(firing("b", 0), at(2), at(5), Code::kOk);
  log.fired(firing("c", 0), at(4), at(6), Code::kOk);
  TimelineText text;
  ASSERT_TRUE(text.add(0, log.take(), 0).ok());
  const std::string json = text.take();
  EXPECT_THAT(json, HasSubstr(R"("tid":1,"args":{"name":"rank0 (2))"));
  EXPECT_THAT(json, HasSubstr(R"({"name":"a","ph":"X","pid":1073741824,"tid":0,)"));
  EXPECT_THAT(json, HasSubstr(R"({"name":"b","ph":"X","pid":1073741824,"tid":1,)"));
  EXPECT_THAT(json, HasSubstr(R"({"name":"c","ph":"X","pid":1073741824,"tid":0,)"));
}

TEST(TimelineText, RefusesWhatIsNoEvents) {
  TimelineText text;
  const Bytes bytes(40, std::byte{9});
  EXPECT_EQ(text.add(1, bytes, 0).code(), Code::kInvalidArgument);
}

TEST(TimelineText, AddsTheOffsetOfARanksClock) {
  TimelineLog log;
  log.start({});
  (void)log.begin(allreduce("x"));
  const Bytes bytes = log.take();
  ByteReader reader(bytes);
  const auto event = read_timeline_event(reader);
  TimelineText text;
  ASSERT_TRUE(text.add(0, bytes, 1'000 - static_cast<int64_t>(event->time_ns)).ok());
  EXPECT_THAT(text.take(), HasSubstr("\"ts\":1.000"));
}

}  // namespace
}  // namespace corro::obs
