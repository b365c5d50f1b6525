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
