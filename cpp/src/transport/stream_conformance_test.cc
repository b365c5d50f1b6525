#include "transport/stream_conformance.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <random>
#include <thread>

#include "io/event.h"

namespace corro::transport {
namespace {

/// Receives as many bytes as `into` has, a random part at a time.
class PartialReceiver {
 public:
  PartialReceiver(Stream& stream, std::span<std::byte> into, uint64_t seed, size_t largest)
      : stream_(stream), into_(into), random_(seed), largest_(largest) {}

  void step() {
    std::array<iovec, 3> pieces{};
    size_t at = received_;
    for (iovec& piece : pieces) {
      const size_t size = std::min<size_t>(random_() % (largest_ + 1), into_.size() - at);
      piece = {into_.data() + at, size};
      at += size;
    }
    const Moved moved = stream_.read(pieces);
    ASSERT_FALSE(moved.closed) << stream_.describe();
    ASSERT_LE(moved.bytes, at - received_);
    received_ += moved.bytes;
  }
  [[nodiscard]] bool done() const { return received_ == into_.size(); }

 private:
  Stream& stream_;
  std::span<std::byte> into_;
  std::mt19937_64 random_;
  size_t largest_;
  size_t received_ = 0;
};

/// A sleeper: its stream's descriptor or its doorbell in an edge-triggered epoll.
class Sleeper {
 public:
  Sleeper(Stream& own, Stream& peers)
      : peers_(peers), bell_(io::EventFd::create().value()), epoll_(io::Epoll::create().value()) {
    peers.set_doorbell(Doorbell(&sleeping_, bell_.fd()));
    const bool polled = own.poll_fd() >= 0;
    const uint32_t events = polled ? EPOLLIN | EPOLLOUT | EPOLLRDHUP : EPOLLIN;
    EXPECT_TRUE(
        epoll_.add(polled ? own.poll_fd() : bell_.fd(), events, 0, io::Trigger::kEdge).ok());
  }
  ~Sleeper() { peers_.set_doorbell(Doorbell()); }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;
  void prepare() { sleeping_.store(1, std::memory_order_seq_cst); }
  /// True if woken before the deadline.
  bool sleep() {
    std::array<epoll_event, 1> event{};
    const TestDeadline deadline;
    bool woken = false;
    while (!woken && !deadline.over()) {
      woken = epoll_.wait(event, std::chrono::seconds(1)).value() > 0;
    }
    bell_.drain();
    sleeping_.store(0, std::memory_order_seq_cst);
    return woken;
  }
  /// Takes away what has happened before.
  void forget() {
    std::array<epoll_event, 1> event{};
    while (epoll_.wait(event, Duration::zero()).value() > 0) bell_.drain();
  }

 private:
  Stream& peers_;
  std::atomic<uint32_t> sleeping_{0};
  io::EventFd bell_;
  io::Epoll epoll_;
};

}  // namespace

void StreamConformance::exchange(size_t size, size_t largest) {
  const Bytes up = random_bytes(size, 1);
  const Bytes down = random_bytes(size, 2);
  Bytes got_up(size), got_down(size);
  PartialSender send_up(*pair_.first, up, 3, largest);
  PartialSender send_down(*pair_.second, down, 4, largest);
  PartialReceiver receive_up(*pair_.second, got_up, 5, largest);
  PartialReceiver receive_down(*pair_.first, got_down, 6, largest);
  const TestDeadline deadline;
  while (!receive_up.done() || !receive_down.done()) {
    ASSERT_FALSE(deadline.over());
    ASSERT_NO_FATAL_FAILURE(send_up.step());
    ASSERT_NO_FATAL_FAILURE(send_down.step());
    ASSERT_NO_FATAL_FAILURE(receive_up.step());
    ASSERT_NO_FATAL_FAILURE(receive_down.step());
  }
  EXPECT_TRUE(send_up.done() && send_down.done());
  EXPECT_EQ(got_up, up);
  EXPECT_EQ(got_down, down);
}

TEST_P(StreamConformance, KeepsTheOrderInPartsOfAnySize) { exchange(200'000, 700); }

TEST_P(StreamConformance, MovesMuchInBothDirectionsAtOnce) { exchange(8U << 20U, 1U << 20U); }

TEST_P(StreamConformance, MovesOneByteAtATime) { exchange(3'000, 1); }

TEST_P(StreamConformance, AFullPipeTakesNothingUntilThePeerReads) {
  const size_t filled = fill(*pair_.first);
  EXPECT_GT(filled, 0U);
  EXPECT_LE(filled, pair_.capacity);
  Bytes scrap(filled);
  const TestDeadline deadline;
  size_t drained = 0;
  while (drained < filled && !deadline.over()) {
    drained += read(*pair_.second, std::span(scrap).subspan(drained)).bytes;
  }
  EXPECT_EQ(drained, filled);
  size_t again = 0;
  while (again == 0 && !deadline.over()) again = write(*pair_.first, scrap).bytes;
  EXPECT_GT(again, 0U);
}

TEST_P(StreamConformance, MovingNothingIsNoEnd) {
  Bytes one(1);
  for (Stream* stream : {pair_.first.get(), pair_.second.get()}) {
    const Moved nothing_there = read(*stream, one);
    EXPECT_EQ(nothing_there.bytes, 0U);
    EXPECT_FALSE(nothing_there.closed);
    EXPECT_EQ(write(*stream, {}).bytes, 0U);
    EXPECT_FALSE(write(*stream, {}).closed);
  }
}

TEST_P(StreamConformance, DeliversWhatWasSentBeforeTheClose) {
  const Bytes sent = random_bytes(std::min<size_t>(pair_.capacity / 4, 30'000), 1);
  PartialSender sender(*pair_.first, sent, 1, sent.size());
  const TestDeadline deadline;
  while (!sender.done() && !deadline.over()) sender.step();
  pair_.first->close();
  bool closed = false;
  EXPECT_EQ(read_all(*pair_.second, sent.size(), closed), sent);
  EXPECT_TRUE(closed);
  EXPECT_NE(pair_.second->describe().find(": closed by the"), std::string::npos)
      << pair_.second->describe();
}

TEST_P(StreamConformance, DeliversThoughTheOtherDirectionWasNotRead) {
  const Bytes sent = random_bytes(std::min<size_t>(pair_.capacity / 4, 1'000), 1);
  PartialSender unread(*pair_.second, sent, 1, sent.size());
  PartialSender sender(*pair_.first, sent, 2, sent.size());
  const TestDeadline deadline;
  while (!unread.done() && !deadline.over()) unread.step();
  while (!sender.done() && !deadline.over()) sender.step();
  pair_.first->close();
  bool closed = false;
  EXPECT_EQ(read_all(*pair_.second, sent.size(), closed), sent);
  EXPECT_TRUE(closed);
}

TEST_P(StreamConformance, WritingToAClosedPeerEnds) {
  pair_.second->close();
  const Bytes block(1'000);
  const TestDeadline deadline;
  while (!write(*pair_.first, block).closed) ASSERT_FALSE(deadline.over());
  bool closed = false;
  EXPECT_TRUE(read_all(*pair_.first, 1, closed).empty());
  EXPECT_TRUE(closed);
}

TEST_P(StreamConformance, CloseMayBeCalledTwiceAndEndsThisSide) {
  pair_.first->close();
  pair_.first->close();
  Bytes one(1);
  EXPECT_TRUE(write(*pair_.first, one).closed);
  EXPECT_TRUE(read(*pair_.first, one).closed);
  EXPECT_NE(pair_.first->describe().find(": closed"), std::string::npos);
}

TEST_P(StreamConformance, DescribesInOneLineHowThePeerIsReached) {
  const std::string text = pair_.first->describe();
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_EQ(text.find("closed"), std::string::npos);
}

TEST_P(StreamWakeConformance, WakesAReaderThatSleeps) {
  Sleeper sleeper(*pair_.second, *pair_.first);
  sleeper.forget();
  sleeper.prepare();
  Bytes one(1);
  ASSERT_EQ(read(*pair_.second, one).bytes, 0U);
  ASSERT_EQ(write(*pair_.first, one).bytes, 1U);
  EXPECT_TRUE(sleeper.sleep());
  sleeper.prepare();
  pair_.first->close();
  EXPECT_TRUE(sleeper.sleep()) << "for the end, too";
}

TEST_P(StreamWakeConformance, WakesAWriterThatSleepsWhenThereIsRoom) {
  Sleeper sleeper(*pair_.first, *pair_.second);
  const size_t filled = fill(*pair_.first);
  sleeper.forget();
  sleeper.prepare();
  ASSERT_EQ(write(*pair_.first, Bytes(1)).bytes, 0U);
  Bytes scrap(filled);
  const TestDeadline deadline;
  size_t drained = 0;
  while (drained < filled && !deadline.over()) {
    drained += read(*pair_.second, std::span(scrap).subspan(drained)).bytes;
  }
  EXPECT_TRUE(sleeper.sleep());
  EXPECT_GT(write(*pair_.first, Bytes(1)).bytes, 0U);
}

TEST_P(StreamWakeConformance, TwoThreadsThatSleepInBetweenMissNothing) {
  const Bytes sent = random_bytes(6U << 20U, 1);
  Bytes got(sent.size());
  Sleeper reader(*pair_.second, *pair_.first);
  Sleeper writer(*pair_.first, *pair_.second);
  std::thread sending([&] {
    for (size_t at = 0; at < sent.size();) {
      const BytesView rest =
          BytesView(sent).subspan(at, std::min<size_t>(sent.size() - at, 90'000));
      size_t moved = write(*pair_.first, rest).bytes;
      if (moved == 0) {
        writer.prepare();
        moved = write(*pair_.first, rest).bytes;
        if (moved == 0 && !writer.sleep()) return;
      }
      at += moved;
    }
  });
  for (size_t at = 0; at < got.size();) {
    const auto rest = std::span(got).subspan(at, std::min<size_t>(got.size() - at, 70'000));
    size_t moved = read(*pair_.second, rest).bytes;
    if (moved == 0) {
      reader.prepare();
      moved = read(*pair_.second, rest).bytes;
      if (moved == 0 && !reader.sleep()) break;
    }
    at += moved;
  }
  sending.join();
  EXPECT_EQ(got, sent);
}

}  // namespace corro::transport
