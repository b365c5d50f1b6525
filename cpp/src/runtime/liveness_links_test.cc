// LivenessLinks on real sockets: rank 0 of four hosts on the loopback is the one under test; its
// neighbours, ranks 1 and 3, are played by the test.
#include "runtime/liveness_links.h"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "io/socket.h"
#include "transport/mesh_test_support.h"
#include "wire/liveness_news.h"
#include "wire/secret.h"

namespace corro::runtime {
namespace {

constexpr int32_t kHosts = 4;
const std::vector<std::string> kHostOf = {"a", "b", "c", "d"};

class LivenessLinksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::vector<std::thread> ranks;
    for (int32_t r = 0; r < kHosts; ++r) ranks.emplace_back([this, r] { join(r); });
    for (std::thread& rank : ranks) rank.join();
    for (const auto& connector : connectors_) ASSERT_NE(connector, nullptr);
    links_ = LivenessLinks::create(*connectors_[0], kHostOf).value();
  }

  void join(int32_t rank) {
    auto store = meeting_.join();
    auto options = transport::options_for(rank, kHosts, {.hosts = kHosts}, store, secret_);
    auto mesh = transport::connect_mesh(options);
    ASSERT_TRUE(mesh.ok()) << mesh.status().to_string();
    connectors_[static_cast<size_t>(rank)] = std::move(mesh->connector);
  }

  /// Polls rank 0 until `over` holds.
  void poll_until(const std::function<bool()>& over) {
    const Time deadline = transport::soon();
    bool done = over();
    while (!done && monotonic_now() < deadline) {
      connectors_[0]->poll(monotonic_now());
      for (transport::JoinedPeer& joined : connectors_[0]->take_joined())
        links_->admit(std::move(joined), monotonic_now());
      for (Loss& loss : links_->poll(monotonic_now())) losses_.push_back(std::move(loss));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
      done = over();
    }
    ASSERT_TRUE(done);
  }

  /// `rank` dials rank 0 for liveness.
  io::Fd dial(int32_t rank) {
    const transport::Connector& connector = *connectors_[static_cast<size_t>(rank)];
    io::Epoll epoll = io::Epoll::create().value();
    transport::Dialer dialer(connector.options(), connector.place(0), 0, epoll,
                             wire::Purpose::kLiveness, true);
    std::optional<transport::JoinedPeer> joined;
    poll_until([&] {
      EXPECT_TRUE(dialer.start_if_due(monotonic_now()).ok());
      std::array<epoll_event, 4> events{};
      const size_t ready = epoll.wait(events, Duration::zero()).value();
      for (size_t i = 0; i < ready; ++i) {
        if (events[i].data.u64 != transport::Admission::kFirstForeign) continue;
        EXPECT_TRUE(dialer.on_event(monotonic_now()).ok());
      }
      joined = dialer.take_joined();
      return joined.has_value();
    });
    return joined ? std::move(joined->socket) : io::Fd();
  }

  /// What comes next on a connection to rank 0; empty: its end.
  Bytes receive(const io::Fd& fd) {
    Bytes received(wire::kLivenessNewsBytes);
    std::optional<size_t> bytes;
    poll_until([&] {
      const io::Received some = io::receive_message(fd.get(), received);
      if (!some.would_block) bytes = some.closed ? 0 : some.bytes;
      return bytes.has_value();
    });
    received.resize(bytes.value_or(0));
    return received;
  }
  /// Host 2 is lost, as rank 3 has noticed.
  void expect_news(const io::Fd& fd) {
    const auto news = wire::decode_liveness_news(receive(fd));
    ASSERT_TRUE(news.ok()) << news.status().to_string();
    EXPECT_EQ(news->host, 2);
    EXPECT_EQ(news->witness, 3);
  }
  static void tell(const io::Fd& fd, int32_t host, int32_t witness) {
    const auto sent =
        io::send_message(fd.get(), wire::encode_liveness_news({.host = host, .witness = witness}));
    ASSERT_TRUE(sent.ok() && *sent);
  }

  transport::Meeting meeting_;
  std::optional<wire::Secret> secret_ = wire::random_secret();
  std::array<std::unique_ptr<transport::Connector>, kHosts> connectors_;
  std::unique_ptr<LivenessLinks> links_;
  std::vector<Loss> losses_;
};

TEST_F(LivenessLinksTest, NewsOfALostHostIsALossThatNamesItsWitness) {
  const io::Fd third = dial(3);
  tell(third, 2, 3);
  poll_until([&] { return !losses_.empty(); });
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].rank, 2);
  EXPECT_EQ(losses_[0].how, "its host does not answer (noticed by rank 3)");
}

TEST_F(LivenessLinksTest, NewsGoesOnToTheOtherNeighbourAlsoToOneThatComesLater) {
  const io::Fd third = dial(3);
  const io::Fd first = dial(1);
  tell(third, 2, 3);
  expect_news(first);
  expect_news(dial(1));
}

TEST_F(LivenessLinksTest, WhatIsNoNewsEndsTheConnectionAndLosesNobody) {
  const io::Fd third = dial(3);
  const Bytes rubbish(wire::kLivenessNewsBytes, std::byte{0xAB});
  ASSERT_TRUE(io::send_message(third.get(), rubbish).ok());
  EXPECT_TRUE(receive(third).empty());
  EXPECT_TRUE(losses_.empty());
}

/// Its connections for data tell of its end, in order or not; its host lives.
TEST_F(LivenessLinksTest, AProcessThatEndsIsNoLostHost) {
  const io::Fd first = dial(1);
  {
    const io::Fd third = dial(3);
    connectors_[3].reset();  // Nobody listens there any more.
  }
  tell(first, 2, 1);
  poll_until([&] { return !losses_.empty(); });
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].rank, 2);
}

TEST_F(LivenessLinksTest, AForkedChildThatAbandonsThemKeepsNoConnectionOpen) {
  const io::Fd third = dial(3);
  tell(third, 2, 3);
  poll_until([&] { return !losses_.empty(); });  // Rank 0 has taken the connection over.
  std::array<int, 2> ready{};
  ASSERT_EQ(pipe(ready.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    links_->abandon_in_child();
    (void)!write(ready[1], "x", 1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  links_.reset();  // Only the child could hold it open now.
  const Time deadline = transport::soon();
  io::Received received;
  received.would_block = true;
  Bytes buffer(1);
  while (received.would_block && monotonic_now() < deadline)
    received = io::receive_message(third.get(), buffer);
  EXPECT_TRUE(received.closed);
  kill(child, SIGKILL);
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (const int fd : ready) close(fd);
}

}  // namespace
}  // namespace corro::runtime
