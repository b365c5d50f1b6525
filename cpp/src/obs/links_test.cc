#include "obs/links.h"

#include <gtest/gtest.h>

#include <memory>

#include "obs/flight_recorder.h"

namespace corro::obs {
namespace {

std::unique_ptr<FlightRecorder> made_recorder() {
  return std::move(FlightRecorder::create({.rank = 1, .size = 2, .capacity = 4})).value();
}

TEST(Links, CountWhatWentToEachPeer) {
  auto made = made_recorder();
  const Link link = made->links().open(7);
  EXPECT_TRUE(read_flight(made->fd())->links.empty()) << "nothing went over it yet";
  link.add(100);
  made->links().open(0).add(1);
  made->links().open(7).add(11);
  const std::vector<LinkTraffic> expected = {{.peer = 7, .sent = 111}, {.peer = 0, .sent = 1}};
  EXPECT_EQ(read_flight(made->fd())->links, expected) << "through the memory";
}

TEST(Links, AddUpWhatWentToPeersBeyondTheirNumber) {
  auto made = made_recorder();
  constexpr int32_t kPeers = static_cast<int32_t>(kMostLinks) + 5;
  for (int32_t peer = 0; peer < kPeers; ++peer) made->links().open(peer).add(10);
  const auto links = read_flight(made->fd())->links;
  ASSERT_EQ(links.size(), kMostLinks);
  EXPECT_EQ(links[kMostLinks - 2], (LinkTraffic{.peer = kMostLinks - 2, .sent = 10}));
  EXPECT_EQ(links.back(), (LinkTraffic{.peer = kOtherPeers, .sent = 60}));
}

TEST(Links, WithoutMemoryCountNothing) { Links().open(3).add(1); }

TEST(Links, KeepTheMemory) {
  auto made = made_recorder();
  const Link link = made->links().open(0);
  made.reset();
  link.add(1);
}

}  // namespace
}  // namespace corro::obs
