#include <algorithm>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "transport/endpoint.h"
#include "transport/stream_conformance.h"
#include "wire/frame_codec.h"

namespace corro::transport {
namespace {

/// Two endpoints and the control frames each has received.
struct EndpointPair {
  explicit EndpointPair(StreamPair streams, EndpointLimits limits = {})
      : under_way(streams.capacity * streams.refills),
        first(
            std::move(streams.first), [this](const auto& c) { at_first.push_back(c); }, limits),
        second(
            std::move(streams.second), [this](const auto& c) { at_second.push_back(c); }, limits) {}

  bool step() {
    const bool moved = first.progress();
    return second.progress() || moved;
  }
  /// Moves both until `done()`; false if the deadline was reached.
  template <typename Done>
  bool run_until(Done done) {
    const TestDeadline deadline;
    while (!done()) {
      if (deadline.over()) return false;
      if (!step()) std::this_thread::yield();
    }
    return true;
  }
  /// Moves both until nothing moves any more.
  void settle() {
    for (int quiet = 0; quiet < 50;) quiet = step() ? 0 : quiet + 1;
  }

  size_t under_way;  ///< Most bytes that arrive after a PAUSE was sent.
  std::vector<wire::Control> at_first, at_second;
  Endpoint first;
  Endpoint second;
};

using TestMessages = std::vector<std::unique_ptr<TestMessage>>;

bool all_done(const TestMessages& messages) {
  return std::all_of(messages.begin(), messages.end(),
                     [](const auto& m) { return m->send.done && m->recv.done; });
}

/// `count` messages of operations first_op, first_op + 1, ... of one lane.
TestMessages messages_of(uint32_t lane, uint64_t first_op, size_t count, size_t size) {
  TestMessages messages;
  for (uint64_t op = first_op; op < first_op + count; ++op) {
    messages.push_back(std::make_unique<TestMessage>(MessageKey{{0, lane}, op, 1}, size, op));
  }
  return messages;
}

/// Most bytes that may ever wait in a bounce pool: what was under way when PAUSE was sent comes on
/// top of the limit.
size_t bounce_bound(const EndpointPair& pair, const EndpointLimits& limits) {
  return limits.bounce_bytes_per_lane + pair.under_way + wire::kMaxPieceBytes;
}

/// Every message of both directions is sent and received once, in a random order of all the calls.
void exchange_in_random_order(EndpointPair& pair, uint64_t seed) {
  std::mt19937_64 random(seed);
  constexpr std::array<size_t, 8> kSizes = {0, 1, 60, 500, 5'000, 40'000, 90'000, 400'000};
  TestMessages messages;
  std::vector<std::function<void()>> calls;
  for (size_t i = 0; i < 60; ++i) {
    const MessageKey key{{0, random() % 3}, i / 4, static_cast<uint32_t>(i)};
    messages.push_back(std::make_unique<TestMessage>(key, kSizes[random() % kSizes.size()], i));
    TestMessage* message = messages.back().get();
    Endpoint* from = random() % 2 == 0 ? &pair.first : &pair.second;
    Endpoint* to = from == &pair.first ? &pair.second : &pair.first;
    calls.emplace_back([=] { from->post_send(message->send); });
    calls.emplace_back([=] { to->post_recv(message->recv); });
  }
  std::shuffle(calls.begin(), calls.end(), random);
  for (const auto& call : calls) {
    call();
    if (random() % 2 == 0) pair.first.progress();
    if (random() % 2 == 0) pair.second.progress();
  }
  ASSERT_TRUE(pair.run_until([&] { return all_done(messages); }));
  for (const auto& message : messages) {
    EXPECT_TRUE(message->arrived()) << message->send.key.op << " " << message->send.key.step;
  }
  EXPECT_EQ(pair.first.metrics().value(obs::Metric::kBouncedBytes) +
                pair.second.metrics().value(obs::Metric::kBouncedBytes),
            0U);
  EXPECT_FALSE(pair.first.has_unsent() || pair.second.has_unsent());
}

}  // namespace

TEST_P(EndpointConformance, PostedMessagesOfAnySizeArrive) {
  EndpointPair pair(GetParam().make());
  for (const size_t size :
       {0U, 1U, 63U, 64U, 65U, 1000U, 65535U, 65536U, 262143U, 262144U, 262145U, 700'001U}) {
    TestMessage message({{0, 1}, size, 3}, size);
    pair.second.post_recv(message.recv);
    pair.first.post_send(message.send);
    ASSERT_TRUE(pair.run_until([&] { return message.recv.done && message.send.done; })) << size;
    EXPECT_TRUE(message.arrived()) << size;
  }
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBounced), 0U);
  EXPECT_EQ(pair.second.metrics().total("messages_received"), 12U);
  EXPECT_EQ(pair.first.metrics().total("messages_sent"), 12U);
  EXPECT_EQ(pair.first.metrics().total("bytes_sent"),
            pair.second.metrics().total("bytes_received"));
}

TEST_P(EndpointConformance, EarlyMessagesWaitForTheirRequest) {
  EndpointPair pair(GetParam().make());
  for (const size_t size : {0U, 1U, 1000U, 300'000U, 700'001U}) {
    TestMessage message({{0, 1}, size, 3}, size);
    pair.first.post_send(message.send);
    ASSERT_TRUE(pair.run_until([&] { return message.send.done; }));
    pair.settle();
    pair.second.post_recv(message.recv);
    EXPECT_TRUE(message.arrived()) << "it is here already: " << size;
  }
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBounced), 5U);
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
}

TEST_P(EndpointConformance, AMessageClaimedWhileItArrivesIsWhole) {
  EndpointPair pair(GetParam().make());
  for (int steps = 0; steps < 12; ++steps) {
    TestMessage message({{0, 1}, static_cast<uint64_t>(steps), 3}, 600'000);
    pair.first.post_send(message.send);
    for (int step = 0; step < steps; ++step) pair.step();
    pair.second.post_recv(message.recv);
    ASSERT_TRUE(pair.run_until([&] { return message.recv.done; }));
    EXPECT_TRUE(message.arrived()) << steps;
  }
}

TEST_P(EndpointConformance, EverythingArrivesOnceInAnyOrderOfCalls) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    SCOPED_TRACE(seed);
    EndpointPair pair(GetParam().make());
    ASSERT_NO_FATAL_FAILURE(exchange_in_random_order(pair, seed));
  }
}

TEST_P(EndpointConformance, EverythingArrivesOnceUnderAStrictLimit) {
  uint64_t pauses = 0;
  for (uint64_t seed = 100; seed < 108; ++seed) {
    SCOPED_TRACE(seed);
    EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 20'000});
    ASSERT_NO_FATAL_FAILURE(exchange_in_random_order(pair, seed));
    pauses += pair.first.metrics().value(obs::Metric::kPauses) +
              pair.second.metrics().value(obs::Metric::kPauses);
  }
  EXPECT_GT(pauses, 0U);
}

TEST_P(EndpointConformance, EarlyBytesAreBounded) {
  const EndpointLimits limits{.bounce_bytes_per_lane = 500'000};
  EndpointPair pair(GetParam().make(), limits);
  TestMessages messages = messages_of(1, 0, 60, 150'000);
  for (const auto& message : messages) pair.first.post_send(message->send);
  pair.settle();
  EXPECT_TRUE(pair.first.has_unsent());
  EXPECT_LE(pair.second.metrics().value(obs::Metric::kBouncedBytesPeak),
            bounce_bound(pair, limits));
  for (const auto& message : messages) {
    pair.second.post_recv(message->recv);
    ASSERT_TRUE(pair.run_until([&] { return message->recv.done; })) << message->recv.key.op;
    EXPECT_TRUE(message->arrived());
  }
  EXPECT_LE(pair.second.metrics().value(obs::Metric::kBouncedBytesPeak),
            bounce_bound(pair, limits));
  EXPECT_FALSE(pair.first.has_unsent());
}

TEST_P(EndpointConformance, OneEarlyMessageAboveTheLimitIsBoundedToo) {
  const EndpointLimits limits{.bounce_bytes_per_lane = 100'000};
  EndpointPair pair(GetParam().make(), limits);
  TestMessage message({{0, 1}, 4, 1}, 6'000'000);
  pair.first.post_send(message.send);
  pair.settle();
  EXPECT_FALSE(message.send.done);
  EXPECT_LE(pair.second.metrics().value(obs::Metric::kBouncedBytesPeak),
            bounce_bound(pair, limits));
  pair.second.post_recv(message.recv);
  ASSERT_TRUE(pair.run_until([&] { return message.recv.done; }));
  EXPECT_TRUE(message.arrived());
}

TEST_P(EndpointConformance, AnOlderOperationPassesPausedOnes) {
  EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 50'000});
  TestMessage older({{0, 1}, 5, 1}, 300'000);
  pair.second.post_recv(older.recv);
  TestMessages early = messages_of(1, 6, 40, 100'000);
  for (const auto& message : early) pair.first.post_send(message->send);
  pair.settle();
  EXPECT_FALSE(early.back()->send.done);
  pair.first.post_send(older.send);
  ASSERT_TRUE(pair.run_until([&] { return older.recv.done; })) << "it stands behind early messages";
  EXPECT_TRUE(older.arrived());
  for (const auto& message : early) pair.second.post_recv(message->recv);
  ASSERT_TRUE(pair.run_until([&] { return all_done(early); }));
  for (const auto& message : early) EXPECT_TRUE(message->arrived());
}

TEST_P(EndpointConformance, APausedLaneDoesNotStopAnother) {
  EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 50'000});
  TestMessages paused = messages_of(1, 0, 40, 100'000);
  for (const auto& message : paused) pair.first.post_send(message->send);
  pair.settle();
  TestMessage other({{0, 2}, 9, 1}, 100'000);
  pair.second.post_recv(other.recv);
  pair.first.post_send(other.send);
  ASSERT_TRUE(pair.run_until([&] { return other.recv.done; }));
  EXPECT_TRUE(other.arrived());
  EXPECT_FALSE(paused.back()->send.done);
}

TEST_P(EndpointConformance, RetiringOperationsLetsTheirPausedMessagesGo) {
  EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 50'000});
  TestMessages late = messages_of(1, 0, 40, 100'000);
  for (const auto& message : late) pair.first.post_send(message->send);
  pair.settle();
  EXPECT_TRUE(pair.first.has_unsent());
  pair.second.retire_below({0, 1}, 40);
  ASSERT_TRUE(pair.run_until([&] { return !pair.first.has_unsent(); }));
  pair.settle();
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
  TestMessage next({{0, 1}, 40, 1}, 100'000);
  pair.first.post_send(next.send);
  pair.second.post_recv(next.recv);
  ASSERT_TRUE(pair.run_until([&] { return next.recv.done; }));
  EXPECT_TRUE(next.arrived());
}

TEST_P(EndpointConformance, BothSidesMayPauseEachOther) {
  EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 50'000});
  TestMessages up = messages_of(1, 0, 40, 100'000);
  TestMessages down = messages_of(1, 0, 40, 100'000);
  for (size_t i = 0; i < up.size(); ++i) {
    pair.first.post_send(up[i]->send);
    pair.second.post_send(down[i]->send);
  }
  pair.settle();
  for (size_t i = 0; i < up.size(); ++i) {
    pair.second.post_recv(up[i]->recv);
    pair.first.post_recv(down[i]->recv);
    ASSERT_TRUE(pair.run_until([&] { return up[i]->recv.done && down[i]->recv.done; })) << i;
    EXPECT_TRUE(up[i]->arrived() && down[i]->arrived());
  }
}

TEST_P(EndpointConformance, ASenderThatCancelsMayFreeItsBufferAtOnce) {
  EndpointPair pair(GetParam().make());
  auto message = std::make_unique<TestMessage>(MessageKey{{0, 1}, 1, 1}, 6'000'000);
  const Bytes original = message->payload;
  TestMessage queued({{0, 1}, 1, 2}, 1'000);
  pair.second.post_recv(message->recv);
  pair.first.post_send(message->send);
  pair.first.post_send(queued.send);
  pair.step();
  ASSERT_FALSE(message->send.done);
  pair.first.cancel({0, 1}, 1);
  std::fill(message->payload.begin(), message->payload.end(), std::byte{0});
  message->payload = Bytes();
  pair.settle();
  EXPECT_FALSE(pair.first.has_unsent());
  EXPECT_FALSE(message->recv.done);
  const auto difference =
      std::mismatch(original.begin(), original.end(), message->received.begin());
  const auto equal = static_cast<size_t>(difference.first - original.begin());
  EXPECT_GE(equal, pair.second.metrics().total("bytes_received")) << "what left before is unharmed";
  pair.second.cancel({0, 1}, 1);
  message.reset();
  TestMessage next({{0, 1}, 2, 1}, 100'000);
  pair.second.post_recv(next.recv);
  pair.first.post_send(next.send);
  ASSERT_TRUE(pair.run_until([&] { return next.recv.done; }));
  EXPECT_TRUE(next.arrived());
}

TEST_P(EndpointConformance, AReceiverThatCancelsMayFreeItsBufferAtOnce) {
  EndpointPair pair(GetParam().make());
  for (int steps = 0; steps < 6; ++steps) {
    const auto op = static_cast<uint64_t>(steps) * 2;
    TestMessage message({{0, 1}, op, 1}, 2'000'000);
    pair.second.post_recv(message.recv);
    pair.first.post_send(message.send);
    for (int step = 0; step < steps; ++step) pair.step();
    pair.second.cancel({0, 1}, op);
    message.received = Bytes();
    ASSERT_TRUE(pair.run_until([&] { return message.send.done; })) << "the rest is drained";
    EXPECT_FALSE(message.recv.done && steps == 0);
    TestMessage next({{0, 1}, op + 1, 1}, 100'000);
    pair.second.post_recv(next.recv);
    pair.first.post_send(next.send);
    ASSERT_TRUE(pair.run_until([&] { return next.recv.done; }));
    EXPECT_TRUE(next.arrived());
  }
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
}

TEST_P(EndpointConformance, AClosedLaneKeepsNothingThatIsThereOrComes) {
  EndpointPair pair(GetParam().make());
  TestMessage early({{0, 1}, 3, 1}, 400'000);
  pair.first.post_send(early.send);
  pair.settle();
  EXPECT_GT(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
  pair.second.close_lane({0, 1});
  TestMessage late({{0, 1}, 4, 1}, 400'000), other({{0, 2}, 4, 1}, 1'000);
  pair.first.post_send(late.send);
  pair.first.post_send(other.send);
  pair.second.post_recv(other.recv);
  ASSERT_TRUE(pair.run_until([&] { return late.send.done && other.recv.done; }));
  EXPECT_TRUE(other.arrived());
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
}

TEST_P(EndpointConformance, LanesOfAnEpochThatIsOverKeepNothing) {
  EndpointPair pair(GetParam().make());
  TestMessage early({{0, 1}, 3, 1}, 1'000), late({{0, 1}, 4, 1}, 1'000);
  TestMessage next({{1, 1}, 3, 1}, 1'000);
  pair.first.post_send(early.send);
  pair.settle();
  pair.second.start_epoch(1);
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
  pair.first.post_send(late.send);
  pair.first.post_send(next.send);
  pair.settle();
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 1'000U)
      << "the same lane of the next epoch";
  pair.second.post_recv(next.recv);
  ASSERT_TRUE(pair.run_until([&] { return next.recv.done; }));
  EXPECT_TRUE(next.arrived());
}

TEST_P(EndpointConformance, APeerIsAwaitedFromThePostedReceiveToItsEnd) {
  EndpointPair pair(GetParam().make());
  EXPECT_FALSE(pair.second.awaits());
  TestMessage message({{0, 1}, 1, 1}, 400'000), cancelled({{0, 1}, 2, 1}, 10);
  pair.second.post_recv(message.recv);
  EXPECT_TRUE(pair.second.awaits());
  pair.first.post_send(message.send);
  ASSERT_TRUE(pair.run_until([&] { return message.recv.done; }));
  EXPECT_FALSE(pair.second.awaits());
  pair.second.post_recv(cancelled.recv);
  EXPECT_TRUE(pair.second.awaits());
  pair.second.cancel({0, 1}, 2);
  EXPECT_FALSE(pair.second.awaits());
}

TEST_P(EndpointConformance, EarlyAndLateMessagesOfACancelledOperationAreDropped) {
  EndpointPair pair(GetParam().make(), {.bounce_bytes_per_lane = 50'000});
  TestMessages messages = messages_of(1, 3, 1, 400'000);
  TestMessage late({{0, 1}, 3, 2}, 400'000);
  pair.first.post_send(messages[0]->send);
  pair.settle();
  EXPECT_GT(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
  pair.second.cancel({0, 1}, 3);
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
  pair.first.post_send(late.send);
  ASSERT_TRUE(pair.run_until([&] { return late.send.done && messages[0]->send.done; }));
  pair.settle();
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
}

TEST_P(EndpointConformance, AMismatchIsReportedWithThePeersValues) {
  EndpointPair pair(GetParam().make());
  TestMessage posted({{0, 1}, 1, 1}, 600'000), early({{0, 1}, 1, 2}, 600'000),
      good({{0, 1}, 1, 3}, 600'000);
  posted.recv.signature = {1};
  early.recv.into = std::span(early.received).first(10);
  pair.second.post_recv(posted.recv);
  pair.first.post_send(posted.send);
  pair.first.post_send(early.send);
  pair.first.post_send(good.send);
  for (int step = 0; step < 3; ++step) pair.step();
  ASSERT_TRUE(pair.run_until([&] { return posted.recv.done && early.send.done; }));
  pair.second.post_recv(early.recv);
  pair.second.post_recv(good.recv);
  ASSERT_TRUE(pair.run_until([&] { return early.recv.done && good.recv.done; }));
  EXPECT_TRUE(posted.recv.mismatch && early.recv.mismatch);
  EXPECT_EQ(posted.recv.peer_signature, posted.send.signature);
  EXPECT_EQ(early.recv.peer_bytes, 600'000U);
  EXPECT_EQ(posted.received, Bytes(600'000)) << "nothing was written";
  EXPECT_TRUE(good.arrived()) << "the connection goes on";
  pair.settle();
  EXPECT_EQ(pair.second.metrics().value(obs::Metric::kBouncedBytes), 0U);
}

TEST_P(EndpointConformance, AMessageMayBeShorterWhereTheReceiverSaysSo) {
  EndpointPair pair(GetParam().make());
  for (const bool early : {false, true}) {
    uint64_t op = early ? 10 : 0;
    for (const size_t size : {size_t{0}, size_t{5}, size_t{300'000}, size_t{600'000}}) {
      TestMessage message({.lane = {0, 1}, .op = op++}, 600'000);
      message.send.payload = BytesView(message.payload).first(size);
      message.recv.may_be_shorter = true;
      if (!early) pair.second.post_recv(message.recv);
      pair.first.post_send(message.send);
      if (early) pair.settle();
      if (early) pair.second.post_recv(message.recv);
      ASSERT_TRUE(pair.run_until([&] { return message.send.done && message.recv.done; })) << size;
      EXPECT_FALSE(message.recv.mismatch);
      EXPECT_EQ(message.recv.peer_bytes, size);
      EXPECT_TRUE(std::equal(message.payload.begin(),
                             message.payload.begin() + static_cast<std::ptrdiff_t>(size),
                             message.received.begin()));
      EXPECT_EQ(std::count(message.received.begin() + static_cast<std::ptrdiff_t>(size),
                           message.received.end(), std::byte{}),
                600'000 - static_cast<std::ptrdiff_t>(size))
          << "nothing behind it was written";
    }
    TestMessage longer({.lane = {0, 1}, .op = op}, 10);
    longer.recv.into = longer.recv.into.first(9);
    longer.recv.may_be_shorter = true;
    pair.second.post_recv(longer.recv);
    pair.first.post_send(longer.send);
    ASSERT_TRUE(pair.run_until([&] { return longer.recv.done; }));
    EXPECT_TRUE(longer.recv.mismatch);
  }
}

TEST_P(EndpointConformance, ControlsKeepTheirOrderBehindMessages) {
  EndpointPair pair(GetParam().make());
  TestMessage before({{0, 1}, 1, 1}, 400'000);
  pair.second.post_recv(before.recv);
  pair.first.post_send(before.send);
  for (uint64_t op = 0; op < 40; ++op) {
    pair.first.send_control({.kind = wire::ControlKind::kCancel,
                             .code = 3,
                             .lane = {0, 1},
                             .rank = -1,
                             .op = op,
                             .text = std::string(op * 50, 'x')});
  }
  pair.first.send_control(
      {.kind = wire::ControlKind::kReady, .text = std::string(wire::kMaxControlText, 'y')});
  ASSERT_TRUE(pair.run_until([&] {
    EXPECT_TRUE(before.recv.done || pair.at_second.empty());
    return pair.at_second.size() == 41;
  }));
  for (uint64_t op = 0; op < 40; ++op) {
    EXPECT_EQ(pair.at_second[op].op, op);
    EXPECT_EQ(pair.at_second[op].rank, -1);
    EXPECT_EQ(pair.at_second[op].code, 3);
    EXPECT_EQ(pair.at_second[op].text, std::string(op * 50, 'x'));
  }
  EXPECT_EQ(pair.at_second[40].text, std::string(wire::kMaxControlText, 'y'));
  EXPECT_THROW(pair.first.send_control({.kind = wire::ControlKind::kReady,
                                        .text = std::string(wire::kMaxControlText + 1, 'y')}),
               ContractError)
      << "nothing is cut silently";
}

TEST_P(EndpointConformance, AGoodbyeComesBeforeTheEnd) {
  EndpointPair pair(GetParam().make());
  TestMessage last({{0, 1}, 1, 1}, 1'000);
  pair.second.post_recv(last.recv);
  pair.first.post_send(last.send);
  pair.first.send_control({.kind = wire::ControlKind::kGoodbye});
  ASSERT_TRUE(pair.run_until([&] { return !pair.first.has_unsent() && last.recv.done; }));
  pair.first.close();
  ASSERT_TRUE(pair.run_until([&] { return pair.second.closed(); }));
  EXPECT_TRUE(last.arrived());
  ASSERT_EQ(pair.at_second.size(), 1U);
  EXPECT_EQ(pair.at_second[0].kind, wire::ControlKind::kGoodbye);
  EXPECT_NE(pair.second.describe().find(": closed by the"), std::string::npos);
  EXPECT_EQ(pair.second.describe().find("inside"), std::string::npos);
}

TEST_P(EndpointConformance, AnEndInsideAFrameSaysSo) {
  for (const size_t size : {20U, 60U}) {
    StreamPair streams = GetParam().make();
    Endpoint endpoint(std::move(streams.second), [](const auto&) {});
    Bytes frame(wire::kFrameHeaderBytes + 100);
    wire::encode_frame({.lane = {0, 1}, .length = 100, .piece = 100},
                       std::span(frame).first<wire::kFrameHeaderBytes>());
    frame.resize(size);
    PartialSender sender(*streams.first, frame, 1, size);
    const TestDeadline deadline;
    while (!sender.done() && !deadline.over()) {
      sender.step();
      endpoint.progress();
    }
    streams.first->close();
    while (!endpoint.closed() && !deadline.over()) endpoint.progress();
    EXPECT_NE(endpoint.describe().find("ended inside a frame"), std::string::npos)
        << endpoint.describe();
  }
}

TEST_P(EndpointConformance, RequestsOfAClosedConnectionStayOpen) {
  EndpointPair pair(GetParam().make());
  TestMessage waiting({{0, 1}, 1, 1}, 1'000);
  pair.first.post_recv(waiting.recv);
  pair.second.close();
  ASSERT_TRUE(pair.run_until([&] { return pair.first.closed(); }));
  pair.first.post_send(waiting.send);
  EXPECT_FALSE(pair.first.progress());
  EXPECT_FALSE(waiting.recv.done || waiting.send.done);
  EXPECT_FALSE(pair.first.has_unsent());
}

}  // namespace corro::transport
