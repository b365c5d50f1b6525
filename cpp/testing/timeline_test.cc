// What ranks note comes to rank 0, whatever becomes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "testing/named_support.h"

namespace corro::testing {
namespace {

using collective::OpRequest;
using Kind = obs::TimelineEvent::Kind;

struct Seen {
  void add(const runtime::TimelineBatch& batch) {
    ByteReader reader(batch.events);
    while (reader.remaining() > 0) {
      const auto event = obs::read_timeline_event(reader);
      ASSERT_TRUE(event);
      ++count[batch.rank][event->kind];
      if (!event->name.empty()) names[batch.rank].insert(event->name);
    }
    dropped[batch.rank] = batch.dropped;
  }
  [[nodiscard]] int of(int32_t rank, Kind kind) { return count[rank][kind]; }

  std::map<int32_t, std::map<Kind, int>> count;
  std::map<int32_t, std::set<std::string>> names;
  std::map<int32_t, uint64_t> dropped;
};

class Timelines : public ::testing::TestWithParam<NamedCase> {
 protected:
  Timelines() : world_(GetParam().world(3)), tensors_(GetParam().size, 4) {}
  [[nodiscard]] int32_t size() const { return GetParam().size; }

  void start() {
    for (int32_t r = 0; r < size(); ++r) start(r);
  }
  void start(int32_t rank) {
    runtime::Engine& engine = world_.engine(rank);
    engine.timeline().start(engine.world().facts(), options_);
  }
  void stop() {
    for (int32_t r = 0; r < size(); ++r) world_.engine(r).timeline().stop();
  }
  /// What the timelines' threads do.
  void look(int rounds) {
    for (int i = 0; i < rounds; ++i) {
      for (int32_t r = 0; r < size(); ++r) {
        if (r == dead_) continue;
        runtime::TimelineExchange& exchange = world_.engine(r).timeline();
        exchange.move(world_.now());
        (void)world_.engine(r).poll(world_.now());
        for (const auto& batch : exchange.take(world_.now())) {
          EXPECT_EQ(r, 0);
          seen_.add(batch);
        }
      }
      world_.poll_rounds(5);
    }
  }
  void reduce_by_name() {
    World::Works works;
    for (auto t = size_t{0}; t < 4; ++t) {
      for (int32_t r = 0; r < size(); ++r)
        works.push_back(submit_named(world_, r, tensors_.of(r)[t].request()));
    }
    world_.run(works);
    for (const auto& work : works) EXPECT_TRUE(work->status().ok()) << work->status().to_string();
  }
  [[nodiscard]] bool over() { return world_.engine(0).timeline().over(); }

  World world_;
  Tensors tensors_;
  Seen seen_;
  obs::TimelineLogOptions options_ = {.marks_cycles = true};
  int32_t dead_ = -1;
};

TEST_P(Timelines, HaveEachNameOfEachRankFromItsSubmissionToItsEnd) {
  start();
  reduce_by_name();
  look(5);
  stop();
  look(5);
  EXPECT_TRUE(over());
  for (int32_t r = 0; r < size(); ++r) {
    EXPECT_EQ(seen_.of(r, Kind::kNegotiate), 4) << r;
    EXPECT_EQ(seen_.of(r, Kind::kAgreed), 4) << r;
    EXPECT_EQ(seen_.of(r, Kind::kEnd), 4) << r;
    EXPECT_EQ(seen_.of(r, Kind::kBegin), 0) << r;
    EXPECT_GT(seen_.of(r, Kind::kCycle), 0) << r;
    EXPECT_THAT(seen_.names[r], ::testing::ElementsAre("grad.0", "grad.1", "grad.2", "grad.3"));
  }
}

TEST_P(Timelines, HaveOperationsWithoutNames) {
  start();
  world_.run_all([](int32_t) { return OpRequest{.kind = OpKind::kBarrier}; });
  stop();
  look(10);
  for (int32_t r = 0; r < size(); ++r) {
    EXPECT_EQ(seen_.of(r, Kind::kBegin), 1) << r;
    EXPECT_EQ(seen_.of(r, Kind::kEnd), 1) << r;
  }
}

TEST_P(Timelines, MayFollowEachOther) {
  for (int i = 0; i < 3; ++i) {
    seen_ = {};
    start();
    reduce_by_name();
    stop();
    look(10);
    EXPECT_TRUE(over());
    for (int32_t r = 0; r < size(); ++r) EXPECT_EQ(seen_.of(r, Kind::kEnd), 4) << r << " " << i;
  }
}

TEST_P(Timelines, TakeWhatARankNotesBeforeRankZeroStarts) {
  for (int32_t r = size() - 1; r > 0; --r) start(r);
  look(3);
  start(0);
  reduce_by_name();
  look(10);
  for (int32_t r = 0; r < size(); ++r) EXPECT_EQ(seen_.of(r, Kind::kEnd), 4) << r;
}

TEST_P(Timelines, WaitForNobodyWhoIsGone) {
  if (size() == 1) return;
  start();
  reduce_by_name();
  look(5);
  dead_ = size() - 1;
  world_.kill(dead_);
  look(2);
  stop();
  look(5);
  EXPECT_TRUE(over());
  EXPECT_EQ(seen_.of(0, Kind::kEnd), 4);
}

TEST_P(Timelines, KeepALittleAndCountTheRestWhereNobodyTakesIt) {
  options_.most_bytes = size_t{64} << 10U;
  start();
  constexpr int kMany = 400;
  for (int i = 0; i < kMany; ++i) reduce_by_name();
  look(40);
  for (int32_t r = 0; r < size(); ++r) {
    EXPECT_GT(seen_.dropped[r], 0U) << r;
    const auto noted = 4 * kMany - static_cast<int>(seen_.dropped[r]);
    EXPECT_EQ(seen_.of(r, Kind::kNegotiate), noted) << r;
    EXPECT_EQ(seen_.of(r, Kind::kEnd), noted) << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Timelines, named_cases(), name_of_named_case);

}  // namespace
}  // namespace corro::testing
