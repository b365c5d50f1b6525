#include "kube/reconcile/time_text.h"

#include <charconv>

#include <fmt/format.h>

namespace corro::kube {
namespace {

/// Reads `count` digits at `at`; -1 if they are none.
int digits_at(std::string_view text, size_t at, size_t count) {
  int value = -1;
  const char* begin = text.data() + at;
  const auto [end, error] = std::from_chars(begin, begin + count, value);
  return error == std::errc() && end == begin + count && *begin != '-' ? value : -1;
}

}  // namespace

std::string time_text(KubeTime time) {
  using std::chrono::floor;
  const auto day = floor<std::chrono::days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                     clock.hours().count(), clock.minutes().count(), clock.seconds().count());
}

std::optional<KubeTime> parse_time(std::string_view text) {
  // 2026-11-24T20:00:00[.123456]Z
  if (text.size() < 20 || text.size() > 40 || text.back() != 'Z' || text[10] != 'T') return {};
  const int year = digits_at(text, 0, 4);
  const int month = digits_at(text, 5, 2);
  const int day = digits_at(text, 8, 2);
  const int hour = digits_at(text, 11, 2);
  const int minute = digits_at(text, 14, 2);
  const int second = digits_at(text, 17, 2);
  if (year < 0 || month < 1 || day < 1 || hour < 0 || minute < 0 || second < 0) return {};
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok() || hour > 23 || minute > 59 || second > 60) return {};
  return KubeTime(std::chrono::sys_days(date)) + std::chrono::hours(hour) +
         std::chrono::minutes(minute) + std::chrono::seconds(second);
}

std::optional<KubeTime> time_in(const Json& object, std::string_view field) {
  if (!object.is_object()) return {};
  const auto found = object.find(field);
  if (found == object.end() || !found->is_string()) return {};
  return parse_time(found->get_ref<const std::string&>());
}

}  // namespace corro::kube
