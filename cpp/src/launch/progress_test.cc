#include "launch/progress.h"

#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using std::chrono::seconds;

constexpr UnixTime kClock{std::chrono::sys_days{std::chrono::year{2026} / 11 / 28}};

Event step_of(int rank, uint64_t step) {
  return {.kind = EventKind::kStep, .epoch = 1, .rank = rank, .step = step};
}

TEST(Progress, IsTheNewestStepAndHowManyASecondThereAre) {
  ProgressWatch watch;
  Time now = monotonic_now();
  for (uint64_t step = 10; step <= 50; step += 10, now = now + seconds(2)) {
    watch.hear(step_of(0, step), 2, now, kClock);
    watch.hear(step_of(1, step - 1), 2, now, kClock);
  }
  const Progress& progress = watch.take(now);
  EXPECT_EQ(progress.epoch, 1U);
  EXPECT_EQ(progress.ranks, 2U);
  EXPECT_EQ(progress.step, 50U);
  EXPECT_DOUBLE_EQ(progress.rate.value(), 5);
}

TEST(Progress, CountsStepsOfTheLastTenSecondsAlone) {
  ProgressWatch watch;
  const Time start = monotonic_now();
  for (int i = 0; i <= 100; ++i) {
    const int slow = std::min(i, 50) + 10 * std::max(0, i - 50);
    watch.hear(step_of(0, static_cast<uint64_t>(slow)), 1, start + seconds(i), kClock);
  }
  EXPECT_DOUBLE_EQ(watch.take(start).rate.value(), 10);
}

TEST(Progress, OfAJobThatHangsThereIsNoStepASecondAndThatIsSaidOnce) {
  ProgressWatch watch;
  Time now = monotonic_now();
  watch.hear(step_of(0, 1), 1, now, kClock);
  EXPECT_FALSE(watch.take(now).rate.has_value()) << "of one step nobody knows";
  now = now + seconds(1);
  watch.hear(step_of(0, 3), 1, now, kClock);
  EXPECT_DOUBLE_EQ(watch.take(now).rate.value(), 2);
  EXPECT_EQ(watch.due(), now + seconds(10));
  now = watch.due();
  EXPECT_DOUBLE_EQ(watch.take(now).rate.value(), 0);
  EXPECT_EQ(watch.due(), Time::never());
  watch.hear(step_of(0, 4), 1, now, kClock);
  EXPECT_GT(watch.take(now).rate.value(), 0);
}

TEST(Progress, AJobWhoseNextEpochHangsDoesNotKeepItsRate) {
  ProgressWatch watch;
  const Time now = monotonic_now();
  watch.hear(step_of(0, 1), 1, now, kClock);
  watch.hear(step_of(0, 3), 1, now + seconds(1), kClock);
  watch.hear({.kind = EventKind::kEpoch, .epoch = 2, .cause = "1 rank goes on"}, 1,
             now + seconds(2), kClock);
  EXPECT_DOUBLE_EQ(watch.take(now + seconds(2)).rate.value(), 2);
  EXPECT_EQ(watch.due(), now + seconds(11));
  EXPECT_DOUBLE_EQ(watch.take(watch.due()).rate.value(), 0);
}

TEST(Progress, LongStepsAreNoHang) {
  ProgressWatch watch;
  Time now = monotonic_now();
  watch.hear(step_of(0, 1), 1, now, kClock);
  now = now + seconds(30);
  watch.hear(step_of(0, 2), 1, now, kClock);
  EXPECT_DOUBLE_EQ(watch.take(now).rate.value(), 1.0 / 30);
  EXPECT_GE(watch.due(), now + seconds(59));
}

TEST(Progress, MayGoBackByAStepWhenAnEpochBegins) {
  ProgressWatch watch;
  const Time now = monotonic_now();
  watch.hear(step_of(0, 7), 2, now, kClock);
  watch.hear({.kind = EventKind::kEpoch, .epoch = 2, .cause = "1 of 2 ranks go on"}, 1, now,
             kClock);
  watch.hear(step_of(0, 6), 1, now, kClock);
  EXPECT_EQ(watch.take(now).step, 6U);
}

TEST(Progress, IsShownAtOnceAfterAChangeAndElseEveryFiveSeconds) {
  ProgressWatch watch;
  const Time now = monotonic_now();
  EXPECT_EQ(watch.due(), Time::never());
  watch.hear({.kind = EventKind::kEpoch, .epoch = 1, .cause = "3 ranks go on"}, 3, now, kClock);
  EXPECT_LE(watch.due(), now);
  (void)watch.take(now);
  EXPECT_EQ(watch.due(), Time::never());
  watch.hear(step_of(0, 1), 3, now, kClock);
  EXPECT_EQ(watch.due(), now + seconds(5));
}

TEST(Progress, KeepsTheLastEightChanges) {
  ProgressWatch watch;
  const Time now = monotonic_now();
  for (uint32_t epoch = 1; epoch <= 10; ++epoch) {
    watch.hear({.kind = EventKind::kEpoch, .epoch = epoch, .cause = std::to_string(epoch)}, 3, now,
               kClock + seconds(epoch));
  }
  const auto& changes = watch.take(now).changes;
  ASSERT_EQ(changes.size(), 8U);
  EXPECT_EQ(changes.front().text, "3");
  EXPECT_EQ(changes.back().text, "10");
}

Event checkpoint_of(uint64_t step, Duration age) {
  return {.kind = EventKind::kCheckpoint,
          .epoch = 1,
          .rank = 0,
          .step = step,
          .cause = "/run/step-" + std::to_string(step),
          .age = age};
}

TEST(Progress, HasTheCheckpointThatWasMadeLastInWhateverOrderTheyAreTold) {
  ProgressWatch watch;
  const Time now = monotonic_now();
  EXPECT_FALSE(watch.take(now).checkpoint.has_value());
  watch.hear(checkpoint_of(200, seconds(3)), 2, now, kClock);
  watch.hear(checkpoint_of(100, seconds(60)), 2, now, kClock);
  EXPECT_EQ(watch.due(), now + seconds(5)) << "it is news";
  const auto last = watch.take(now).checkpoint;
  ASSERT_TRUE(last.has_value());
  EXPECT_EQ(last->step, 200U);
  EXPECT_EQ(last->at, kClock - seconds(3));
  EXPECT_EQ(last->path, "/run/step-200");
  watch.hear(checkpoint_of(150, {}), 2, now, kClock);
  EXPECT_EQ(watch.take(now).checkpoint->step, 150U) << "of a job that went back";
  EXPECT_EQ(watch.take(now).step, 0U) << "no rank has said that it is there";
}

TEST(Progress, HasThePlanThatWasLoadedLastAlsoInLaterEpochs) {
  const auto plan = [](const char* name, Duration age) {
    return Event{.kind = EventKind::kPlan, .epoch = 1, .rank = 0, .cause = name, .age = age};
  };
  ProgressWatch watch;
  const Time now = monotonic_now();
  EXPECT_EQ(watch.take(now).plan, "");
  watch.hear(plan("two stages", seconds(3)), 2, now, kClock);
  watch.hear(plan("one stage", seconds(60)), 2, now, kClock);
  EXPECT_EQ(watch.due(), now + seconds(5)) << "it is news";
  EXPECT_EQ(watch.take(now).plan, "two stages");
  watch.hear({.kind = EventKind::kEpoch, .epoch = 2, .cause = "1 rank goes on"}, 1, now, kClock);
  EXPECT_EQ(watch.take(now).plan, "two stages");
  watch.hear(plan("alone", {}), 1, now, kClock);
  EXPECT_EQ(watch.take(now).plan, "alone");
}

TEST(Progress, SaysAlsoThatThereIsNoStepAndWhatIsLessThanOneASecond) {
  EXPECT_EQ(format_progress({.epoch = 1, .ranks = 2, .step = 3, .rate = 0, .changes = {}}),
            R"({"epoch":1,"ranks":2,"step":3,"stepsPerSecond":0.0,"changes":[]})");
  EXPECT_EQ(format_progress({.epoch = 1, .ranks = 2, .step = 3, .rate = 1.0 / 30, .changes = {}}),
            R"({"epoch":1,"ranks":2,"step":3,"stepsPerSecond":0.033,"changes":[]})");
}

TEST(Progress, IsWrittenWithoutWhatIsNotKnown) {
  EXPECT_EQ(format_progress({.epoch = 1, .ranks = 2, .step = 3, .changes = {}}),
            R"({"epoch":1,"ranks":2,"step":3,"changes":[]})");
  EXPECT_EQ(format_progress({.epoch = 1,
                             .ranks = 2,
                             .step = 30,
                             .rate = 4.26,
                             .changes = {{.at = kClock, .text = "3 ranks go on"}}}),
            R"({"epoch":1,"ranks":2,"step":30,"stepsPerSecond":4.3,"changes":)"
            R"([{"time":"2026-11-28T00:00:00.000000Z","text":"3 ranks go on"}]})");
  Progress progress{.epoch = 1, .ranks = 2, .step = 30, .changes = {}};
  progress.checkpoint = {.step = 20, .at = kClock, .path = "/run/step-20"};
  EXPECT_EQ(format_progress(progress),
            R"({"epoch":1,"ranks":2,"step":30,"lastCheckpoint":{"step":20,)"
            R"("time":"2026-11-28T00:00:00.000000Z","path":"/run/step-20"},"changes":[]})");
  progress.checkpoint->path.clear();
  progress.plan = "two stages";
  EXPECT_EQ(format_progress(progress),
            R"({"epoch":1,"ranks":2,"step":30,"plan":"two stages","lastCheckpoint":{"step":20,)"
            R"("time":"2026-11-28T00:00:00.000000Z"},"changes":[]})");
}

}  // namespace
}  // namespace corro::launch
