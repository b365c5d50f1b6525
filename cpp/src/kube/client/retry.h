// When a call that failed is made again, and how fast calls may be made. Pure: the time and the
// random numbers are given.
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "base/unix_time.h"
#include "kube/client/transport.h"

namespace corro::kube {

inline constexpr uint32_t kMostAttempts = 8;
/// A server that asks for more is not waited for by a call.
inline constexpr Duration kMostRetryAfter = std::chrono::minutes(5);

/// How one attempt ended, if not well.
struct FailedAttempt {
  int status = 0;          ///< The answer's status; 0: there was no answer.
  Headers headers = {};    ///< The answer's.
  bool may_repeat = true;  ///< The request changes nothing more when the server gets it twice.
};

/// Returns after how long a call is made again, or nothing if its failure is the answer. `attempt`
/// counts from 0; `random` is in [0, 1); `now` is the wall clock, for dates.
///   429: after Retry-After, else after a back-off: the server has done nothing.
///   500, 502, 503, 504: after Retry-After, for every request; without one, after a back-off if the
///     request may be repeated.
///   no answer: after a back-off if the request may be repeated.
///   401: once and at once, with fresh credentials.
/// Retry-After is in seconds or an HTTP date; up to a tenth more is waited. The back-off doubles
/// from 100 ms to 10 s; half of it is random.
[[nodiscard]] std::optional<Duration> next_delay(const FailedAttempt& failed, uint32_t attempt,
                                                 double random, UnixTime now);

/// 0.5 to 1 times min(most, first * 2^attempt).
[[nodiscard]] Duration back_off(uint32_t attempt, double random, Duration first, Duration most);

/// The header's time from now, or nothing if it is missing or unreadable. A date in the past is 0.
[[nodiscard]] std::optional<Duration> retry_after(const Headers& headers, UnixTime now);

/// The Status code that an HTTP status means to a caller: 409 with reason AlreadyExists is
/// ALREADY_EXISTS, other 409 ABORTED; 410 OUT_OF_RANGE; 429 RESOURCE_EXHAUSTED.
[[nodiscard]] Code code_of(int http_status, std::string_view reason);

/// A bucket of permits that fills at `rate` a second up to `burst`. Externally synchronized value.
class TokenBucket {
 public:
  /// rate > 0, burst >= 1. It starts full.
  TokenBucket(double rate, double burst) : rate_(rate), burst_(burst), permits_(burst) {}
  /// Takes one permit and returns how long the caller has to wait before it may use it: callers
  /// line up in the order of their calls. `now` never goes back.
  [[nodiscard]] Duration take(Time now);

 private:
  double rate_;
  double burst_;
  double permits_;  ///< Below zero: so many have been taken in advance.
  std::optional<Time> last_ = {};
};

}  // namespace corro::kube
