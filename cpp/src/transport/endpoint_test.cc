// What an Endpoint does beyond endpoint_conformance_test.cc: foreign bytes, faults to order, calls
// from inside a handler.
#include "transport/endpoint.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "transport/memory_stream.h"
#include "transport/test_message.h"
#include "wire/frame_codec.h"

namespace corro::transport {
namespace {

/// One endpoint and the raw other end of its stream.
struct Raw {
  explicit Raw(EndpointLimits limits = {}, const MemoryOptions& options = {},
               const obs::Metrics& metrics = {}) {
    MemoryPair pair = make_memory_pair(options);
    link = pair.link;
    peer = std::move(pair.first);
    endpoint = std::make_unique<Endpoint>(
        std::move(pair.second), [this](const wire::Control& c) { controls.push_back(c); }, limits,
        nullptr, metrics);
  }
  /// Sends the bytes as the peer and lets the endpoint read them.
  void feed(BytesView bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    EXPECT_EQ(peer->write(std::span(&piece, 1)).bytes, bytes.size());
    while (endpoint->progress()) {
    }
  }
  void feed(const wire::FrameHeader& header, size_t payload_bytes) {
    Bytes frame(wire::kFrameHeaderBytes + payload_bytes);
    wire::encode_frame(header, std::span(frame).first<wire::kFrameHeaderBytes>());
    feed(frame);
  }
  void expect_closed_because(const std::string& words) {
    EXPECT_TRUE(endpoint->closed());
    EXPECT_NE(endpoint->describe().find(words), std::string::npos) << endpoint->describe();
  }
  std::shared_ptr<MemoryLink> link;
  std::unique_ptr<Stream> peer;
  std::unique_ptr<Endpoint> endpoint;
  std::vector<wire::Control> controls;
};

TEST(EndpointReader, GarbageClosesWithAReason) {
  Raw raw;
  const std::string text =
      "GET / HTTP/1.1\r\nHost: localhost\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
  raw.feed(std::as_bytes(std::span(text)));
  raw.expect_closed_because("memory end 1");
  raw.expect_closed_because("protocol error: frame: first byte 71");
}

TEST(EndpointReader, AMessageAboveTheCapAllocatesNothing) {
  Raw raw({.max_message_bytes = 1'000});
  raw.feed({.lane = {0, 1}, .length = 1'001, .piece = 10}, 10);
  raw.expect_closed_because("message length 1001");
  EXPECT_EQ(raw.endpoint->metrics().value(obs::Metric::kBouncedBytesPeak), 0U);
}

TEST(EndpointReader, AHugeMessageCostsWhatHasArrivedOfIt) {
  Raw raw;
  raw.feed({.lane = {0, 1}, .length = 1ULL << 40U, .piece = 10}, 10);
  EXPECT_FALSE(raw.endpoint->closed());
  EXPECT_EQ(raw.endpoint->metrics().value(obs::Metric::kBouncedBytes), 10U);
}

TEST(EndpointMetrics, EarlyMessagesThatNobodyAskedForGoWithTheirEndpoint) {
  const obs::Metrics shared;
  const auto held = [&shared] { return shared.value(obs::Metric::kBouncedBytes); };
  Raw one({}, {}, shared), other({}, {}, shared);
  one.feed({.lane = {0, 1}, .length = 10, .piece = 10}, 10);
  other.feed({.lane = {0, 1}, .length = 7, .piece = 7}, 7);
  EXPECT_EQ(held(), 17U);
  one.endpoint.reset();
  EXPECT_EQ(held(), 7U);
  EXPECT_EQ(shared.value(obs::Metric::kBouncedBytesPeak), 17U);
  EXPECT_EQ(shared.total("messages_received"), 2U);
}

TEST(EndpointReader, ManyEmptyEarlyMessagesReachTheLimitToo) {
  Raw raw({.bounce_bytes_per_lane = 1'000});
  for (uint32_t step = 0; step < 100; ++step) raw.feed({.lane = {0, 1}, .op = 3, .step = step}, 0);
  EXPECT_EQ(raw.endpoint->metrics().value(obs::Metric::kPauses), 1U);
}

TEST(EndpointReader, APieceThatDoesNotContinueItsMessageIsAnError) {
  const wire::FrameHeader first{
      .lane = {0, 1}, .op = 2, .length = 30, .signature = {5}, .piece = 10};
  wire::FrameHeader second = first;
  second.offset = 10;
  {
    Raw raw;
    raw.feed(second, 10);
    raw.expect_closed_because("piece at 10 of 30 where byte 0 of 30 is next");
  }
  const auto refuse = [&](const wire::FrameHeader& header, const std::string& words) {
    Raw raw;
    raw.feed(first, 10);
    EXPECT_FALSE(raw.endpoint->closed());
    raw.feed(header, header.piece);
    raw.expect_closed_because(words);
  };
  refuse(first, "lane 0000000000000001 op 2 step 0: piece at 0 of 30 where byte 10 of 30 is next");
  wire::FrameHeader changed = second;
  changed.offset = 11;
  refuse(changed, "piece at 11 of 30 where byte 10 of 30 is next");
  changed = second;
  changed.length = 40;
  refuse(changed, "piece at 10 of 40 where byte 10 of 30 is next");
  changed = second;
  changed.signature.extras = 6;
  refuse(changed, "another signature");
}

TEST(EndpointReader, AMessageThatComesTwiceIsAnErrorWhileTheFirstWaits) {
  Raw raw;
  const wire::FrameHeader whole{
      .lane = {0, 1}, .op = 2, .length = 10, .signature = {5}, .piece = 10};
  raw.feed(whole, 10);
  raw.feed(whole, 10);
  raw.expect_closed_because("protocol error");
}

TEST(EndpointReader, AnEmptyMessageThatComesTwiceIsAnErrorToo) {
  Raw raw;
  raw.feed({.lane = {0, 1}, .op = 2}, 0);
  raw.feed({.lane = {0, 1}, .op = 2}, 0);
  raw.expect_closed_because("protocol error");
}

TEST(EndpointWriter, ABatchOfPostsDoesNotOutrunThePause) {
  constexpr size_t kMessageBytes = 1U << 20U;
  Raw raw({}, {.capacity = 64 * kMessageBytes});
  std::vector<std::unique_ptr<TestMessage>> batch;
  for (uint64_t op = 0; op < 32; ++op) {
    batch.push_back(std::make_unique<TestMessage>(MessageKey{{0, 1}, op, 1}, kMessageBytes));
    raw.endpoint->post_send(batch.back()->send);
  }
  EXPECT_LE(raw.link->toward(0).in_flight(), 4 * kMessageBytes);
  const wire::FrameHeader pause{
      .kind = wire::FrameKind::kControl, .lane = {0, 1}, .control = wire::ControlKind::kPause};
  raw.feed(pause, 0);
  EXPECT_LE(raw.link->toward(0).in_flight(), 8 * kMessageBytes);
  EXPECT_FALSE(batch.back()->send.done);
}

TEST(Endpoint, AHandlerMayCallBack) {
  MemoryPair pair = make_memory_pair();
  TestMessage doomed({{0, 1}, 1, 1}, 100'000), answer({{0, 1}, 2, 1}, 100'000);
  Endpoint* self = nullptr;
  Endpoint first(std::move(pair.first), [&](const wire::Control& control) {
    self->cancel(control.lane, control.op);
    self->post_send(answer.send);
  });
  self = &first;
  Endpoint second(std::move(pair.second), [](const auto&) {});
  first.post_recv(doomed.recv);
  second.post_recv(answer.recv);
  second.send_control({.kind = wire::ControlKind::kCancel, .lane = {0, 1}, .op = 1});
  second.post_send(doomed.send);
  const TestDeadline deadline;
  while (!answer.recv.done && !deadline.over()) {
    first.progress();
    second.progress();
  }
  EXPECT_TRUE(answer.arrived());
  EXPECT_FALSE(doomed.recv.done);
}

TEST(Endpoint, AHandlerMayCloseAndNothingFollows) {
  Raw raw;
  Endpoint* self = nullptr;
  int calls = 0;
  MemoryPair pair = make_memory_pair();
  Endpoint first(std::move(pair.first), [&](const wire::Control&) {
    ++calls;
    self->close();
  });
  self = &first;
  Endpoint second(std::move(pair.second), [](const auto&) {});
  second.send_control({.kind = wire::ControlKind::kAbort});
  second.send_control({.kind = wire::ControlKind::kAbort});
  first.progress();
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(first.closed());
}

TEST(Endpoint, ABreakInTheMiddleOfAMessageIsReportedOnBothSides) {
  for (const uint64_t at : {0U, 10U, 48U, 5'000U, 300'000U}) {
    MemoryPair pair = make_memory_pair();
    pair.link->toward(1).break_after(at, "cable cut");
    TestMessage message({{0, 1}, 1, 1}, 600'000);
    Endpoint first(std::move(pair.first), [](const auto&) {});
    Endpoint second(std::move(pair.second), [](const auto&) {});
    second.post_recv(message.recv);
    first.post_send(message.send);
    const TestDeadline deadline;
    while ((!first.closed() || !second.closed()) && !deadline.over()) {
      first.progress();
      second.progress();
    }
    EXPECT_FALSE(message.recv.done || message.send.done);
    EXPECT_NE(first.describe().find("cable cut"), std::string::npos) << first.describe();
    EXPECT_NE(second.describe().find("cable cut"), std::string::npos) << second.describe();
  }
}

TEST(Endpoint, TwoRequestsWithOneKeyAreABrokenContract) {
  Raw raw;
  TestMessage message({{0, 1}, 1, 1}, 10);
  RecvRequest again = message.recv;
  raw.endpoint->post_recv(message.recv);
  EXPECT_THROW(raw.endpoint->post_recv(again), ContractError);
}

}  // namespace
}  // namespace corro::transport
