// Allreduces with aggregators give the bits of the same job without them, whatever becomes of the
// aggregators.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "testing/world.h"

namespace corro::testing {
namespace {

using ::testing::HasSubstr;

struct Case {
  DType dtype = DType::kF32;
  ReduceOp reduce_op = ReduceOp::kSum;
  uint64_t count = 1000;
  bool in_place = false;
  double prescale = 1, postscale = 1;
};

/// Buffers of all ranks of one operation, with the same contents for the same seed.
class Buffers {
 public:
  Buffers(const Case& about, int32_t size, uint64_t seed) : about_(about) {
    std::mt19937_64 random(seed);
    const size_t bytes = about.count * size_of(about.dtype);
    for (int32_t r = 0; r < size; ++r) {
      inputs_.emplace_back(bytes);
      for (std::byte& byte : inputs_.back()) byte = static_cast<std::byte>(random() & 0x3B);
      outputs_.push_back(about.in_place ? Bytes() : Bytes(bytes));
    }
  }
  [[nodiscard]] collective::OpRequest request(int32_t rank) {
    Bytes& input = inputs_[static_cast<size_t>(rank)];
    return {.kind = OpKind::kAllreduce,
            .dtype = about_.dtype,
            .reduce_op = about_.reduce_op,
            .input = input.data(),
            .output = result_of(rank).data(),
            .count = about_.count,
            .prescale = about_.prescale,
            .postscale = about_.postscale};
  }
  [[nodiscard]] Bytes& result_of(int32_t rank) {
    const auto r = static_cast<size_t>(rank);
    return about_.in_place ? inputs_[r] : outputs_[r];
  }

 private:
  const Case about_;
  std::vector<Bytes> inputs_, outputs_;
};

WorldOptions options_of(int32_t size, int32_t aggregators, const std::string& rules,
                        uint64_t seed = 1) {
  return {.size = size,
          .seed = seed,
          .board = false,
          .short_moves = seed % 2 == 0,
          .selection = {.links = {}, .rules = *collective::parse_selection_rules(rules)},
          .aggregators = aggregators};
}

void expect_all_ok(const std::vector<Status>& results) {
  for (const Status& result : results) EXPECT_TRUE(result.ok()) << result.to_string();
}

/// Compares with the same job without aggregators.
void expect_same_bits(const Case& about, int32_t size, int32_t aggregators,
                      const std::string& alone, uint64_t seed) {
  SCOPED_TRACE(std::string(name_of(about.dtype)) + " " + std::string(name_of(about.reduce_op)) +
               " count=" + std::to_string(about.count) + " size=" + std::to_string(size) +
               " aggregators=" + std::to_string(aggregators) + " " + alone);
  Buffers want(about, size, seed), got(about, size, seed);
  World plain(options_of(size, 0, "allreduce=" + alone, seed));
  expect_all_ok(plain.run_all([&](int32_t rank) { return want.request(rank); }));
  World world(options_of(size, aggregators, "allreduce=" + alone + ",allreduce=served", seed));
  expect_all_ok(world.run_all([&](int32_t rank) { return got.request(rank); }));
  for (int32_t rank = 0; rank < size; ++rank)
    ASSERT_EQ(got.result_of(rank), want.result_of(rank)) << "rank " << rank;
  world.poll_rounds(20);
  for (int32_t i = 0; i < aggregators; ++i)
    ASSERT_EQ(world.aggregator(i).served(), 1U) << "it took no part";
}

TEST(Served, GivesTheBitsOfTheAlgorithmWithoutAggregators) {
  uint64_t seed = 1;
  for (const std::string alone : {"ring", "two_shot"}) {
    for (int32_t size = 2; size <= 5; ++size) {
      for (const int32_t aggregators : {1, 2, 6}) {
        for (const uint64_t count : {0UL, 1UL, 7UL, 5000UL, 400'000UL}) {
          const Case about{.count = count, .in_place = ++seed % 2 == 0};
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(about, size, aggregators, alone, seed));
        }
      }
    }
  }
}

TEST(Served, TakesEveryTypeAndReduction) {
  uint64_t seed = 100;
  for (int dtype = 0; dtype < kDTypeCount; ++dtype) {
    for (const ReduceOp op :
         {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax, ReduceOp::kProduct}) {
      const auto type = static_cast<DType>(dtype);
      if (type == DType::kBool && op == ReduceOp::kAverage) continue;
      const bool at_once = op == ReduceOp::kAverage && is_integer(type);
      const Case about{.dtype = type, .reduce_op = op, .count = 999, .in_place = ++seed % 2 == 0};
      const std::string alone = at_once || seed % 3 == 0 ? "two_shot" : "ring";
      ASSERT_NO_FATAL_FAILURE(expect_same_bits(about, 3, 2, alone, seed));
    }
  }
}

TEST(Served, ScalesContributionsAndResults) {
  for (const bool in_place : {false, true}) {
    const Case about{.dtype = DType::kBF16,
                     .reduce_op = ReduceOp::kAverage,
                     .in_place = in_place,
                     .prescale = 0.3,
                     .postscale = 3};
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(about, 4, 2, "ring", 7));
  }
}

TEST(Served, LosesNothingWithAnAggregatorWheneverThatEnds) {
  constexpr int32_t kSize = 3;
  constexpr int kOperations = 4;
  int lost_in_the_middle = 0;
  for (int rounds = 0; rounds < 120; ++rounds) {
    const auto seed = static_cast<uint64_t>(rounds);
    SCOPED_TRACE(rounds);
    const Case about{.count = 30'000, .in_place = rounds % 2 == 0};
    World plain(options_of(kSize, 0, "allreduce=ring"));
    World world(options_of(kSize, 2, "allreduce=ring,allreduce=served", seed));
    std::vector<Buffers> want, got;
    World::Works works;
    for (int i = 0; i < kOperations; ++i) {
      want.emplace_back(about, kSize, seed + static_cast<uint64_t>(i));
      got.emplace_back(about, kSize, seed + static_cast<uint64_t>(i));
    }
    for (Buffers& one : want)
      expect_all_ok(plain.run_all([&](int32_t rank) { return one.request(rank); }));
    for (int32_t rank = 0; rank < kSize; ++rank)
      for (Buffers& one : got) works.push_back(world.submit(rank, {one.request(rank)}));
    world.poll_rounds(rounds);
    lost_in_the_middle += world.aggregator(0).served() < kOperations ? 1 : 0;
    world.kill_aggregator(rounds % 2);
    world.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
    for (size_t i = 0; i < got.size(); ++i)
      for (int32_t rank = 0; rank < kSize; ++rank)
        ASSERT_EQ(got[i].result_of(rank), want[i].result_of(rank)) << i << " on rank " << rank;
  }
  EXPECT_GT(lost_in_the_middle, 10);
}

TEST(Served, GoesOnForHundredsOfOperationsAfterALoss) {
  World world(options_of(2, 1, "allreduce=ring,allreduce=served"));
  world.kill_aggregator(0);
  for (int i = 0; i < 300; ++i) {
    Buffers buffers({.count = 100}, 2, 1);
    expect_all_ok(world.run_all([&](int32_t rank) { return buffers.request(rank); }));
  }
}

TEST(Served, RanksThatDisagreeAreTold) {
  World world(options_of(2, 1, "allreduce=ring,allreduce=served"));
  Buffers one({.count = 100}, 2, 1), other({.count = 200}, 2, 1);
  const auto results =
      world.run_all([&](int32_t rank) { return (rank == 0 ? one : other).request(rank); });
  EXPECT_THAT(results[0].message(), HasSubstr("f32[100]"));
  EXPECT_THAT(results[0].message(), HasSubstr("f32[200]"));
  EXPECT_EQ(results[1].code(), Code::kInvalidArgument);
  Buffers next({.count = 50}, 2, 1);
  (void)world.run_all([&](int32_t rank) { return next.request(rank); });
  expect_all_ok(world.run_all([&](int32_t rank) { return next.request(rank); }));
}

/// A served allreduce here, something else there: each of both hears of the other.
TEST(Served, RanksThatDisagreeOnTheKindAreTold) {
  for (const bool is_small : {false, true}) {
    SCOPED_TRACE(is_small);
    World world(options_of(3, 1, "allreduce=ring,allreduce:1000-=served"));
    Buffers large({.count = 1000}, 3, 1), other({.count = 10}, 3, 1);
    const auto results = world.run_all([&](int32_t rank) {
      if (rank != 1) return large.request(rank);
      collective::OpRequest request = other.request(rank);
      if (is_small) return request;
      request.kind = OpKind::kBroadcast;
      return request;
    });
    for (const Status& result : results) {
      EXPECT_EQ(result.code(), Code::kInvalidArgument) << result.to_string();
      EXPECT_THAT(result.message(), HasSubstr(is_small ? "f32[10]" : "broadcast"));
    }
  }
}

/// An aggregator that says nothing holds one operation up, while many small ones overtake it. When it
/// is lost, the next large one may be submitted before a rank has given up, between, and after: all
/// decide alike whether that one is served.
TEST(Served, IsDecidedAlikeFarAheadOfALoss) {
  constexpr int32_t kSize = 3;
  constexpr int kSmall = 140;
  for (int rounds = 0; rounds < 40; ++rounds) {
    SCOPED_TRACE(rounds);
    const auto seed = static_cast<uint64_t>(rounds);
    World plain(options_of(kSize, 0, "allreduce=ring"));
    World world(options_of(kSize, 1, "allreduce=ring,allreduce:4000-=served", seed));
    std::vector<Buffers> want, got;
    for (int i = 0; i < kSmall + 2; ++i) {
      const Case about{.count = i == 0 || i == kSmall + 1 ? uint64_t{30'000} : 1};
      want.emplace_back(about, kSize, seed + static_cast<uint64_t>(i));
      got.emplace_back(about, kSize, seed + static_cast<uint64_t>(i));
    }
    for (Buffers& one : want)
      expect_all_ok(plain.run_all([&](int32_t rank) { return one.request(rank); }));
    World::Works large, small;
    world.pause_aggregators();
    for (int32_t rank = 0; rank < kSize; ++rank) {
      large.push_back(world.submit(rank, {got[0].request(rank)}));
      for (int i = 1; i <= kSmall; ++i)
        small.push_back(world.submit(rank, {got[static_cast<size_t>(i)].request(rank)}));
    }
    world.run(small);
    world.kill_aggregator(0);
    world.poll_rounds(rounds);
    for (int32_t rank = 0; rank < kSize; ++rank)
      large.push_back(world.submit(rank, {got.back().request(rank)}));
    world.run(large);
    for (const auto& work : large) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
    for (size_t i = 0; i < got.size(); ++i)
      for (int32_t rank = 0; rank < kSize; ++rank)
        ASSERT_EQ(got[i].result_of(rank), want[i].result_of(rank)) << i << " on rank " << rank;
  }
}

TEST(Served, ALateRankIsNotTheServersFault) {
  World world(options_of(3, 2, "allreduce=ring,allreduce=served"));
  Buffers buffers({.count = 100}, 3, 1);
  const auto submit = [&](int32_t rank) {
    collective::OpRequest request = buffers.request(rank);
    request.timeout = std::chrono::seconds(2);  // A quarter of it is servers'.
    return world.submit(rank, {request});
  };
  World::Works works{submit(0), submit(1)};
  world.poll_rounds(50);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  world.poll_rounds(50);
  works.push_back(submit(2));
  world.run(works);
  expect_all_ok({works[0]->status(), works[1]->status(), works[2]->status()});
  const obs::Metrics metrics = world.engine(0).recorder().metrics();
  EXPECT_EQ(metrics.value(obs::Metric::kServed), 1U);
  EXPECT_EQ(metrics.value(obs::Metric::kServedInVain), 0U);
}

/// Another one's vote of another operation is none, also where aggregators were lost before.
TEST(Served, NobodyDecidesOnWhatRanksDisagreeOn) {
  for (int rounds = 0; rounds < 30; ++rounds) {
    SCOPED_TRACE(rounds);
    World world(
        options_of(3, 1, "allreduce=ring,allreduce:100-=served", static_cast<uint64_t>(rounds)));
    Buffers one({.count = 1000}, 3, 1), other({.count = 2000}, 3, 1);
    World::Works works;
    for (int32_t rank = 0; rank < 3; ++rank)
      works.push_back(world.submit(rank, {(rank == 2 ? other : one).request(rank)}));
    world.poll_rounds(rounds);
    world.kill_aggregator(0);
    world.run(works);
    for (const auto& work : works) EXPECT_EQ(work->status().code(), Code::kInvalidArgument);
    for (int i = 0; i < 300; ++i) {
      Buffers next({.count = 100}, 3, 1);
      const auto results = world.run_all([&](int32_t rank) { return next.request(rank); });
      if (i > 0) expect_all_ok(results);
    }
  }
}

TEST(Served, ALostRankFailsTheGroup) {
  World world(options_of(3, 2, "allreduce=ring,allreduce=served"));
  Buffers buffers({.count = 100'000}, 3, 1);
  World::Works works;
  for (int32_t rank = 0; rank < 2; ++rank)
    works.push_back(world.submit(rank, {buffers.request(rank)}));
  world.poll_rounds(5);
  world.kill(2);
  world.run(works);
  for (const auto& work : works) EXPECT_EQ(work->status().code(), Code::kUnavailable);
}

}  // namespace
}  // namespace corro::testing
