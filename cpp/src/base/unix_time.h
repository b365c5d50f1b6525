// Times of the calendar, as API objects and HTTP write them. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace corro {

/// Microseconds since 1970 in UTC: the resolution of a Lease.
using UnixTime = std::chrono::sys_time<std::chrono::microseconds>;

/// The machine's wall clock. It may jump: waits are measured with base/clock.h. Thread-safe.
[[nodiscard]] UnixTime wall_now();

/// How long it is from `now` until `time`, by the calendar: 0 if that is over, a year at most,
/// since texts of others may say any year, and nanoseconds know 292.
[[nodiscard]] Duration time_until(UnixTime time, UnixTime now);

/// Reads RFC 3339: "2026-11-24T20:15:04.123456Z", any number of digits after the point or none, any
/// offset. Nothing for other text and for dates that do not exist. Takes one digit where two
/// belong.
[[nodiscard]] std::optional<UnixTime> parse_rfc3339(std::string_view text);
/// Writes what a Lease's MicroTime asks for: exactly six digits, always Z. Years 0 to 9999.
[[nodiscard]] std::string rfc3339_micro(UnixTime time);
/// The same without a fraction: what other times of API objects are.
[[nodiscard]] std::string rfc3339_seconds(std::chrono::sys_seconds time);
/// Reads HTTP's own date (RFC 9110, section 5.6.7): "Sun, 06 Nov 1994 08:49:37 GMT". Not its two
/// obsolete forms.
[[nodiscard]] std::optional<UnixTime> parse_http_date(std::string_view text);

}  // namespace corro
