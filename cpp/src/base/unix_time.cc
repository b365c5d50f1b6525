#include "base/unix_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

namespace corro {
namespace {

using std::chrono::microseconds;

/// Reads the calendar's fields off the front of `text`; nothing for a date that does not exist. The
/// names are the C locale's: nothing in corro sets another one.
std::optional<std::chrono::seconds> take_fields(std::string_view& text, const char* format) {
  const std::string whole(text);
  std::tm fields{};
  const char* end = ::strptime(whole.c_str(), format, &fields);
  if (end == nullptr) return {};
  text.remove_prefix(static_cast<size_t>(end - whole.c_str()));
  fields.tm_sec = std::min(fields.tm_sec, 59);  // A leap second counts as the one before it.
  std::tm normal = fields;
  const std::chrono::seconds time(::timegm(&normal));
  if (normal.tm_mday != fields.tm_mday) return {};
  return time;
}

/// Takes ".123456": digits beyond the sixth are dropped. Nothing for a point without digits.
std::optional<microseconds> take_fraction(std::string_view& text) {
  if (!text.starts_with('.')) return microseconds(0);
  text.remove_prefix(1);
  int64_t value = 0;
  int64_t unit = 100000;
  size_t digits = 0;
  for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits) {
    value += unit * (text[digits] - '0');
    unit /= 10;
  }
  text.remove_prefix(digits);
  if (digits == 0) return {};
  return microseconds(value);
}

/// The whole of "Z" or "+05:30".
std::optional<std::chrono::seconds> offset_of(std::string_view text) {
  if (text == "Z" || text == "z") return std::chrono::seconds(0);
  const bool is_west = text.starts_with('-');
  if (!is_west && !text.starts_with('+')) return {};
  text.remove_prefix(1);
  const std::string dated = "1970-01-01T" + std::string(text);
  std::string_view rest = dated;
  const auto east = text.size() == 5 ? take_fields(rest, "%Y-%m-%dT%H:%M") : std::nullopt;
  if (!east || !rest.empty()) return {};
  return is_west ? -*east : *east;
}

std::string calendar_text(std::chrono::sys_seconds time) {
  const std::time_t count = time.time_since_epoch().count();
  std::tm fields{};
  ::gmtime_r(&count, &fields);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", fields.tm_year + 1900,
                     fields.tm_mon + 1, fields.tm_mday, fields.tm_hour, fields.tm_min,
                     fields.tm_sec);
}

}  // namespace

UnixTime wall_now() {
  return std::chrono::time_point_cast<microseconds>(std::chrono::system_clock::now());
}

Duration time_until(UnixTime time, UnixTime now) {
  constexpr microseconds kMost = std::chrono::hours(24 * 365);
  return std::clamp(time - now, microseconds::zero(), kMost);
}

std::optional<UnixTime> parse_rfc3339(std::string_view text) {
  const auto time = take_fields(text, "%Y-%m-%dT%H:%M:%S");
  if (!time) return {};
  const auto fraction = take_fraction(text);
  const auto offset = fraction ? offset_of(text) : std::nullopt;
  if (!offset) return {};
  return UnixTime(*time) + *fraction - *offset;
}

std::string rfc3339_micro(UnixTime time) {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(time);
  return fmt::format("{}.{:06}Z", calendar_text(seconds), (time - seconds).count());
}

std::string rfc3339_seconds(std::chrono::sys_seconds time) { return calendar_text(time) + "Z"; }

std::optional<UnixTime> parse_http_date(std::string_view text) {
  const auto time = take_fields(text, "%a, %d %b %Y %H:%M:%S GMT");
  if (!time || !text.empty()) return {};
  return UnixTime(*time);
}

}  // namespace corro
