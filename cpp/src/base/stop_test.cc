#include "base/stop.h"

#include <gtest/gtest.h>

#include <thread>

namespace corro {
namespace {

TEST(WaitForStop, SaysWhetherTheStopWasRequested) {
  std::stop_source stop;
  EXPECT_FALSE(wait_for_stop(stop.get_token(), Duration::zero()));
  EXPECT_FALSE(wait_for_stop(stop.get_token(), std::chrono::microseconds(10)));
  EXPECT_FALSE(wait_for_stop({}, std::chrono::microseconds(10))) << "a token without a source";
  stop.request_stop();
  EXPECT_TRUE(wait_for_stop(stop.get_token(), Duration::zero()));
  EXPECT_TRUE(wait_for_stop(stop.get_token(), Duration::max()));
}

TEST(WaitForStop, EndsWhenAnotherThreadRequestsTheStop) {
  std::stop_source stop;
  bool was_requested = false;
  std::thread waiting([&] { was_requested = wait_for_stop(stop.get_token(), Duration::max()); });
  stop.request_stop();
  waiting.join();
  EXPECT_TRUE(was_requested);
}

TEST(WaitForStop, ACallbackMayAskTheStopThatCallsIt) {
  std::stop_source stop;
  bool was_requested = false;
  const std::stop_callback callback(
      stop.get_token(), [&] { was_requested = wait_for_stop(stop.get_token(), Duration::zero()); });
  stop.request_stop();
  EXPECT_TRUE(was_requested);
}

}  // namespace
}  // namespace corro
