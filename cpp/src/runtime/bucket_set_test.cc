// Counting of gradients: any order of parts, and any speed of the engine.
#include "runtime/bucket_set.h"

#include <algorithm>
#include <map>
#include <random>
#include <thread>

#include <gtest/gtest.h>

namespace corro::runtime {
namespace {

using Ready = BucketSet::Ready;

/// The engine's side: takes buckets in order, round after round, and one at a time.
class Reducing {
 public:
  explicit Reducing(BucketSet& set) : set_(set) {}
  /// Reduces what may be; true if it was anything.
  bool step() {
    if (!set_.may_reduce(next_, round_)) return false;
    set_.reduced(next_);
    if (++next_ <= set_.buckets()) return true;
    next_ = 0;
    ++round_;
    return true;
  }
  void drain() {
    while (step()) {
    }
  }
  [[nodiscard]] uint64_t rounds() const { return round_; }
  [[nodiscard]] uint32_t next() const { return next_; }

 private:
  BucketSet& set_;
  uint64_t round_ = 0;
  uint32_t next_ = 0;
};

TEST(BucketSetTest, ABucketMayBeReducedOnceItsPartsHaveComeInEveryPass) {
  BucketSet set({0, 0, 1}, {.passes = 2});
  EXPECT_EQ(set.ready(0), Ready::kCounted);
  EXPECT_EQ(set.ready(1), Ready::kCounted);
  EXPECT_EQ(set.ready(1), Ready::kCounted);
  EXPECT_FALSE(set.may_reduce(0, 0));
  EXPECT_EQ(set.ready(0), Ready::kComplete);
  EXPECT_TRUE(set.may_reduce(0, 0));
  EXPECT_FALSE(set.may_reduce(1, 0));
  EXPECT_FALSE(set.may_reduce(2, 0)) << "the map waits for close()";
  EXPECT_FALSE(set.may_reduce(0, 1));
}

TEST(BucketSetTest, ClosingLetsTheRestGoAndSaysWhatIsToBeZeroed) {
  BucketSet set({0, 1, 1}, {.passes = 2});
  (void)set.ready(1);
  set.close();
  for (uint32_t bucket = 0; bucket <= set.buckets(); ++bucket)
    EXPECT_TRUE(set.may_reduce(bucket, 0));
  EXPECT_TRUE(set.lacks(0, 0));
  EXPECT_FALSE(set.lacks(1, 0)) << "it came once";
  EXPECT_TRUE(set.lacks(2, 0));
  set.close();  // From step(), say: nothing has come since.
  EXPECT_FALSE(set.may_reduce(0, 1));
}

TEST(BucketSetTest, ClosedGenerationsAreFollowedByTheNextOnceAllIsReduced) {
  BucketSet set({0, 1}, {});
  Reducing engine(set);
  EXPECT_FALSE(set.next()) << "not closed";
  (void)set.ready(0);
  set.close();
  EXPECT_FALSE(set.next()) << "not reduced";
  engine.drain();
  EXPECT_TRUE(set.all_settled());
  EXPECT_EQ(set.generation(), 0U);
  EXPECT_TRUE(set.next());
  EXPECT_EQ(set.generation(), 1U);
  EXPECT_FALSE(set.closed());
  EXPECT_EQ(set.came(0), 0U);
  EXPECT_FALSE(engine.step());
  EXPECT_EQ(set.ready(0), Ready::kComplete);
}

TEST(BucketSetTest, APartThatComesAgainIsReducedInOneMoreRound) {
  BucketSet set({0, 0}, {});
  Reducing engine(set);
  for (const uint32_t part : {0U, 0U, 1U}) (void)set.ready(part);
  set.close();
  engine.drain();
  EXPECT_EQ(engine.rounds(), 2U) << "also where it came before its bucket was complete";
  EXPECT_FALSE(set.lacks(1, 1));
  (void)set.ready(1);
  EXPECT_FALSE(set.may_reduce(0, 2)) << "the end of the pass decides";
  set.close();
  engine.drain();
  EXPECT_EQ(engine.rounds(), 3U);
  EXPECT_FALSE(set.lacks(0, 2)) << "it holds what was reduced";
}

TEST(BucketSetTest, CameLatelyIsOfThePassesThatWereClosedLast) {
  BucketSet set({0, 0, 0}, {.passes = 2});
  for (const uint32_t part : {0U, 0U, 0U, 1U}) (void)set.ready(part);
  set.close();  // Two rounds: part 0 came too often.
  EXPECT_TRUE(set.came_lately(0));
  EXPECT_TRUE(set.came_lately(1)) << "in one pass of them";
  EXPECT_FALSE(set.came_lately(2));
  (void)set.ready(2);
  set.close();
  EXPECT_FALSE(set.came_lately(0));
  EXPECT_FALSE(set.came_lately(1));
  EXPECT_TRUE(set.came_lately(2));
  set.close();  // Nothing has come since.
  EXPECT_TRUE(set.came_lately(2));
  Reducing(set).drain();
  ASSERT_TRUE(set.next());
  set.close();
  for (uint32_t part = 0; part < set.parts(); ++part) EXPECT_FALSE(set.came_lately(part));
}

TEST(BucketSetTest, APartThatComesAgainIsRefusedWhereItsReductionCannotBeRepeated) {
  BucketSet set({0, 1}, {.repeats = false});
  Reducing engine(set);
  EXPECT_EQ(set.ready(0), Ready::kComplete);
  EXPECT_EQ(set.ready(0), Ready::kTooOften);
  set.close();
  EXPECT_EQ(set.ready(1), Ready::kTooOften) << "its bucket was closed without it";
  set.close();
  engine.drain();
  EXPECT_EQ(engine.rounds(), 1U);
  EXPECT_TRUE(set.next());
  EXPECT_EQ(set.ready(1), Ready::kComplete);
}

TEST(BucketSetTest, SettledMeansNothingThatMayBeReducedIsLeft) {
  BucketSet set({0, 1}, {});
  Reducing engine(set);
  EXPECT_TRUE(set.all_settled());
  (void)set.ready(1);
  EXPECT_TRUE(set.all_settled()) << "bucket 1 waits for bucket 0";
  EXPECT_TRUE(set.settled(1));
  (void)set.ready(0);
  EXPECT_FALSE(set.settled(1));
  EXPECT_FALSE(set.all_settled());
  engine.drain();
  EXPECT_TRUE(set.all_settled());
  set.close();
  EXPECT_FALSE(set.all_settled()) << "the map is left";
  engine.drain();
  EXPECT_TRUE(set.all_settled());
}

TEST(BucketSetTest, TheWordTellsRoundsAndGenerationsApart) {
  BucketSet set({0}, {});
  Reducing engine(set);
  const uint64_t first = set.word(0);
  EXPECT_NE(first, set.word(1));
  set.close();
  engine.drain();
  ASSERT_TRUE(set.next());
  EXPECT_NE(first, set.word(1));
}

/// Two ranks whose passes bring the same parts in orders of their own, with engines of any speed.
class RandomRank {
 public:
  RandomRank(const std::vector<uint32_t>& bucket_of, const BucketRules& rules, uint64_t seed)
      : set_(bucket_of, rules),
        engine_(set_),
        bucket_of_(bucket_of),
        rules_(rules),
        random_(seed) {}

  void pass(std::vector<uint32_t> parts) {
    std::shuffle(parts.begin(), parts.end(), random_);
    for (const uint32_t part : parts) {
      if (set_.ready(part) == Ready::kComplete) ++complete_;
      ++came_[part];
      reduce_some();
    }
  }
  void close() {
    set_.close();
    closed_ = true;
    reduce_some();
  }
  void next() {
    engine_.drain();
    ASSERT_EQ(engine_.next(), 0U) << "a round has all buckets";
    ASSERT_TRUE(set_.all_settled());
    ASSERT_TRUE(set_.next());
    came_.clear();
    closed_ = false;
    first_ = engine_.rounds();
  }
  [[nodiscard]] uint64_t rounds() const { return engine_.rounds(); }
  [[nodiscard]] uint64_t complete() const { return complete_; }

 private:
  void reduce_some() {
    while (random_() % 3 == 0) {
      const uint32_t bucket = engine_.next();
      const bool open = !closed_ && engine_.rounds() == first_;
      if (!engine_.step()) return;
      if (!open) continue;
      for (uint32_t part = 0; part < bucket_of_.size(); ++part) {
        if (bucket_of_[part] != bucket) continue;
        ASSERT_GE(came_[part], rules_.passes) << "part " << part;
      }
    }
  }

  BucketSet set_;
  Reducing engine_;
  std::vector<uint32_t> bucket_of_;
  BucketRules rules_;
  std::mt19937_64 random_;
  std::map<uint32_t, uint32_t> came_;
  uint64_t complete_ = 0;
  uint64_t first_ = 0;
  bool closed_ = false;
};

TEST(BucketSetTest, RanksThatDoTheSameHaveTheSameRoundsWhateverTheirSpeed) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<uint32_t> bucket_of(1 + random() % 12);
    for (uint32_t i = 1; i < bucket_of.size(); ++i)
      bucket_of[i] = bucket_of[i - 1] + static_cast<uint32_t>(random() % 2);
    const BucketRules rules{.passes = 1 + static_cast<uint32_t>(random() % 3)};
    RandomRank one(bucket_of, rules, 2 * seed), other(bucket_of, rules, 2 * seed + 1);
    for (int generation = 0; generation < 6; ++generation) {
      const auto both = [&](const auto& act) {
        act(one);
        act(other);
      };
      for (uint64_t pass = random() % 3; pass < 2 * rules.passes; ++pass) {
        std::vector<uint32_t> parts;
        for (uint32_t part = 0; part < bucket_of.size(); ++part) {
          for (uint64_t times = random() % 8 == 0 ? random() % 3 : 1; times > 0; --times)
            parts.push_back(part);
        }
        both([&](RandomRank& rank) { rank.pass(parts); });
        if (random() % 2 == 0) both([](RandomRank& rank) { rank.close(); });
      }
      both([](RandomRank& rank) { rank.close(); });
      both([](RandomRank& rank) { rank.next(); });
      ASSERT_EQ(one.rounds(), other.rounds()) << "seed " << seed;
      ASSERT_EQ(one.complete(), other.complete()) << "seed " << seed;
    }
  }
}

TEST(BucketSetTest, ThreadsCompleteABucketOnceAndItsMemoryIsSeen) {
  constexpr uint32_t kThreads = 4, kEach = 64, kGenerations = 50;
  std::vector<uint32_t> bucket_of(kThreads * kEach);
  for (uint32_t i = 0; i < bucket_of.size(); ++i) bucket_of[i] = i / 16;
  BucketSet set(bucket_of, {});
  std::vector<uint64_t> memory(bucket_of.size());  // Plain: ready() orders it.
  Reducing engine(set);
  for (uint64_t generation = 0; generation < kGenerations; ++generation) {
    std::atomic<uint32_t> complete{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (uint32_t i = t; i < memory.size(); i += kThreads) {
          memory[i] += 1;
          if (set.ready(i) == Ready::kComplete) complete.fetch_add(1);
        }
      });
    }
    for (uint32_t bucket = 0; bucket < set.buckets(); ++bucket) {
      while (!set.may_reduce(bucket, generation)) std::this_thread::yield();
      for (uint32_t i = 16 * bucket; i < 16 * (bucket + 1); ++i)
        ASSERT_EQ(memory[i], generation + 1);
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(complete.load(), set.buckets());
    set.close();
    engine.drain();
    ASSERT_TRUE(set.next());
  }
}

}  // namespace
}  // namespace corro::runtime
