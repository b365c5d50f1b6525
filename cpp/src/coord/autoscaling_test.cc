#include "coord/autoscaling.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

namespace corro::coord {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

/// The true throughput of a job, in lone workers.
using Scaling = std::function<double(size_t workers)>;

Scaling linear() {
  return [](size_t n) { return static_cast<double>(n); };
}
/// Amdahl's law for crosstalk 0.
Scaling universal(double serial, double crosstalk) {
  return [=](size_t workers) {
    const auto n = static_cast<double>(workers);
    return n / (1 + serial * (n - 1) + crosstalk * n * (n - 1));
  };
}
/// Bends softly at so many workers; the fitted curve has another form.
Scaling saturating(double limit) {
  return [=](size_t n) {
    return (1 - std::exp(-static_cast<double>(n) / limit)) / (1 - std::exp(-1 / limit));
  };
}
/// Breaks off at so many workers, as a full link does.
Scaling capped(double limit) {
  return [=](size_t n) { return std::min(static_cast<double>(n), limit); };
}

constexpr Time kNow{minutes(60)};

RateHistory history_of(const Scaling& scaling, const std::vector<size_t>& sizes) {
  RateHistory history;
  for (const size_t workers : sizes) {
    for (int i = 0; i < 5; ++i) history.add(workers, 7 * scaling(workers));
  }
  return history;
}

/// A job that has all that it asks for, for long.
Situation steady(size_t workers, const RateHistory& history) {
  return {.now = kNow, .workers = workers, .wanted = workers, .history = &history};
}

void expect_decision(const Sizing& decision, size_t workers, const std::string& why) {
  EXPECT_EQ(decision.workers, workers) << decision.why;
  EXPECT_THAT(decision.why, HasSubstr(why));
}

TEST(ScalingCurve, IsFoundAgainFromItsOwnRates) {
  const ScalingCurve truth = {.lone = 0.2, .serial = 0.02, .crosstalk = 0.001};
  std::vector<Rate> rates;
  for (const size_t n : {2U, 3U, 6U, 12U}) rates.push_back({n, truth.rate(n), 5});
  const ScalingCurve curve = fit_curve(rates);
  EXPECT_NEAR(curve.lone, truth.lone, 1e-6);
  EXPECT_NEAR(curve.serial, truth.serial, 1e-6);
  EXPECT_NEAR(curve.crosstalk, truth.crosstalk, 1e-6);
}

TEST(ScalingCurve, OfOneSizeIsLinear) {
  const std::vector<Rate> rates = {{4, 20.0, 5}};
  EXPECT_NEAR(fit_curve(rates).rate(8), 40, 1e-9);
}

TEST(ScalingCurve, HasNoTermBelowZeroWhereAJobScalesBetterThanLinearly) {
  const std::vector<Rate> rates = {{1, 1.0, 5}, {2, 2.2, 5}, {4, 4.6, 5}};
  const ScalingCurve curve = fit_curve(rates);
  EXPECT_GT(curve.lone, 0);
  EXPECT_EQ(curve.serial, 0);
  EXPECT_EQ(curve.crosstalk, 0);
}

TEST(ScalingCurve, GetsNoTermForWhatIsNoise) {
  const std::vector<Rate> rates = {{1, 1.0, 5, 0.03}, {2, 1.95, 5, 0.03}, {4, 3.9, 5, 0.03}};
  EXPECT_EQ(fit_curve(rates).serial, 0);
  EXPECT_EQ(fit_curve(rates).crosstalk, 0);
}

TEST(ScalingCurve, FollowsTheRateWithMoreMeasurements) {
  const std::vector<Rate> rates = {{1, 1.0, 15}, {2, 2.4, 1}};
  EXPECT_NEAR(fit_curve(rates).rate(1), 1, 0.03);
}

TEST(RateHistory, KnowsTheErrorOfItsRates) {
  RateHistory history;
  for (const double rate : {9.0, 11.0, 9.0, 11.0}) history.add(3, rate);
  EXPECT_NEAR(history.known(4).front().error, 0.05, 1e-9);
}

TEST(RateHistory, LeavesOutAWindowThatAHiccupSlowedDown) {
  RateHistory history;
  for (const double rate : {10.0, 10.2, 1.0, 9.8, 10.0}) history.add(3, rate);
  ASSERT_EQ(history.known(5).size(), 1U);
  EXPECT_NEAR(history.known(5).front().per_second, 10, 0.1);
}

TEST(RateHistory, ForgetsWhatIsOld) {
  RateHistory history;
  for (int i = 0; i < 100; ++i) history.add(3, 10);
  for (int i = 0; i < 15; ++i) history.add(3, 20);
  EXPECT_EQ(history.known(5).front().per_second, 20);
}

TEST(RateHistory, TakesNoRateThatIsNone) {
  RateHistory history;
  history.add(0, 1);
  history.add(1, 0);
  history.add(1, -1);
  history.add(1, std::nan(""));
  EXPECT_TRUE(history.known(0).empty());
}

TEST(Autoscaling, TriesTwiceTheWorkersOfTheOnlySizeThatIsKnown) {
  const RateHistory history = history_of(linear(), {4});
  expect_decision(decide_workers(steady(4, history), {.most = 16}), 8, "grows from 4 to 8 workers");
}

TEST(Autoscaling, SaysWhatIsExpectedAndWhatIsWanted) {
  const RateHistory history = history_of(universal(0.01, 0), {2, 4});
  const Sizing decision = decide_workers(steady(4, history), {.most = 6, .least_gain = 0.5});
  EXPECT_EQ(decision.workers, 6U);
  EXPECT_EQ(decision.why,
            "grows from 4 to 6 workers: 1.47 times as fast is expected, at least 1.31 is wanted");
}

TEST(Autoscaling, GivesBackWorkersThatAddTooLittle) {
  const RateHistory history = history_of(capped(4), {2, 4, 8});
  const Sizing decision = decide_workers(steady(8, history), {.most = 8, .least_gain = 0.5});
  EXPECT_EQ(decision.workers, 4U);
  EXPECT_EQ(decision.why,
            "shrinks from 8 to 4 workers: the last 4 each add 0.00 of a lone worker's throughput, "
            "0.50 is wanted");
}

TEST(Autoscaling, MeasuresHalfTheWorkersOfAJobThatKnowsOnlyItsMost) {
  const RateHistory history = history_of(linear(), {8});
  expect_decision(decide_workers(steady(8, history), {.most = 8}), 4, "no other size");
  Situation refused = steady(8, history);
  refused.refusal = Refusal{.at = kNow - seconds(5), .had = 8};
  EXPECT_EQ(decide_workers(refused, {.most = 8}).workers, 8U);
}

TEST(Autoscaling, WaitsForMeasurements) {
  RateHistory history;
  for (int i = 0; i < 4; ++i) history.add(4, 1);
  expect_decision(decide_workers(steady(4, history), {.most = 16}), 4, "4 of 5 measurements");
}

TEST(Autoscaling, RestsAfterAChange) {
  const RateHistory history = history_of(linear(), {4});
  Situation situation = steady(4, history);
  situation.since = kNow - seconds(20);
  expect_decision(decide_workers(situation, {.most = 16}), 4, "changed 20 s ago");
}

TEST(Autoscaling, WantsWhoWasLost) {
  const RateHistory history = history_of(capped(3), {3, 4});
  Situation situation = steady(3, history);
  situation.wanted = 4;
  expect_decision(decide_workers(situation, {.most = 16}), 4, "there are 3 until now");
}

TEST(Autoscaling, AsksForNoMoreThanTheClusterHadUntilItHasCooledDown) {
  const RateHistory history = history_of(linear(), {2, 4});
  Situation situation = steady(4, history);
  situation.wanted = 8;
  situation.refusal = Refusal{.at = kNow - seconds(40), .had = 5};
  expect_decision(decide_workers(situation, {.most = 16}), 5,
                  "asks for 5 workers, not 8: the cluster had 5 workers for this job 40 s ago");
  situation.wanted = 4;
  EXPECT_EQ(decide_workers(situation, {.most = 16}).workers, 5U);
  situation.refusal->at = kNow - minutes(5);
  EXPECT_EQ(decide_workers(situation, {.most = 16}).workers, 8U);
}

TEST(Autoscaling, KeepsWhoCameAfterARefusal) {
  const RateHistory history = history_of(linear(), {2, 4});
  Situation situation = steady(4, history);
  situation.refusal = Refusal{.at = kNow - seconds(40), .had = 3};
  EXPECT_EQ(decide_workers(situation, {.most = 16}).workers, 4U);
}

TEST(Autoscaling, ShrinksToNoLessThanHalfTheSmallestSizeThatIsKnown) {
  const RateHistory history = history_of(capped(2), {8, 16});
  EXPECT_EQ(decide_workers(steady(8, history), {.most = 16}).workers, 4U);
}

TEST(Autoscaling, ObeysLimitsAtOnce) {
  const RateHistory history;
  Situation situation = steady(4, history);
  expect_decision(decide_workers(situation, {.least = 6, .most = 8}), 6, "the least");
  expect_decision(decide_workers(situation, {.least = 1, .most = 3}), 3, "the most");
  situation.refusal = Refusal{.at = kNow, .had = 2};
  expect_decision(decide_workers(situation, {.least = 6, .most = 8}), 6, "the least");
}

TEST(Autoscaling, GrowsOnlyWhereTheStallIsPaidBackInTime) {
  const RateHistory history = history_of(linear(), {4, 8});
  Situation situation = steady(8, history);
  situation.stall = minutes(4);
  const AutoscalingOptions options = {.most = 12, .least_gain = 0.5, .horizon = minutes(10)};
  expect_decision(decide_workers(situation, options), 8, "12 would gain too little");
  situation.stall = minutes(2);
  EXPECT_EQ(decide_workers(situation, options).workers, 12U);
}

TEST(Autoscaling, GrowsOnlyWhereMoreIsGainedThanNoiseExplains) {
  RateHistory history = history_of(linear(), {2});
  for (const double rate : {0.4, 1.6, 1.0, 0.4, 1.6}) history.add(3, 21 * rate);
  expect_decision(decide_workers(steady(2, history), {.most = 3, .least_gain = 0.4}), 2,
                  "3 would gain too little");
  for (int i = 0; i < 15; ++i) history.add(3, 21);
  EXPECT_EQ(decide_workers(steady(2, history), {.most = 3, .least_gain = 0.4}).workers, 3U);
}

TEST(Autoscaling, WithoutAPriceTheFastestSizeWins) {
  const Scaling scaling = universal(0, 0.01);  // 10 workers are fastest
  const RateHistory history = history_of(scaling, {4, 8, 16});
  EXPECT_EQ(decide_workers(steady(16, history), {.most = 32, .least_gain = 0}).workers, 10U);
}

// ------------------------------------------------------------------------------------ simulation
//
// A job, its user and a cluster, by a seed. For 20 minutes workers are lost and the cluster has now
// more, now fewer of them; then the cluster stays as it is for 80 minutes. A measurement each 10 s is
// wrong by up to 10 %.

class AutoscalingWorld {
 public:
  explicit AutoscalingWorld(uint64_t seed) : random_(seed) {
    scaling_ = draw_scaling();
    options_.least = pick(1, 3);
    options_.most = options_.least + pick(0, 29);
    options_.least_gain = static_cast<double>(pick(1, 8)) / 10;
    stall_ = seconds(pick(0, 20));
    free_ = pick(options_.least, options_.most + 8);
    workers_ = wanted_ = pick(options_.least, std::min(free_, options_.most));
  }

  void play() {
    for (; now_ < Time{minutes(20)}; now_ = now_ + kWindow) {
      disturb();
      step();
    }
    free_ = std::max(free_, options_.least);
    quiet_changes_ = quiet_wishes_ = 0;
    for (; now_ < Time{minutes(100)}; now_ = now_ + kWindow) step();
  }

  /// How far the job is from the size of most worth, as a share of the throughput of that size.
  [[nodiscard]] double regret() const {
    size_t best = options_.least;
    for (size_t n = best; n <= std::min(options_.most, free_); ++n) {
      if (worth(n) > worth(best)) best = n;
    }
    return (worth(best) - worth(workers_)) / scaling_(best);
  }
  [[nodiscard]] bool has_all_it_can() const { return workers_ == std::min(options_.most, free_); }
  /// A full cluster holds the job at the one size that it has had.
  [[nodiscard]] bool knows_one_size() const { return history_.known(options_.windows).size() < 2; }
  [[nodiscard]] size_t quiet_changes() const { return quiet_changes_; }
  [[nodiscard]] size_t quiet_wishes() const { return quiet_wishes_; }
  [[nodiscard]] std::string text() const { return text_; }

 private:
  static constexpr Duration kWindow = seconds(10);

  size_t pick(size_t least, size_t most) {
    return std::uniform_int_distribution<size_t>(least, most)(random_);
  }
  double between(double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random_);
  }

  Scaling draw_scaling() {
    switch (pick(0, 4)) {
      case 0:
        return linear();
      case 1:
        return universal(between(0, 0.3), 0);
      case 2:
        return saturating(between(2, 20));
      case 3:
        return capped(between(2, 20));
      default:
        return universal(between(0, 0.1), between(0.0005, 0.02));
    }
  }

  [[nodiscard]] double worth(size_t n) const {
    return scaling_(n) - options_.least_gain * static_cast<double>(n);
  }

  void disturb() {
    if (pick(0, 19) == 0) free_ = pick(options_.least, options_.most + 8);
    if (pick(0, 19) == 0 && workers_ > 1) set_workers(workers_ - 1);
  }

  void set_workers(size_t workers) {
    if (workers == workers_) return;
    workers_ = workers;
    since_ = now_;
    pending_ = 0;
    ++quiet_changes_;
  }

  /// In a window: the cluster takes at once, gives after two, and refuses after three.
  void serve() {
    if (workers_ > free_) set_workers(free_);
    if (workers_ > wanted_) set_workers(wanted_);
    pending_ = workers_ < wanted_ ? pending_ + 1 : 0;
    if (pending_ == 2) set_workers(std::min(wanted_, std::max(free_, workers_)));
    if (pending_ == 3) refusal_ = Refusal{.at = now_, .had = workers_};
  }

  void step() {
    serve();
    if (workers_ >= options_.least && since_ < now_) {
      history_.add(workers_, 50 * scaling_(workers_) * between(0.9, 1.1));
    }
    const Situation situation = {.now = now_,
                                 .workers = workers_,
                                 .wanted = wanted_,
                                 .since = since_,
                                 .stall = stall_,
                                 .refusal = refusal_,
                                 .history = &history_};
    obey(decide_workers(situation, options_));
  }

  void obey(const Sizing& decision) {
    EXPECT_GE(decision.workers, options_.least) << decision.why;  // AUTOSCALE-1
    EXPECT_LE(decision.workers, options_.most) << decision.why;
    EXPECT_FALSE(decision.why.empty());
    if (refusal_ && now_ - refusal_->at < options_.cool_down) {  // AUTOSCALE-2
      EXPECT_LE(decision.workers, std::max({refusal_->had, workers_, options_.least}));
    }
    if (decision.workers == wanted_) return;
    ++quiet_wishes_;
    text_ += fmt::format("{} s: {}\n", now_.since_start / seconds(1), decision.why);
    wanted_ = decision.workers;
    pending_ = 0;
  }

  std::mt19937_64 random_;
  Scaling scaling_;
  AutoscalingOptions options_;
  Duration stall_{};
  RateHistory history_;
  size_t free_ = 0;  ///< Workers that the cluster has for this job, with those that it has given.
  size_t workers_ = 0;
  size_t wanted_ = 0;
  size_t pending_ = 0;  ///< Windows for which workers are missing.
  Time now_{};
  Time since_{};
  std::optional<Refusal> refusal_;
  size_t quiet_changes_ = 0;  ///< Of the number of workers, since the cluster is quiet.
  size_t quiet_wishes_ = 0;   ///< Of the number that is asked for.
  std::string text_;
};

// The bounds: 99 of 100 jobs end where the worth of another size is greater by no more than 15 % of
// its throughput, and none where it is greater by more than 60 %. In 80 quiet minutes none has more
// than 12 changes, and none asks for another number more than twice in a cool-down and 8 times besides.
TEST(AutoscalingSimulation, EndsNearTheBestSizeAndChangesItsMindSeldom) {
  constexpr uint64_t kSeeds = 1000;
  size_t far = 0;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    AutoscalingWorld world(seed);
    world.play();
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, world.text()));
    EXPECT_LE(world.quiet_changes(), 12U);
    EXPECT_LE(world.quiet_wishes(), 2U * 16 + 8);
    if (world.knows_one_size()) {
      EXPECT_TRUE(world.has_all_it_can());
      continue;
    }
    EXPECT_LE(world.regret(), 0.6);
    if (world.regret() > 0.15) ++far;
  }
  EXPECT_LE(far, kSeeds / 100);
}

}  // namespace
}  // namespace corro::coord
