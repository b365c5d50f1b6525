// Streams that are made when they are first used, and goodbyes without one.
#include "runtime/peers.h"

#include <gtest/gtest.h>

#include "transport/memory_stream.h"

namespace corro::runtime {
namespace {

using collective::Segment;
using transport::MessageKey;

std::shared_ptr<Segment> new_segment() { return Segment::create(size_t{1} << 20U).value(); }

/// Members 0 and 1, whose streams the test makes.
struct Two {
  explicit Two(bool one_host = true) {
    for (MemberId other = 0; other < 2; ++other) {
      for (MemberId own = 0; own < 2; ++own) {
        const auto segment = one_host ? segments[static_cast<size_t>(other)] : nullptr;
        sides[own].add(other,
                       {.where = "here", .host = "here", .segment = segment, .stream = nullptr});
      }
    }
  }
  void connect() {
    auto pair = transport::make_memory_pair();
    sides[0].connect(1, std::move(pair.first));
    sides[1].connect(0, std::move(pair.second));
  }
  void poll() {
    for (Peers& side : sides) (void)side.poll(Peers::Look::kReadable);
  }
  /// What side 0 has heard.
  std::optional<PeerEvent> next() { return sides[0].take_event(); }

  std::shared_ptr<Segment> segments[2] = {new_segment(), new_segment()};
  Peers sides[2] = {Peers(0, true), Peers(1, true)};
};

const wire::Control kAbort{.kind = wire::ControlKind::kAbort};

TEST(Peers, AStreamIsWantedOnceSomethingIsToBeSent) {
  Two two;
  two.poll();
  EXPECT_TRUE(two.sides[1].take_wanted().empty());
  EXPECT_TRUE(two.sides[1].tell(0, kAbort));
  EXPECT_TRUE(two.sides[1].unsent());
  two.poll();
  two.poll();
  EXPECT_EQ(two.sides[1].take_wanted(), std::vector<MemberId>{0}) << "once";
  EXPECT_FALSE(two.next());
  two.connect();
  two.poll();
  two.poll();
  const auto event = two.next();
  ASSERT_TRUE(event && std::holds_alternative<PeerSaid>(*event));
  EXPECT_FALSE(two.sides[1].unsent());
}

TEST(Peers, AStreamIsWantedForWhatIsAwaitedFromAnotherHostOnly) {
  for (const bool one_host : {true, false}) {
    Two two(one_host);
    std::byte byte{};
    transport::RecvRequest request{.key = MessageKey{{0, 1}, 0, 0},
                                   .into = std::span<std::byte>(&byte, 1)};
    two.sides[0].endpoint(1)->post_recv(request);
    two.poll();
    EXPECT_EQ(two.sides[0].take_wanted().size(), one_host ? 0U : 1U);
    two.sides[0].endpoint(1)->cancel(request.key.lane, 0);
  }
}

TEST(Peers, WhoLeavesWithoutAStreamSaysGoodbyeInItsSegment) {
  Two two;
  EXPECT_TRUE(two.sides[0].tell(1, kAbort));
  two.segments[0]->header().sleeping.store(collective::kAsleep);
  EXPECT_EQ(two.sides[1].close(two.segments[1]->header()), std::vector<MemberId>{0}) << "asleep";
  two.poll();
  const auto event = two.next();
  ASSERT_TRUE(event && std::holds_alternative<PeerDeparted>(*event));
  EXPECT_TRUE(two.sides[0].departed(1));
  EXPECT_FALSE(two.sides[0].unsent()) << "nobody is there to get it";
  EXPECT_FALSE(two.next());
}

TEST(Peers, WhoLeavesSaysGoodbyeBehindWhatItHasSaidInTheStream) {
  Two two;
  two.connect();
  EXPECT_TRUE(two.sides[1].tell(0, kAbort));
  (void)two.sides[1].close(two.segments[1]->header());
  EXPECT_FALSE(two.segments[1]->header().has_said_goodbye_to(0));
  two.poll();
  const auto said = two.next();
  ASSERT_TRUE(said && std::holds_alternative<PeerSaid>(*said));
  const auto left = two.next();
  ASSERT_TRUE(left && std::holds_alternative<PeerDeparted>(*left));
}

TEST(Peers, WhoHasLeftSaysGoodbyeInAStreamThatComesAfterwards) {
  Two two(false);
  EXPECT_TRUE(two.sides[1].close(two.segments[1]->header()).empty());
  EXPECT_TRUE(two.sides[0].tell(1, kAbort));
  two.connect();
  two.poll();
  two.poll();
  const auto event = two.next();
  ASSERT_TRUE(event && std::holds_alternative<PeerDeparted>(*event));
  EXPECT_FALSE(two.next());
}

TEST(Peers, WhoNeverMetAPeerThatIsGoneLosesItOnlyIfItOwesAnything) {
  Two two(false);
  EXPECT_TRUE(two.sides[0].tell(1, kAbort));
  EXPECT_TRUE(two.sides[0].depart_unmet(1));
  EXPECT_TRUE(two.sides[0].depart_unmet(1)) << "heard twice";
  const auto left = two.next();
  ASSERT_TRUE(left && std::holds_alternative<PeerDeparted>(*left));
  EXPECT_FALSE(two.next());
  EXPECT_FALSE(two.sides[0].unsent()) << "nobody is there to get it";

  Two owing(false);
  std::byte byte{};
  transport::RecvRequest request{.key = MessageKey{{0, 1}, 0, 0},
                                 .into = std::span<std::byte>(&byte, 1)};
  owing.sides[0].endpoint(1)->post_recv(request);
  EXPECT_FALSE(owing.sides[0].depart_unmet(1));
  owing.sides[0].endpoint(1)->cancel(request.key.lane, 0);
  owing.connect();
  EXPECT_FALSE(owing.sides[0].depart_unmet(1)) << "its stream says how it ends";
  EXPECT_FALSE(owing.next());
}

TEST(Peers, AStreamThatComesAfterAGoodbyeLosesNobody) {
  Two two;
  (void)two.sides[1].close(two.segments[1]->header());
  two.connect();  // Its side 1 is closed at once.
  two.poll();
  const auto event = two.next();
  ASSERT_TRUE(event && std::holds_alternative<PeerDeparted>(*event));
  EXPECT_FALSE(two.next());
}

}  // namespace
}  // namespace corro::runtime
