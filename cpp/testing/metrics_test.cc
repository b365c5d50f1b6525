// What an engine counts, seen from outside it: in the memory that others read.
#include <gtest/gtest.h>

#include "obs/metrics_reader.h"
#include "testing/world.h"

namespace corro::testing {
namespace {

using collective::OpRequest;

/// As another process would read it.
uint64_t read(runtime::Engine& engine, std::string_view metric) {
  return obs::total_of(obs::read_flight(engine.recorder().fd()).value().metrics, metric).value();
}

OpRequest barrier() { return {.kind = OpKind::kBarrier}; }

TEST(EngineMetrics, CountWhatWasBegunSentAndReceived) {
  World world({.size = 2, .board = false});
  std::vector<std::vector<float>> data(2, std::vector<float>(1000, 1.0F));
  for (int i = 0; i < 3; ++i) {
    world.run_all([&data](int32_t rank) {
      float* own = data[static_cast<size_t>(rank)].data();
      return OpRequest{.kind = OpKind::kAllreduce,
                       .dtype = DType::kF32,
                       .input = std::as_bytes(std::span(own, 1000)).data(),
                       .output = std::as_writable_bytes(std::span(own, 1000)).data(),
                       .count = 1000};
    });
  }
  world.run_all([](int32_t) { return barrier(); });
  EXPECT_EQ(read(world.engine(0), "ops"), 4U);
  EXPECT_EQ(read(world.engine(0), "failures"), 0U);
  EXPECT_GT(read(world.engine(0), "polls"), 0U);
  EXPECT_GE(read(world.engine(0), "bytes_sent"), 3U * 1000 * sizeof(float));
  EXPECT_EQ(read(world.engine(0), "messages_sent"), read(world.engine(1), "messages_received"));
  EXPECT_EQ(read(world.engine(0), "bytes_sent"), read(world.engine(1), "bytes_received"));
}

TEST(EngineMetrics, ShowWhatIsInFlightAndWhatHasFailed) {
  World world({.size = 2, .board = false});
  const auto waits = world.submit(0, {barrier()});
  world.poll_rounds(20);
  EXPECT_EQ(read(world.engine(0), "in_flight"), 1U);
  EXPECT_EQ(read(world.engine(1), "in_flight"), 0U);
  world.kill(1);
  world.run({waits});
  EXPECT_FALSE(waits->status().ok());
  EXPECT_EQ(read(world.engine(0), "in_flight"), 0U);
  EXPECT_EQ(read(world.engine(0), "failures"), 1U);
  EXPECT_EQ(read(world.engine(0), "ranks_lost"), 1U);
  EXPECT_FALSE(world.run_all([](int32_t) { return barrier(); })[0].ok());
  EXPECT_EQ(read(world.engine(0), "failures"), 2U) << "refused";
}

TEST(EngineMetrics, ShowRanksGroupsAndThePeersThatWereLeftOut) {
  World world({.size = 3, .board = false});
  EXPECT_EQ(read(world.engine(0), "ranks"), 3U);
  EXPECT_EQ(read(world.engine(0), "groups"), 1U) << "that of all";
  std::vector<runtime::Group*> pair;
  for (int32_t r = 0; r < 2; ++r) pair.push_back(world.engine(r).create_group({0, 1}).value());
  EXPECT_EQ(read(world.engine(0), "groups"), 2U);
  EXPECT_EQ(read(world.engine(2), "groups"), 1U);
  world.run({world.submit(world.engine(0), *pair[0], {barrier()}),
             world.submit(world.engine(1), *pair[1], {barrier()})});
  for (size_t r = 0; r < 2; ++r)
    ASSERT_TRUE(world.engine(static_cast<int32_t>(r)).destroy_group(*pair[r]).ok());
  EXPECT_EQ(read(world.engine(0), "groups"), 1U);
  const uint64_t sent = read(world.engine(0), "messages_sent");
  world.start_epoch(1, {0, 1});
  world.engine(0).peers().remove(2);
  EXPECT_EQ(read(world.engine(0), "ranks"), 2U);
  EXPECT_GE(read(world.engine(0), "messages_sent"), sent) << "a counter never shrinks";
}

}  // namespace
}  // namespace corro::testing
