#include "io/event.h"

#include <gtest/gtest.h>

#include <array>
#include <thread>

namespace corro::io {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// By value: epoll_event is packed, nothing may refer into it.
uint64_t data_of(epoll_event event) { return event.data.u64; }

TEST(EventFd, ManyRingsAreOneDrain) {
  const EventFd doorbell = EventFd::create().value();
  EXPECT_FALSE(doorbell.drain());
  doorbell.ring();
  doorbell.ring();
  EXPECT_TRUE(doorbell.drain());
  EXPECT_FALSE(doorbell.drain());
}

TEST(Epoll, ReportsUserDataOfWhatIsReady) {
  Epoll epoll = Epoll::create().value();
  const EventFd first = EventFd::create().value();
  const EventFd second = EventFd::create().value();
  ASSERT_TRUE(epoll.add(first.fd(), EPOLLIN, 1).ok());
  ASSERT_TRUE(epoll.add(second.fd(), EPOLLIN, 2).ok());
  std::array<epoll_event, 4> events{};
  EXPECT_EQ(epoll.wait(events, Duration::zero()).value(), 0U);
  second.ring();
  ASSERT_EQ(epoll.wait(events, seconds(60)).value(), 1U);
  EXPECT_EQ(data_of(events[0]), 2U);
}

TEST(Epoll, EdgeTriggerReportsARingOnce) {
  Epoll epoll = Epoll::create().value();
  const EventFd doorbell = EventFd::create().value();
  ASSERT_TRUE(epoll.add(doorbell.fd(), EPOLLIN, 1, Trigger::kEdge).ok());
  std::array<epoll_event, 1> events{};
  doorbell.ring();
  EXPECT_EQ(epoll.wait(events, seconds(60)).value(), 1U);
  EXPECT_EQ(epoll.wait(events, milliseconds(1)).value(), 0U) << "not drained, but the edge is over";
  doorbell.ring();
  EXPECT_EQ(epoll.wait(events, seconds(60)).value(), 1U);
}

TEST(Epoll, WakesAnotherThread) {
  Epoll epoll = Epoll::create().value();
  const EventFd doorbell = EventFd::create().value();
  ASSERT_TRUE(epoll.add(doorbell.fd(), EPOLLIN, 1).ok());
  const std::jthread ringer([&doorbell] { doorbell.ring(); });
  std::array<epoll_event, 1> events{};
  EXPECT_EQ(epoll.wait(events, Duration(-1)).value(), 1U);
}

TEST(Epoll, RemovedDescriptorIsSilentAndModifiedOneChanges) {
  Epoll epoll = Epoll::create().value();
  const EventFd doorbell = EventFd::create().value();
  ASSERT_TRUE(epoll.add(doorbell.fd(), EPOLLIN, 1).ok());
  ASSERT_TRUE(epoll.modify(doorbell.fd(), EPOLLIN, 9).ok());
  doorbell.ring();
  std::array<epoll_event, 1> events{};
  ASSERT_EQ(epoll.wait(events, seconds(60)).value(), 1U);
  EXPECT_EQ(data_of(events[0]), 9U);
  epoll.remove(doorbell.fd());
  epoll.remove(doorbell.fd());
  EXPECT_EQ(epoll.wait(events, Duration::zero()).value(), 0U);
  EXPECT_FALSE(epoll.modify(doorbell.fd(), EPOLLIN, 1).ok());
}

TEST(AlarmTest, GoesOffAtItsTimeAndNotWhenItIsTakenBack) {
  const Alarm alarm = Alarm::create().value();
  Epoll epoll = Epoll::create().value();
  ASSERT_TRUE(epoll.add(alarm.fd(), EPOLLIN, 1).ok());
  std::array<epoll_event, 2> events{};
  alarm.set(monotonic_now());
  EXPECT_EQ(epoll.wait(events, std::chrono::seconds(60)).value(), 1U);
  alarm.set(Time::never());
  EXPECT_EQ(epoll.wait(events, Duration::zero()).value(), 0U) << "silenced";
}

}  // namespace
}  // namespace corro::io
