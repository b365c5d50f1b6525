// Buckets of gradients on the engines of a World: what is reduced when, and how a set ends.
#include "runtime/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "testing/world.h"

namespace corro::testing {
namespace {

using runtime::BucketOptions;
using runtime::BucketPart;
using runtime::Buckets;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const BucketOptions kAverage{.reduce_op = ReduceOp::kAverage};

/// One rank's gradients: three parts of ten floats, two buckets.
struct Rank {
  std::vector<float> memory = std::vector<float>(30, -1.0F);
  std::unique_ptr<Buckets> buckets;

  [[nodiscard]] std::span<float> part(size_t i) { return std::span(memory).subspan(10 * i, 10); }
  void add(uint32_t i, float value) {
    for (float& x : part(i)) x += value;
    (void)buckets->ready(i);
  }
};

class BucketsTest : public ::testing::TestWithParam<bool> {
 protected:
  static constexpr Duration kTimeout = std::chrono::seconds(5);

  BucketsTest() { make(kAverage); }
  ~BucketsTest() override {
    for (int32_t r = 0; r < 2; ++r) {
      if (rank(r).buckets != nullptr) rank(r).buckets->destroy(world_.engine(r));
    }
  }
  Rank& rank(int32_t r) { return ranks_[static_cast<size_t>(r)]; }

  std::vector<BucketPart> parts(int32_t r, const std::vector<uint32_t>& bucket_of = {0, 0, 1}) {
    std::vector<BucketPart> list;
    for (uint32_t i = 0; i < bucket_of.size(); ++i) {
      list.push_back({.name = std::string(1, static_cast<char>('a' + i)),
                      .bucket = bucket_of[i],
                      .data = reinterpret_cast<std::byte*>(rank(r).part(i).data()),
                      .count = 10});
    }
    return list;
  }
  void make(const BucketOptions& options, const std::vector<uint32_t>& bucket_of = {0, 0, 1}) {
    for (int32_t r = 0; r < 2; ++r) {
      if (rank(r).buckets != nullptr) rank(r).buckets->destroy(world_.engine(r));
      std::ranges::fill(rank(r).memory, 0.0F);
      runtime::Engine& engine = world_.engine(r);
      rank(r).buckets =
          Buckets::create(engine, engine.world(), parts(r, bucket_of), options).value();
    }
  }
  void close(int32_t r, uint64_t word = 0) {
    Buckets& buckets = *rank(r).buckets;
    ASSERT_TRUE(buckets.close(buckets.set().generation(), word).ok());
  }
  void close_all() {
    for (int32_t r = 0; r < 2; ++r) close(r);
  }
  /// Polls all engines a while; whether the bucket is over on this rank.
  bool is_over(int32_t r, uint32_t bucket = Buckets::kAll) {
    world_.poll_rounds(200);
    return rank(r).buckets->over(bucket);
  }
  Status result(int32_t r) { return rank(r).buckets->wait(Buckets::kAll, Duration::zero()); }
  void finish() {
    for (int32_t r = 0; r < 2; ++r) {
      ASSERT_TRUE(is_over(r)) << result(r).to_string();
      const Status next = rank(r).buckets->next();
      ASSERT_TRUE(next.ok()) << next.to_string();
    }
  }
  void expect(size_t i, float value) {
    for (int32_t r = 0; r < 2; ++r)
      EXPECT_THAT(rank(r).part(i), Each(value)) << "part " << i << " of rank " << r;
  }

  World world_{{.size = 2, .board = GetParam(), .timeout = kTimeout}};
  std::array<Rank, 2> ranks_;
};

TEST_P(BucketsTest, EveryGenerationIsAveragedWhateverTheOrderOfItsParts) {
  for (int generation = 0; generation < 20; ++generation) {
    for (const uint32_t i : {0U, 1U, 2U}) rank(0).add(i, 1.0F);
    for (const uint32_t i : {2U, 0U, 1U}) rank(1).add(i, 3.0F);
    EXPECT_TRUE(is_over(0)) << "both buckets are complete before close()";
    close_all();
    finish();
    for (size_t i = 0; i < 3; ++i) expect(i, 2.0F * static_cast<float>(generation + 1));
  }
}

TEST_P(BucketsTest, ABucketIsReducedWhileOthersAreStillComputed) {
  for (int32_t r = 0; r < 2; ++r) {
    rank(r).add(0, 2.0F);
    rank(r).add(2, 2.0F);
  }
  EXPECT_TRUE(is_over(0, 1)) << "it waits for the bucket before it";
  EXPECT_EQ(world_.engine(0).recorder().metrics().value(obs::Metric::kOps), 0U);
  for (int32_t r = 0; r < 2; ++r) rank(r).add(1, static_cast<float>(2 * r));
  EXPECT_TRUE(is_over(0, 1));
  EXPECT_EQ(world_.engine(0).recorder().metrics().value(obs::Metric::kOps), 2U) << "before close()";
  expect(1, 1.0F);
  expect(2, 2.0F);
  close_all();
  finish();
}

TEST_P(BucketsTest, APartThatCameOnNoRankIsZeroedAndTheMapSaysSo) {
  rank(0).add(0, 4.0F);
  for (int32_t r = 0; r < 2; ++r) std::ranges::fill(rank(r).part(1), 7.0F);
  std::ranges::fill(rank(1).part(0), 9.0F);
  close_all();
  for (int32_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(is_over(r));
    EXPECT_TRUE(rank(r).buckets->came_anywhere(0));
    EXPECT_FALSE(rank(r).buckets->came_anywhere(1));
  }
  expect(0, 2.0F);
  expect(1, 0.0F);
  finish();
}

TEST_P(BucketsTest, APartThatComesAgainIsAveragedOnTopOfTheResult) {
  for (int32_t r = 0; r < 2; ++r) {
    for (uint32_t i = 0; i < 3; ++i) rank(r).add(i, static_cast<float>(2 * r));
  }
  close_all();
  ASSERT_TRUE(is_over(0));
  ASSERT_TRUE(is_over(1));
  for (int32_t r = 0; r < 2; ++r) rank(r).add(1, static_cast<float>(20 * r));
  close_all();
  finish();
  expect(0, 1.0F);
  expect(1, 11.0F);
}

TEST_P(BucketsTest, TheMapOfALaterRoundSaysWhatCameSinceTheOneBefore) {
  for (int32_t r = 0; r < 2; ++r) rank(r).add(0, 2.0F);
  close_all();
  ASSERT_TRUE(is_over(0));
  ASSERT_TRUE(is_over(1));
  rank(0).add(1, 2.0F);
  rank(1).add(2, 2.0F);
  close_all();
  for (int32_t r = 0; r < 2; ++r) {
    ASSERT_TRUE(is_over(r));
    EXPECT_FALSE(rank(r).buckets->came_anywhere(0));
    EXPECT_TRUE(rank(r).buckets->came_anywhere(1));
    EXPECT_TRUE(rank(r).buckets->came_anywhere(2));
  }
  finish();
  expect(0, 2.0F);
  expect(1, 1.0F);
}

TEST_P(BucketsTest, AGatheredPartMayComeAgainWhileABucketBeforeItWaits) {
  make(kAverage, {1, 0, 1});
  for (int32_t r = 0; r < 2; ++r) {
    rank(r).add(0, static_cast<float>(2 * r));
    rank(r).add(2, 1.0F);
  }
  for (int32_t r = 0; r < 2; ++r)
    ASSERT_TRUE(is_over(r)) << "bucket 1 is complete, but bucket 0 comes first";
  for (int32_t r = 0; r < 2; ++r) {
    rank(r).add(0, 10.0F);
    rank(r).add(1, 5.0F);
  }
  ASSERT_TRUE(is_over(0)) << "what was gathered has landed";
  close_all();
  finish();
  expect(0, 11.0F);
  expect(1, 5.0F);
  expect(2, 1.0F);
}

TEST_P(BucketsTest, AGatheredBucketLandsBeforeItIsGatheredOnceMore) {
  make(kAverage, {1, 0, 1});
  for (int32_t r = 0; r < 2; ++r) {
    for (const uint32_t i : {0U, 0U, 1U, 2U}) rank(r).add(i, static_cast<float>(2 * r));
  }
  close(1);  // Here both rounds may begin at once.
  ASSERT_TRUE(is_over(0)) << "here the first one is left";
  close(0);
  finish();
  expect(0, 2.0F);
  expect(1, 1.0F);
  expect(2, 1.0F);
}

TEST_P(BucketsTest, SumsOfScatteredPartsTravelInAnotherDtype) {
  make({.reduce_op = ReduceOp::kSum,
        .postscale = 0.5,
        .codec = collective::cast_codec(DType::kBF16),
        .passes = 2},
       {1, 0, 1});
  for (int pass = 0; pass < 2; ++pass) {
    EXPECT_TRUE(is_over(0));
    EXPECT_EQ(world_.engine(0).recorder().metrics().value(obs::Metric::kOps), 0U)
        << "two passes make a generation";
    for (int32_t r = 0; r < 2; ++r) {
      for (uint32_t i = 0; i < 3; ++i) rank(r).add(i, static_cast<float>(i + 1));
    }
  }
  EXPECT_EQ(rank(0).buckets->ready(2), runtime::BucketSet::Ready::kTooOften);
  EXPECT_THAT(rank(0).buckets->refusal(2).message(),
              HasSubstr("\"c\" came once more than 2 passes"));
  close_all();
  finish();
  for (size_t i = 0; i < 3; ++i) expect(i, 2.0F * static_cast<float>(i + 1));
}

TEST_P(BucketsTest, GenerationsGoOnWithoutARankThatHasJoined) {
  const auto step = [this](int32_t r, float value) {
    for (uint32_t i = 0; i < 3; ++i) {
      std::ranges::fill(rank(r).part(i), 0.0F);
      rank(r).add(i, value);
    }
    close(r, 17);
  };
  for (int epoch = 0; epoch < 3; ++epoch) {
    for (int32_t r = 0; r < 2; ++r) step(r, static_cast<float>(r + 1));
    finish();
    expect(2, 1.5F);
    rank(1).add(0, 100);  // Of a step that it does not take.
    ASSERT_TRUE(rank(1).buckets->join().ok());
    ASSERT_TRUE(rank(1).buckets->join().ok()) << "it has";
    for (int i = 0; i < epoch; ++i) {
      step(0, 4);
      ASSERT_TRUE(is_over(0)) << result(0).to_string();
      rank(0).add(1, 6);  // One round more.
      close(0, 18);
      ASSERT_TRUE(is_over(0)) << result(0).to_string();
      EXPECT_FALSE(is_over(1));
      EXPECT_THAT(rank(0).part(0), Each(1.0F)) << "averaged twice, with nothing";
      EXPECT_THAT(rank(0).part(1), Each(4.0F));
      ASSERT_TRUE(rank(0).buckets->next().ok());
    }
    ASSERT_TRUE(rank(0).buckets->join().ok());
    EXPECT_TRUE(is_over(0)) << result(0).to_string();
    EXPECT_TRUE(is_over(1)) << result(1).to_string();
    EXPECT_EQ(rank(0).buckets->set().generation(), rank(1).buckets->set().generation());
  }
  close_all();
  finish();
}

TEST_P(BucketsTest, SetsWaitNeitherForEachOtherNorForOneShots) {
  std::array<Rank, 2> others;
  for (int32_t r = 0; r < 2; ++r) {
    Rank& other = others[static_cast<size_t>(r)];
    runtime::Engine& engine = world_.engine(r);
    const BucketPart part{
        .name = "x", .data = reinterpret_cast<std::byte*>(other.memory.data()), .count = 10};
    other.buckets = Buckets::create(engine, engine.world(), {part}, kAverage).value();
  }
  close(0);  // Rank 1 is still computing.
  EXPECT_FALSE(is_over(0));
  const auto barrier = [](int32_t) { return collective::OpRequest{.kind = OpKind::kBarrier}; };
  for (const Status& status : world_.run_all(barrier)) EXPECT_TRUE(status.ok());
  for (int32_t r = 0; r < 2; ++r) {
    Buckets& other = *others[static_cast<size_t>(r)].buckets;
    ASSERT_TRUE(other.close(0, 0).ok());
  }
  world_.poll_rounds(200);
  for (int32_t r = 0; r < 2; ++r) {
    Buckets& other = *others[static_cast<size_t>(r)].buckets;
    EXPECT_TRUE(other.over(Buckets::kAll));
    other.destroy(world_.engine(r));
  }
  EXPECT_FALSE(is_over(0));
  close(1);
  finish();
}

TEST_P(BucketsTest, AnotherNumberOfRoundsIsAnErrorOnEveryRank) {
  close_all();
  ASSERT_TRUE(is_over(0));
  ASSERT_TRUE(is_over(1));
  rank(0).add(0, 1.0F);
  close(0);
  ASSERT_TRUE(rank(1).buckets->next().ok());
  close(1);
  (void)is_over(0);
  for (int32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(result(r).code(), Code::kInvalidArgument);
    EXPECT_THAT(result(r).message(), HasSubstr("ranks disagree"));
  }
}

TEST_P(BucketsTest, WordsThatDifferAreAnErrorOnEveryRank) {
  close(0, 1);
  close(1, 1);
  finish();
  close(0, 1);
  close(1, 2);
  (void)is_over(0);
  for (int32_t r = 0; r < 2; ++r) EXPECT_EQ(result(r).code(), Code::kInvalidArgument);
}

TEST_P(BucketsTest, TheWordOfTheFirstCloseCountsInAllRoundsOfItsGeneration) {
  close(0, 1);
  close(0, 2);  // Before the engine has looked: the first word is not sent yet.
  close(1, 1);
  for (int32_t r = 0; r < 2; ++r) ASSERT_TRUE(is_over(r)) << result(r).to_string();
  for (int32_t r = 0; r < 2; ++r) {
    rank(r).add(0, 1.0F);
    close(r, static_cast<uint64_t>(3 + r));
  }
  finish();
  close(0, 5);
  close(1, 5);
  finish();
}

TEST_P(BucketsTest, ALostRankEndsTheWaitsWithItsNumberTheGenerationAndTheBucket) {
  close_all();
  finish();
  rank(0).add(0, 1.0F);
  rank(0).add(1, 1.0F);
  EXPECT_FALSE(is_over(0));
  rank(1).buckets->destroy(world_.engine(1));
  rank(1).buckets.reset();
  world_.kill(1);
  (void)is_over(0);
  EXPECT_THAT(result(0).message(),
              AllOf(HasSubstr("generation 1"), HasSubstr("bucket 0 (\"a\" and 1 more)"),
                    HasSubstr("rank 1")));
  EXPECT_FALSE(rank(0).buckets->next().ok());
}

TEST_P(BucketsTest, ARankThatDoesNotCloseIsNamedAtTheDeadline) {
  close(0);
  EXPECT_FALSE(is_over(0));
  EXPECT_EQ(result(0).code(), Code::kDeadlineExceeded) << "of this wait";
  EXPECT_THAT(result(0).message(), HasSubstr("still being reduced"));
  world_.pass_time(2 * kTimeout);
  (void)is_over(0);
  for (int32_t r = 0; r < 2; ++r) {
    EXPECT_EQ(result(r).code(), Code::kDeadlineExceeded);
    EXPECT_THAT(result(r).message(),
                AllOf(HasSubstr(r == 0 ? "waited for rank 1" : "rank 1 was late: rank 0 waited"),
                      HasSubstr("generation 0")));
  }
}

TEST_P(BucketsTest, ASetThatIsDestroyedWhileItReducesEndsThoseOfTheOthers) {
  close(0);
  EXPECT_FALSE(is_over(0));
  rank(0).buckets->destroy(world_.engine(0));
  rank(0).buckets.reset();
  world_.poll_rounds(50);
  close(1);
  (void)is_over(1);
  EXPECT_EQ(result(1).code(), Code::kCancelled) << result(1).to_string();
}

TEST_P(BucketsTest, ASetThatIsDestroyedBetweenGenerationsEndsNobodyElses) {
  close_all();
  finish();
  rank(1).buckets->destroy(world_.engine(1));
  rank(1).buckets.reset();
  EXPECT_TRUE(is_over(0));
  EXPECT_EQ(rank(0).buckets->next().code(), Code::kFailedPrecondition) << "it has not failed";
}

TEST_P(BucketsTest, WrongPartsAndGenerationsAreNamed) {
  runtime::Engine& engine = world_.engine(0);
  const auto refused = [&](std::vector<BucketPart> list) {
    return Buckets::create(engine, engine.world(), std::move(list), kAverage).status().message();
  };
  EXPECT_THAT(refused({}), HasSubstr("at least one part"));
  auto list = parts(0);
  list[1].dtype = DType::kF64;
  EXPECT_THAT(refused(list), HasSubstr("\"b\": its dtype is f64, that of \"a\""));
  list = parts(0);
  list[2].data = nullptr;
  EXPECT_THAT(refused(list), HasSubstr("\"c\": data is NULL"));
  EXPECT_THAT(refused(parts(0, {0, 2, 2})), HasSubstr("bucket 1 has no part"));
  EXPECT_THAT(refused(parts(0, {0, 3, 2})), HasSubstr("\"b\": bucket 3 of 3 parts"));
  const auto adasum =
      Buckets::create(engine, engine.world(), parts(0), {.reduce_op = ReduceOp::kAdasum});
  EXPECT_THAT(adasum.status().message(), HasSubstr("adasum looks at each tensor as a whole"));
  EXPECT_THAT(rank(0).buckets->close(1, 0).message(), HasSubstr("generation 1 has not begun"));
  EXPECT_THAT(rank(0).buckets->next().message(), HasSubstr("generation 0 is not over"));
}

TEST(BucketsOfOneRank, AreItsOwnGradients) {
  World world({.size = 1});
  runtime::Engine& engine = world.engine(0);
  std::vector<float> memory = {1, 2};
  const BucketPart part{
      .name = "x", .data = reinterpret_cast<std::byte*>(memory.data()), .count = memory.size()};
  const auto buckets = Buckets::create(engine, engine.world(), {part}, kAverage).value();
  (void)buckets->ready(0);
  ASSERT_TRUE(buckets->close(0, 0).ok());
  world.poll_rounds(50);
  EXPECT_TRUE(buckets->over(Buckets::kAll));
  EXPECT_TRUE(buckets->next().ok());
  EXPECT_EQ(memory, (std::vector<float>{1, 2}));
  buckets->destroy(engine);
}

INSTANTIATE_TEST_SUITE_P(Fabrics, BucketsTest, ::testing::Values(true, false),
                         [](const auto& fabric) { return fabric.param ? "Board" : "Streams"; });

}  // namespace
}  // namespace corro::testing
