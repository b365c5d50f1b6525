// send and recv: each (peer, tag) is a channel of its own, whatever happens on another tag.
#include <gtest/gtest.h>

#include <vector>

#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

class Pairs : public ::testing::TestWithParam<bool> {
 protected:
  std::shared_ptr<runtime::WorkState> send(uint32_t tag, std::vector<float>& data) {
    return world_.submit(0, {request(OpKind::kSend, 1, tag, data)});
  }
  std::shared_ptr<runtime::WorkState> recv(uint32_t tag, std::vector<float>& data) {
    return world_.submit(1, {request(OpKind::kRecv, 0, tag, data)});
  }
  static OpRequest request(OpKind kind, int32_t peer, uint32_t tag, std::vector<float>& data) {
    auto* bytes = reinterpret_cast<std::byte*>(data.data());
    return {.kind = kind,
            .dtype = DType::kF32,
            .root = peer,
            .tag = tag,
            .input = bytes,
            .output = bytes,
            .count = data.size()};
  }

  World world_{{.size = 2, .board = GetParam()}};
};

TEST_P(Pairs, AReceiveThatDoesNotFitLeavesOtherTagsAlone) {
  constexpr uint32_t kOthers = 4;
  std::vector<float> message(8, 7.0F), shorter(7);
  const World::Works misfit = {send(1, message), recv(1, shorter)};
  world_.run(misfit);
  EXPECT_EQ(misfit[1]->status().code(), Code::kInvalidArgument) << misfit[1]->status().to_string();
  for (uint32_t tag = 1; tag <= kOthers; ++tag) {
    for (int turn = 0; turn < 3; ++turn) {
      std::vector<float> got(8);
      const World::Works works = {send(tag, message), recv(tag, got)};
      world_.run(works);
      for (const auto& work : works) {
        EXPECT_TRUE(work->status().ok()) << "tag " << tag << ": " << work->status().to_string();
      }
      EXPECT_EQ(got, message) << "tag " << tag;
    }
  }
}

TEST_P(Pairs, EarlyMessagesAreBoundedHoweverMuchWasSentOnAnotherTag) {
  constexpr size_t kMiB = size_t{1} << 20U;
  constexpr size_t kEarly = 64;
  std::vector<float> small(4), got(4);
  for (int i = 0; i < 1000; ++i) world_.run({send(1, small), recv(1, got)});
  std::vector<float> large(kMiB / sizeof(float), 3.0F);
  World::Works works;
  for (size_t i = 0; i < kEarly; ++i) works.push_back(send(2, large));
  world_.poll_rounds(10'000);
  // The message that passes the limit, and the one that has begun before the sender hears of it.
  constexpr size_t kMost = transport::EndpointLimits{}.bounce_bytes_per_lane + 2 * kMiB;
  const auto held = [this] {
    return world_.engine(1).peers().endpoint(0)->metrics().value(obs::Metric::kBouncedBytesPeak);
  };
  EXPECT_LE(held(), kMost);
  // Other tags are not held up.
  World::Works other = {send(3, small), recv(3, got)};
  world_.run(other);
  EXPECT_TRUE(other[1]->status().ok()) << other[1]->status().to_string();
  std::vector<std::vector<float>> received(kEarly, std::vector<float>(large.size()));
  for (auto& one : received) works.push_back(recv(2, one));
  world_.run(works);
  for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  for (const auto& one : received) EXPECT_EQ(one, large);
  EXPECT_LE(held(), kMost);
}

INSTANTIATE_TEST_SUITE_P(All, Pairs, ::testing::Bool(),
                         [](const auto& test) { return test.param ? "board" : "streams"; });

}  // namespace
}  // namespace corro::testing
