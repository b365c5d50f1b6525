// What the holder of the baton moves, on one rank and one thread.
#include "runtime/mover.h"

#include <gtest/gtest.h>

#include "runtime/buckets.h"

namespace corro::runtime {
namespace {

/// An engine of one rank, and one that moves it.
class MoverTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Engine> make_engine() {
    EngineOptions options;
    options.segment = collective::Segment::create(size_t{8} << 20U).value();
    options.peers.push_back(
        {.where = "here", .host = "here", .segment = options.segment, .stream = nullptr});
    return Engine::create(std::move(options)).value();
  }

  std::unique_ptr<Watch> watch_ =
      Watch::create({.doorbell = io::EventFd::create().value()}).value();
  std::vector<io::Fd> no_bells_;
  Mover mover_{make_engine(), *watch_, no_bells_};
};

/// A small operation that waits for a peer has no flight, and its caller keeps the baton.
TEST_F(MoverTest, BucketsAreReducedWhileAnOperationWithoutAFlightWaits) {
  std::vector<float> memory = {1, 2};
  const BucketPart part{.name = "x",
                        .bucket = 0,
                        .dtype = DType::kF32,
                        .data = reinterpret_cast<std::byte*>(memory.data()),
                        .count = memory.size()};
  Engine& engine = mover_.engine();
  const auto buckets = Buckets::create(engine, engine.world(), {part}, {}).value();
  for (uint64_t generation = 0; generation < 3; ++generation) {
    (void)buckets->ready(0);
    ASSERT_TRUE(buckets->close(generation, 0).ok());
    ASSERT_FALSE(engine.in_flight());
    for (int moves = 0; moves < 1000 && !buckets->over(Buckets::kAll); ++moves)
      mover_.move_flights();
    ASSERT_TRUE(buckets->next().ok());
  }
  const uint64_t polls = engine.recorder().metrics().value(obs::Metric::kPolls);
  for (int moves = 0; moves < 1000; ++moves) mover_.move_flights();
  EXPECT_LE(engine.recorder().metrics().value(obs::Metric::kPolls), polls + 1)
      << "where there is nothing to do, it costs nothing";
  buckets->destroy(engine);
}

}  // namespace
}  // namespace corro::runtime
