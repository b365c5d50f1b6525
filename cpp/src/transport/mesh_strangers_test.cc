// Strangers at the doors of a mesh: whatever they send, and however many they are, only a counter
// changes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <latch>
#include <thread>
#include <vector>

#include "io/memory.h"
#include "io/socket.h"
#include "transport/mesh.h"
#include "transport/mesh_test_support.h"
#include "wire/handshake.h"
#include "wire/peer_record.h"
#include "wire/secret.h"

namespace corro::transport {
namespace {

constexpr int32_t kRanks = 3;
constexpr size_t kMostBeforeAuthentication = 128;

Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

void send(const io::Fd& fd, BytesView bytes, std::span<const int> descriptors = {}) {
  const auto sent = io::send_message(fd.get(), bytes, descriptors);
  EXPECT_TRUE(sent.ok() && *sent);
}

/// Blocks until there is something to read; returns it.
io::Received receive(const io::Fd& fd, std::span<std::byte> into) {
  EXPECT_TRUE(io::wait_ready(fd.get(), POLLIN, soon()));
  return io::receive_message(fd.get(), into);
}

/// True if the rank hangs up without having said a word.
bool is_hung_up_on(const io::Fd& fd) {
  std::array<std::byte, 256> into{};
  return receive(fd, into).closed;
}

/// Rank 0 has its doors open and waits; the others have told where they are, and dial once they are
/// released.
class MeshStrangers : public ::testing::TestWithParam<LocalTransport> {
 protected:
  MeshStrangers() {
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads_.emplace_back([this, rank] { connect(rank); });
    }
    wire::StoreBootstrap store = meeting_.join();
    const auto record = wire::decode_peer_record(store.get("job/rank/0", soon()).value()).value();
    unix_name_ = record.unix_name;
    if (tcp()) tcp_address_ = io::SocketAddress::parse(record.tcp).value();
  }
  ~MeshStrangers() override { release(); }

  static bool tcp() { return GetParam() == LocalTransport::kTcp; }

  void release() {
    if (!released_.try_wait()) released_.count_down();
    threads_.clear();
  }

  /// Connects to rank 0's door.
  io::Fd knock() {
    if (!tcp()) return io::connect_abstract(unix_name_).value();
    io::Fd fd = io::connect_tcp(*tcp_address_).value();
    EXPECT_TRUE(io::wait_ready(fd.get(), POLLOUT, soon()));
    EXPECT_TRUE(io::connect_result(fd.get()).ok());
    return fd;
  }

  /// Lets the other ranks come; all connect and talk. Rank 0 has refused so many strangers, or does
  /// so once their time is over.
  void expect_all_connect_and_refused(uint64_t strangers) {
    release();
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      const auto& mesh = meshes_[static_cast<size_t>(rank)];
      ASSERT_TRUE(mesh.ok()) << rank << ": " << mesh.status().message();
    }
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      threads_.emplace_back(
          [this, rank] { expect_talking(*meshes_[static_cast<size_t>(rank)], rank); });
    }
    threads_.clear();
    Connector& connector = *meshes_[0]->connector;
    const auto refused = [this] { return metrics_.value(obs::Metric::kHandshakesRefused); };
    while (refused() < strangers) {
      ASSERT_TRUE(io::wait_ready(connector.poll_fd(), POLLIN, soon())) << refused();
      connector.poll(monotonic_now());
    }
  }

  wire::HandshakeIdentity identity(int32_t rank) const {
    return {.job = wire::digest_of(kJob), .epoch = 0, .rank = rank, .size = kRanks};
  }
  const wire::Secret& secret() const { return secret_; }

 private:
  void connect(int32_t rank) {
    wire::StoreBootstrap store = meeting_.join([this, rank] {
      if (rank != 0) released_.wait();
    });
    const Setting setting{.local = GetParam()};
    MeshOptions options = options_for(rank, kRanks, setting, store, secret_);
    if (rank == 0) options.metrics = metrics_;
    meshes_[static_cast<size_t>(rank)] = connect_mesh(options);
  }

  const wire::Secret secret_ = wire::random_secret();
  const obs::Metrics metrics_;  ///< Rank 0's.
  std::latch released_{1};
  std::vector<Result<MeshResult>> meshes_ = [] {
    std::vector<Result<MeshResult>> meshes;
    for (int32_t rank = 0; rank < kRanks; ++rank) {
      meshes.emplace_back(Status(Code::kUnknown, "not yet"));
    }
    return meshes;
  }();
  Meeting meeting_;
  std::string unix_name_;
  std::optional<io::SocketAddress> tcp_address_;
  std::vector<std::jthread> threads_;
};

/// About the handshake: Unix sockets have none, the kernel vouches for the user there.
class MeshTcpStrangers : public MeshStrangers {};
/// About hellos over Unix sockets.
class MeshLocalStrangers : public MeshStrangers {};

TEST_P(MeshStrangers, APortScanIsCounted) {
  for (int i = 0; i < 10; ++i) knock();
  expect_all_connect_and_refused(10);
}

TEST_P(MeshStrangers, GarbageIsHungUpOnWithoutAWord) {
  const std::string http =
      "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: curl/7.88.1\r\nAccept: */*\r\n\r\n";
  const Bytes zeros(kMostBeforeAuthentication);
  const Bytes much(100'000, std::byte{0xC7});
  for (const Bytes& garbage : {bytes_of(http), zeros, much}) {
    const io::Fd stranger = knock();
    send(stranger, garbage);
    EXPECT_TRUE(is_hung_up_on(stranger));
  }
  expect_all_connect_and_refused(3);
}

TEST_P(MeshStrangers, WhoSaysNothingDelaysNobody) {
  std::vector<io::Fd> silent;
  for (int i = 0; i < 5; ++i) silent.push_back(knock());
  expect_all_connect_and_refused(5);
}

TEST_P(MeshStrangers, WhoSaysNothingIsHungUpOnInTheEnd) {
  const io::Fd silent = knock();
  EXPECT_TRUE(is_hung_up_on(silent));
  expect_all_connect_and_refused(1);
}

TEST_P(MeshStrangers, AFloodOfThemDelaysNobody) {
  std::vector<io::Fd> flood;
  for (int i = 0; i < 200; ++i) {
    flood.push_back(knock());
    if (i % 2 == 0) send(flood.back(), bytes_of("x"));
  }
  expect_all_connect_and_refused(200);
}

TEST_P(MeshStrangers, MoreThanTheListHoldsPushTheOldestOut) {
  std::vector<io::Fd> flood;
  for (int i = 0; i < 300; ++i) flood.push_back(knock());
  EXPECT_TRUE(is_hung_up_on(flood.front()));
  expect_all_connect_and_refused(300);
}

TEST_P(MeshTcpStrangers, ReplayedHellosOpenNothing) {
  // A conversation between rank 1 and rank 0 as somebody on the network could have heard it.
  wire::ClientHandshake client(identity(1), 0, secret());
  wire::ServerHandshake server(identity(0), secret());
  const Bytes hello = client.take_output();
  ASSERT_TRUE(server.feed(hello).ok());
  ASSERT_TRUE(client.feed(server.take_output()).ok());
  const Bytes proof = client.take_output();

  const io::Fd stranger = knock();
  send(stranger, hello);
  std::array<std::byte, 256> challenge{};
  EXPECT_EQ(receive(stranger, challenge).bytes, wire::kChallengeBytes);
  send(stranger, proof);
  EXPECT_TRUE(is_hung_up_on(stranger));
  expect_all_connect_and_refused(1);
}

TEST_P(MeshTcpStrangers, TheWrongSecretOpensNothing) {
  const io::Fd stranger = knock();
  wire::ClientHandshake client(identity(1), 0, wire::random_secret());
  send(stranger, client.take_output());
  std::array<std::byte, wire::kChallengeBytes> challenge{};
  ASSERT_EQ(receive(stranger, challenge).bytes, challenge.size());
  EXPECT_EQ(client.feed(challenge).code(), Code::kUnauthenticated);
  send(stranger, Bytes(wire::kProofBytes));
  EXPECT_TRUE(is_hung_up_on(stranger));
  expect_all_connect_and_refused(1);
}

TEST_P(MeshLocalStrangers, LocalHellosOfOthersOpenNothing) {
  const io::Fd memory = io::create_memfd("corro-test", 4096).value();
  const std::array<int, 1> one = {memory.get()};
  const std::array<int, 2> two = {memory.get(), memory.get()};
  const auto try_hello = [this](wire::LocalHello hello, std::span<const int> descriptors) {
    const io::Fd stranger = knock();
    send(stranger, wire::encode_local_hello(hello), descriptors);
    EXPECT_TRUE(is_hung_up_on(stranger));
  };
  const wire::LocalHello right{
      .job = wire::digest_of(kJob), .epoch = 0, .from = 1, .to = 0, .descriptors = 1};
  wire::LocalHello other_job = right;
  other_job.job = wire::digest_of("other");
  try_hello(other_job, one);
  wire::LocalHello other_rank = right;
  other_rank.to = 1;
  try_hello(other_rank, one);
  for (const int32_t from : {-1, 0, kRanks}) {
    wire::LocalHello impossible = right;
    impossible.from = from;
    try_hello(impossible, one);
  }
  try_hello(right, {});
  try_hello(right, two);
  try_hello(right, one);  // Memory, but not a stream's.
  expect_all_connect_and_refused(8);
}

INSTANTIATE_TEST_SUITE_P(Door, MeshTcpStrangers, ::testing::Values(LocalTransport::kTcp));
INSTANTIATE_TEST_SUITE_P(Door, MeshLocalStrangers, ::testing::Values(LocalTransport::kShm));
INSTANTIATE_TEST_SUITE_P(Doors, MeshStrangers,
                         ::testing::Values(LocalTransport::kShm, LocalTransport::kTcp),
                         [](const auto& test) {
                           return test.param == LocalTransport::kShm ? "shm" : "tcp";
                         });

/// A server that does not know the secret: a rank must not take it for its peer.
TEST(MeshImpostor, ARankThatDoesNotKnowTheSecretIsNotTalkedTo) {
  Meeting meeting;
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&meeting, rank] {
      wire::StoreBootstrap store = meeting.join();
      MeshOptions options = options_for(rank, 2, {.hosts = 2}, store, wire::random_secret());
      options.deadline = monotonic_now() + std::chrono::seconds(2);
      const auto late = connect_mesh(options);
      EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
      const char* why = "the other side does not know the job's secret";
      EXPECT_NE(late.status().message().find(why), std::string::npos) << late.status().message();
    });
  }
}

}  // namespace
}  // namespace corro::transport
