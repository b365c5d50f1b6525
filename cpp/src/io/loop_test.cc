#include "io/loop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "io/pipe.h"

namespace corro::io {
namespace {

using std::chrono::milliseconds;

Time in_a_moment() { return monotonic_now() + milliseconds(20); }

class LoopTest : public testing::Test {
 protected:
  EventFd bell() {
    EventFd bell = EventFd::create().value();
    bell.ring();
    return bell;
  }

  Loop loop_ = Loop::create().value();
  int calls_ = 0;
};

TEST_F(LoopTest, CallsTheHandlerOfWhatIsReady) {
  const EventFd rung = bell();
  const EventFd silent = EventFd::create().value();
  ASSERT_TRUE(loop_.watch(rung.fd(), EPOLLIN, [&] { ++calls_, rung.drain(); }).ok());
  ASSERT_TRUE(loop_.watch(silent.fd(), EPOLLIN, [] { FAIL(); }).ok());
  loop_.turn(Time::never());
  EXPECT_EQ(calls_, 1);
  loop_.turn(in_a_moment());
  EXPECT_EQ(calls_, 1);
}

TEST_F(LoopTest, ReturnsAtOnceWhereItsTimeIsOver) {
  loop_.turn(monotonic_now() - milliseconds(1));
  loop_.turn(Time{});
}

TEST_F(LoopTest, AHandlerMayForgetItselfAndWhatElseIsReady) {
  const EventFd one = bell();
  const EventFd other = bell();
  const auto forget_both = [&] {
    ++calls_;
    loop_.forget(one.fd());
    loop_.forget(other.fd());
    ++calls_;  // What it has captured is still there.
  };
  ASSERT_TRUE(loop_.watch(one.fd(), EPOLLIN, forget_both).ok());
  ASSERT_TRUE(loop_.watch(other.fd(), EPOLLIN, forget_both).ok());
  loop_.turn(in_a_moment());
  loop_.turn(in_a_moment());
  EXPECT_EQ(calls_, 2);
}

TEST_F(LoopTest, AnEventOfAClosedDescriptorIsNotThatOfTheNextWithItsNumber) {
  EventFd first = bell();
  std::optional<EventFd> second = bell();
  const int number = second->fd();
  std::optional<EventFd> third;
  const auto replace = [&] {
    loop_.forget(first.fd());
    if (third) return;
    loop_.forget(number);
    second.reset();
    third = EventFd::create().value();
    ASSERT_EQ(third->fd(), number);
    ASSERT_TRUE(loop_.watch(number, EPOLLIN, [] { FAIL() << "nobody has rung it"; }).ok());
  };
  ASSERT_TRUE(loop_.watch(first.fd(), EPOLLIN, replace).ok());
  ASSERT_TRUE(loop_.watch(number, EPOLLIN, [&] { first.drain(), replace(); }).ok());
  loop_.turn(in_a_moment());
  loop_.turn(in_a_moment());
  EXPECT_TRUE(third);
}

TEST_F(LoopTest, ANumberThatWasClosedUnheardIsWatchedAgain) {
  {
    const EventFd closed = EventFd::create().value();
    ASSERT_TRUE(loop_.watch(closed.fd(), EPOLLIN, [] { FAIL(); }).ok());
  }
  const EventFd next = bell();
  ASSERT_TRUE(loop_.watch(next.fd(), EPOLLIN, [&] { ++calls_; }).ok());
  loop_.turn(in_a_moment());
  EXPECT_EQ(calls_, 1);
}

TEST_F(LoopTest, ChangesWhatAHandlerIsCalledFor) {
  const Pipe pipe = make_pipe().value();
  const int fd = pipe.write.get();
  ASSERT_TRUE(loop_.watch(fd, 0, [&] { ++calls_; }).ok());
  loop_.turn(monotonic_now());
  EXPECT_EQ(calls_, 0);
  ASSERT_TRUE(loop_.change(fd, EPOLLOUT).ok());
  loop_.turn(in_a_moment());
  EXPECT_EQ(calls_, 1);
  loop_.forget(fd);
  loop_.forget(fd);
  EXPECT_EQ(loop_.change(fd, EPOLLIN).code(), Code::kNotFound);
  EXPECT_FALSE(loop_.watch(-1, EPOLLIN, [] {}).ok());
}

}  // namespace
}  // namespace corro::io
