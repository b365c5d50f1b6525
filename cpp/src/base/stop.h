// Waiting for a time or for the end, whichever comes first: the wait of a std::stop_token.
//
//   std::stop_source stop;
//   std::thread worker([&] { do { look(); } while (!wait_for_stop(stop.get_token(), 10s)); });
//   stop.request_stop();  // The wait returns at once.
//   worker.join();
#pragma once

#include <stop_token>

#include "base/clock.h"

namespace corro {

/// Blocks until `stop` is requested or `duration` is over. Returns stop.stop_requested(). A token
/// without a source waits for the whole duration. Thread-safe.
[[nodiscard]] bool wait_for_stop(const std::stop_token& stop, Duration duration);

}  // namespace corro
