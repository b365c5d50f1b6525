#include "kube/client/retry.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace corro::kube {
namespace {

Duration scaled(Duration duration, double factor) {
  return Duration(std::llround(static_cast<double>(duration.count()) * factor));
}

}  // namespace

Duration back_off(uint32_t attempt, double random, Duration first, Duration most) {
  Duration delay = first;
  for (uint32_t i = 0; i < attempt && delay < most; ++i) delay *= 2;
  return scaled(std::min(delay, most), 0.5 + 0.5 * random);
}

std::optional<Duration> retry_after(const Headers& headers, UnixTime now) {
  const auto found = headers.find("retry-after");
  if (found == headers.end()) return {};
  const std::string& text = found->second;
  if (const auto date = parse_http_date(text)) return time_until(*date, now);
  const bool is_number = !text.empty() && text.size() <= 9 &&
                         text.find_first_not_of("0123456789") == std::string::npos;
  if (!is_number) return {};
  return std::chrono::seconds(std::stol(text));
}

std::optional<Duration> next_delay(const FailedAttempt& failed, uint32_t attempt, double random,
                                   UnixTime now) {
  if (attempt + 1 >= kMostAttempts) return {};
  const int status = failed.status;
  if (status == 401) return attempt == 0 ? std::optional(Duration::zero()) : std::nullopt;
  const bool is_trouble = status == 500 || status == 502 || status == 503 || status == 504;
  if (status != 0 && status != 429 && !is_trouble) return {};
  if (const auto asked = retry_after(failed.headers, now)) {
    if (*asked > kMostRetryAfter) return {};
    return scaled(*asked, 1 + 0.1 * random);
  }
  if (status != 429 && !failed.may_repeat) return {};
  return back_off(attempt, random, std::chrono::milliseconds(100), std::chrono::seconds(10));
}

Code code_of(int http_status, std::string_view reason) {
  switch (http_status) {
    case 400:
    case 405:
    case 406:
    case 415:
    case 422:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 409:
      return reason == "AlreadyExists" ? Code::kAlreadyExists : Code::kAborted;
    case 410:
      return Code::kOutOfRange;
    case 413:
    case 429:
      return Code::kResourceExhausted;
    case 500:
      return Code::kInternal;
    case 502:
    case 503:
      return Code::kUnavailable;
    case 504:
      return Code::kDeadlineExceeded;
    default:
      return http_status >= 200 && http_status < 300 ? Code::kOk : Code::kUnknown;
  }
}

Duration TokenBucket::take(Time now) {
  if (last_) {
    const double seconds = std::chrono::duration<double>(now - *last_).count();
    permits_ = std::min(burst_, permits_ + std::max(seconds, 0.0) * rate_);
  }
  last_ = now;
  permits_ -= 1;
  if (permits_ >= 0) return Duration::zero();
  return scaled(std::chrono::seconds(1), -permits_ / rate_);
}

}  // namespace corro::kube
