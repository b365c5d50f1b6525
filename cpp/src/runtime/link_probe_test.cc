#include "runtime/link_probe.h"

#include <gtest/gtest.h>

namespace corro::runtime {
namespace {

TEST(ProbedRanks, AreTheFirstOfEachClass) {
  EXPECT_EQ(probed_ranks({"a"}), (ProbedRanks{-1, -1}));
  EXPECT_EQ(probed_ranks({"a", "a", "a"}), (ProbedRanks{1, -1}));
  EXPECT_EQ(probed_ranks({"a", "a", "b", "c"}), (ProbedRanks{1, 2}));
  EXPECT_EQ(probed_ranks({"a", "b", "b", "a"}), (ProbedRanks{3, 1}));
}

/// What a link of these numbers takes for the rounds.
ProbeTimes times_of(const collective::LinkModel& link, bool slow = false) {
  const double round_trip = 2 * (link.latency_us + link.overhead_us);
  return {.round_trip = round_trip,
          .burst = round_trip + (ProbeTimes::kBurstMessages - 1) * link.overhead_us,
          .short_bulk = round_trip + ProbeTimes::kShortBytes * link.us_per_byte,
          .long_bulk = slow ? 0 : round_trip + ProbeTimes::kLongBytes * link.us_per_byte};
}

TEST(FitLink, FindsTheNumbersOfALink) {
  for (const bool slow : {false, true}) {
    const collective::LinkModel link{.latency_us = 15, .overhead_us = 1.5, .us_per_byte = 1e-3};
    const auto fitted = fit_link(times_of(link, slow));
    ASSERT_TRUE(fitted.has_value());
    EXPECT_NEAR(fitted->latency_us, 15, 1e-9);
    EXPECT_NEAR(fitted->overhead_us, 1.5, 1e-9);
    EXPECT_NEAR(fitted->us_per_byte, 1e-3, 1e-12);
  }
}

TEST(FitLink, ALatencyThatIsAllOverheadIsNoneBesides) {
  const ProbeTimes times{
      .round_trip = 10, .burst = 10 + 31 * 6.0, .short_bulk = 30, .long_bulk = 200};
  ASSERT_TRUE(fit_link(times).has_value());
  EXPECT_EQ(fit_link(times)->latency_us, 0);
}

TEST(FitLink, FindsNothingInTimesOfOtherWork) {
  const ProbeTimes good = times_of({.latency_us = 15, .overhead_us = 1.5, .us_per_byte = 1e-3});
  ProbeTimes times = good;
  times.round_trip = good.burst + 1;  // Every small message had to wait for a core.
  EXPECT_FALSE(fit_link(times).has_value());
  times = good;
  times.burst += 10000;
  EXPECT_FALSE(fit_link(times).has_value());
  times = good;
  times.short_bulk = good.long_bulk;
  EXPECT_FALSE(fit_link(times).has_value());
  times.long_bulk = 0;
  times.short_bulk = good.round_trip;
  EXPECT_FALSE(fit_link(times).has_value());
  EXPECT_FALSE(fit_link({}).has_value());
}

TEST(ProbeRound, RefusesWhatIsNotAnnounced) {
  const auto decoded = [](uint64_t messages, uint64_t bytes) {
    ByteWriter writer;
    writer.write(messages);
    writer.write(bytes);
    return decode_probe_round(writer.bytes());
  };
  EXPECT_EQ(decoded(0, 0)->messages, 0U);
  EXPECT_EQ(decoded(32, 8)->bytes, 8U);
  EXPECT_TRUE(decoded(1, ProbeTimes::kLongBytes).ok());
  EXPECT_FALSE(decoded(33, 8).ok());
  EXPECT_FALSE(decoded(1, ProbeTimes::kLongBytes + 1).ok());
  EXPECT_FALSE(decoded(32, ProbeTimes::kLongBytes).ok());
  EXPECT_FALSE(decoded(2, UINT64_MAX).ok());
  EXPECT_FALSE(decode_probe_round(Bytes(15)).ok());
  EXPECT_FALSE(decode_probe_round(Bytes(17)).ok());
}

}  // namespace
}  // namespace corro::runtime
