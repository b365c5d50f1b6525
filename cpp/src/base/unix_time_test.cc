#include "base/unix_time.h"

#include <gtest/gtest.h>

namespace corro {
namespace {

TEST(UnixTime, AreReadAndWritten) {
  const std::vector<std::pair<std::string, std::string>> table = {
      {"2026-11-24T20:15:04Z", "2026-11-24T20:15:04.000000Z"},
      {"2026-11-24T20:15:04.5Z", "2026-11-24T20:15:04.500000Z"},
      {"2026-11-24T20:15:04.123456789Z", "2026-11-24T20:15:04.123456Z"},
      {"2026-11-24T20:15:04+05:30", "2026-11-24T14:45:04.000000Z"},
      {"2024-02-29T23:59:60-00:01", "2024-03-01T00:00:59.000000Z"},
      {"1969-12-31T23:59:59.25Z", "1969-12-31T23:59:59.250000Z"},
  };
  for (const auto& [text, written] : table) {
    const auto time = parse_rfc3339(text);
    ASSERT_TRUE(time) << text;
    EXPECT_EQ(rfc3339_micro(*time), written);
  }
  for (const char* text :
       {"", "2026-11-24", "2026-11-24T20:15:04", "2026-02-29T00:00:00Z", "2026-13-01T00:00:00Z",
        "2026-11-24T24:00:00Z", "2026-11-24T20:15:04.Z", "2026-11-24T20:15:04Zx",
        "+026-11-24T20:15:04Z", "2026-11-24T20:15:04+25:00"}) {
    EXPECT_FALSE(parse_rfc3339(text)) << text;
  }
  using std::chrono::floor, std::chrono::seconds;
  const auto leap = floor<seconds>(*parse_rfc3339("2024-02-29T23:59:58.7Z"));
  EXPECT_EQ(rfc3339_seconds(leap), "2024-02-29T23:59:58Z");
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT"),
            parse_rfc3339("1994-11-06T08:49:37Z"));
  EXPECT_FALSE(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT"));
  EXPECT_FALSE(parse_http_date("Sun, 06 Abc 1994 08:49:37 GMT"));
}

TEST(UnixTime, AnyYearIsWaitedForAYearAtMost) {
  const UnixTime now = *parse_rfc3339("2026-11-24T20:00:00Z");
  EXPECT_EQ(time_until(*parse_rfc3339("2026-11-24T20:01:00Z"), now), std::chrono::minutes(1));
  EXPECT_EQ(time_until(*parse_http_date("Sun, 06 Nov 199 08:49:37 GMT"), now), Duration::zero());
  EXPECT_EQ(time_until(*parse_rfc3339("9999-01-01T00:00:00Z"), now), std::chrono::days(365));
}

}  // namespace
}  // namespace corro
