#include "named/named_messages.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "named/named_test_entry.h"

namespace corro::named {
namespace {

TEST(NamedMessages, AnnouncementsComeBackAsTheyWere) {
  NamedEntry full = entry("grad.1", uint64_t{1} << 40U);
  full.op.prescale = 0.25;
  full.op.postscale = -0.0;
  full.op.codec = "bf16";
  full.op.signature.root = 7;
  full.op.signature.element = 3;
  const auto ready = decode_announcement(encode(Announcement{
      .mode = 4, .ready = {{.cached = 9}, {.cached = NamedRef::kNone, .entry = full}}}));
  ASSERT_TRUE(ready.ok()) << ready.status().to_string();
  ASSERT_EQ(ready->ready.size(), 2U);
  EXPECT_EQ(ready->mode, 4U);
  EXPECT_EQ(ready->ready[0].cached, 9U);
  EXPECT_TRUE(same(ready->ready[1].entry, full));

  const auto frozen = decode_announcement(
      encode(Announcement{.kind = Announcement::Kind::kFrozen, .mode = 3, .started = 77}));
  ASSERT_TRUE(frozen.ok());
  EXPECT_EQ(frozen->started, 77U);
  const auto join =
      decode_announcement(encode(Announcement{.kind = Announcement::Kind::kJoin, .mode = 2}));
  ASSERT_TRUE(join.ok());
  EXPECT_EQ(join->kind, Announcement::Kind::kJoin);
  EXPECT_EQ(join->mode, 2U);
  const auto accept = decode_announcement(
      encode(Announcement{.kind = Announcement::Kind::kAccept, .mode = 2, .plan = 5}));
  ASSERT_TRUE(accept.ok());
  EXPECT_EQ(accept->plan, 5U);
}

TEST(NamedMessages, DecisionsComeBackAsTheyWere) {
  Decision run;
  run.fusion = {.threshold_bytes = 123, .solo_bytes = 45};
  run.absent = 2;
  run.run = {{.cached = 1}, {.cached = NamedRef::kNone, .entry = entry("x")}};
  auto back = decode_decision(encode(run));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->fusion.threshold_bytes, 123U);
  EXPECT_EQ(back->fusion.solo_bytes, 45U);
  EXPECT_EQ(back->absent, 2);
  EXPECT_EQ(back->run[1].entry.name, "x");

  Decision failed;
  failed.kind = Decision::Kind::kFail;
  failed.name = "x";
  failed.rank = 3;
  failed.cause = FailCause::kJoined;
  failed.text = std::string(kMaxFailureText, 'y');
  back = decode_decision(encode(failed));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->rank, 3);
  EXPECT_EQ(back->cause, FailCause::kJoined);
  EXPECT_EQ(back->text, failed.text);

  Decision propose;
  propose.kind = Decision::Kind::kPropose;
  propose.plan = 2;
  propose.segments = {{1, 2}, {}, {3}};
  back = decode_decision(encode(propose));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->segments, propose.segments);

  Decision stalled;
  stalled.kind = Decision::Kind::kStalled;
  stalled.name = "x";
  stalled.missing = {1, 5};
  stalled.missing_more = 7;
  back = decode_decision(encode(stalled));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->missing, stalled.missing);
  EXPECT_EQ(back->missing_more, 7U);

  for (const auto kind : {Decision::Kind::kEngage, Decision::Kind::kFreeze, Decision::Kind::kCut}) {
    Decision decision;
    decision.kind = kind;
    decision.mode = 8;
    decision.op = kind == Decision::Kind::kFreeze ? 0 : 99;
    decision.resume = kind == Decision::Kind::kCut ? 103 : 0;
    back = decode_decision(encode(decision));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->resume, decision.resume);
    EXPECT_EQ(back->op, decision.op);
    EXPECT_EQ(back->mode, 8U);
  }

  for (const auto kind : {Decision::Kind::kJoined, Decision::Kind::kOver}) {
    Decision decision;
    decision.kind = kind;
    decision.rank = 4;
    back = decode_decision(encode(decision));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->rank, 4);
  }
}

TEST(NamedMessages, EveryTruncationAndEveryTailIsRefused) {
  Decision run;
  run.run = {{.cached = 1}, {.cached = NamedRef::kNone, .entry = entry("name")}};
  const Bytes decision = encode(run);
  const Bytes announcement = encode(Announcement{.ready = run.run});
  for (size_t size = 0; size < decision.size(); ++size) {
    EXPECT_FALSE(decode_decision(BytesView(decision).first(size)).ok()) << size;
  }
  for (size_t size = 0; size < announcement.size(); ++size) {
    EXPECT_FALSE(decode_announcement(BytesView(announcement).first(size)).ok()) << size;
  }
  Bytes longer = decision;
  longer.push_back(std::byte{0});
  EXPECT_FALSE(decode_decision(longer).ok());
}

TEST(NamedMessages, CountsAreCheckedBeforeMemoryIsTaken) {
  ByteWriter writer;
  writer.write(uint8_t{0});
  writer.write(uint32_t{0});
  writer.write(uint32_t{0xffffffff});
  EXPECT_EQ(decode_announcement(writer.bytes()).status().code(), Code::kInvalidArgument);
}

TEST(NamedMessages, ReservedNumberIsNoReference) {
  ByteWriter writer;
  writer.write(uint8_t{0});
  writer.write(uint32_t{0});
  writer.write(uint32_t{1});
  writer.write(uint8_t{0});
  writer.write(NamedRef::kNone);
  EXPECT_FALSE(decode_announcement(writer.bytes()).ok());
}

TEST(NamedMessages, DamagedBytesNeverComeThroughWrong) {
  // Whatever is accepted can be encoded again: no value outside its range got in.
  Decision run;
  run.run = {{.cached = 1}, {.cached = NamedRef::kNone, .entry = entry("name")}};
  const Bytes original = encode(run);
  std::mt19937_64 random(1);
  for (int i = 0; i < 5000; ++i) {
    Bytes bytes = original;
    for (uint64_t hits = 1 + random() % 3; hits > 0; --hits) {
      bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    }
    if (const auto decision = decode_decision(bytes); decision.ok()) {
      EXPECT_EQ(encode(*decision), bytes);
    }
    if (const auto message = decode_announcement(bytes); message.ok()) {
      EXPECT_EQ(encode(*message), bytes);
    }
  }
}

TEST(NamedMessages, AReferenceTakesTheBytesThatAreCountedForIt) {
  NamedEntry coded = entry("layer.weight", 5);
  coded.op.codec = "bf16";
  const size_t empty = encode(Decision{}).size();
  for (const NamedRef& ref :
       {NamedRef{.cached = 7}, NamedRef{.entry = entry("a")}, NamedRef{.entry = coded}}) {
    EXPECT_EQ(encode(Decision{.run = {ref}}).size(), empty + encoded_size(ref));
    EXPECT_EQ(encode(Announcement{.ready = {ref}}).size(),
              encode(Announcement{}).size() + encoded_size(ref));
  }
}

TEST(NamedMessages, AMessageAboveTheCapIsRefusedByItsEncoderAndItsDecoder) {
  Announcement message;
  message.ready.resize((kMaxNamedMessage - encode(message).size()) / encoded_size({.cached = 1}),
                       {.cached = 1});
  const Bytes largest = encode(message);
  EXPECT_LE(largest.size(), kMaxNamedMessage);
  EXPECT_TRUE(decode_announcement(largest).ok());
  message.ready.push_back({.cached = 1});
  EXPECT_THROW((void)encode(message), ContractError);
}

TEST(NamedCache, KnowsAnEntryByNumberAndReplacesItUnderItsName) {
  NamedCache cache;
  EXPECT_EQ(cache.find(entry("a")), NamedRef::kNone);
  EXPECT_EQ(cache.learn(entry("a")), 0U);
  EXPECT_EQ(cache.learn(entry("b")), 1U);
  EXPECT_EQ(cache.refer(entry("b")).cached, 1U);
  EXPECT_EQ(cache.find(entry("b", 11)), NamedRef::kNone) << "another shape is another entry";
  EXPECT_EQ(cache.learn(entry("b", 11)), 1U);
  EXPECT_EQ(cache.resolve({.cached = 1})->op.signature.count, 11U);
  EXPECT_EQ(cache.resolve({.cached = 2}).status().code(), Code::kInvalidArgument);
}

TEST(NamedCache, StopsLearningWhenFullAndStaysCorrect) {
  NamedCache cache;
  for (size_t i = 0; i < NamedCache::kCapacity; ++i) cache.learn(entry("n" + std::to_string(i)));
  EXPECT_EQ(cache.learn(entry("one more")), NamedRef::kNone);
  EXPECT_EQ(cache.refer(entry("one more")).entry.name, "one more");
  EXPECT_EQ(cache.learn(entry("n7", 3)), 7U) << "known names still change";
}

TEST(NamedEntry, SaysWhatItIs) {
  NamedEntry scaled = entry("a", 5);
  scaled.op.postscale = 0.5;
  EXPECT_EQ(describe(scaled), "allreduce(f32[5], sum), postscale 0.5");
  NamedEntry coded = entry("a", 5);
  coded.op.codec = "f16";
  EXPECT_EQ(describe(coded), "allreduce(f32[5], sum), codec f16");
  EXPECT_FALSE(same(coded, entry("a", 5)));
  NamedEntry nan = entry("a", 5);
  nan.op.prescale = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(same(nan, nan));
  EXPECT_FALSE(same(nan, scaled));
}

}  // namespace
}  // namespace corro::named
