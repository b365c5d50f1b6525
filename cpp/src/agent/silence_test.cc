#include "agent/silence.h"

#include <gtest/gtest.h>

namespace corro::agent {
namespace {

using std::chrono::seconds;

constexpr Time kStart{std::chrono::hours(1)};

TEST(Silence, ACommanderThatNeverSaysAWordIsGone) {
  EXPECT_EQ(Silence(true, kStart).deadline(), kStart + kSilence);
}

TEST(Silence, EachWordBeginsItAnew) {
  Silence silence(true, kStart);
  silence.hear(kStart + seconds(7));
  EXPECT_EQ(silence.deadline(), kStart + seconds(7) + kSilence);
}

TEST(Silence, OfACommanderThatCtrlZHasStoppedLastsUntilItContinues) {
  Silence silence(true, kStart);
  silence.hear_signal(SIGTSTP);
  EXPECT_EQ(silence.deadline(), Time::never());
  silence.hear(kStart + seconds(1));  // Said before it stopped.
  silence.hear_signal(SIGWINCH);
  EXPECT_EQ(silence.deadline(), Time::never());
  silence.hear(kStart + seconds(3600));
  silence.hear_signal(SIGCONT);
  EXPECT_EQ(silence.deadline(), kStart + seconds(3600) + kSilence);
}

TEST(Silence, OnTheCommandersHostMeansNothing) {
  EXPECT_EQ(Silence(false, kStart).deadline(), Time::never());
}

}  // namespace
}  // namespace corro::agent
