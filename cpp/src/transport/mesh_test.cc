#include "transport/mesh.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "io/memory.h"
#include "io/socket.h"
#include "transport/joining.h"
#include "transport/mesh_test_support.h"
#include "wire/directory_bootstrap.h"
#include "wire/handshake.h"
#include "wire/secret.h"

namespace corro::transport {
namespace {

using ::testing::HasSubstr;

class MeshOf : public ::testing::TestWithParam<std::tuple<int32_t, Setting>> {};

TEST_P(MeshOf, EveryRankTalksToEveryOther) {
  const auto& [size, setting] = GetParam();
  if (setting.listen_address == "::1" &&
      !io::listen_tcp(io::SocketAddress::parse("[::1]:0").value()).ok()) {
    GTEST_SKIP() << "no IPv6 on this machine";
  }
  Meeting meeting;
  const wire::Secret secret = wire::random_secret();
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, ranks = size] {
      wire::StoreBootstrap store = meeting.join();
      const MeshOptions options = options_for(rank, ranks, setting, store, secret);
      auto mesh = connect_mesh(options);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      ASSERT_EQ(mesh->peers.size(), static_cast<size_t>(ranks));
      for (const MeshPeer& peer : mesh->peers) {
        EXPECT_EQ(peer.pid, getpid());
        EXPECT_EQ(peer.host_id, fmt::format("host-{}", peer.rank % setting.hosts));
        EXPECT_EQ(peer.local, peer.rank % setting.hosts == rank % setting.hosts);
      }
      if (ranks == 1) return;
      EXPECT_EQ(options.metrics.value(obs::Metric::kHandshakesRefused), 0U);
      expect_talking(*mesh, rank);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Mesh, MeshOf,
    ::testing::Combine(::testing::Values(1, 2, 3, 5, 9),
                       ::testing::Values(Setting{.name = "shm"},
                                         Setting{.name = "tcp4", .local = LocalTransport::kTcp},
                                         Setting{.name = "tcp6",
                                                 .local = LocalTransport::kTcp,
                                                 .listen_address = "::1"},
                                         Setting{.name = "two_hosts", .hosts = 2})),
    [](const auto& test) {
      return fmt::format("{}_{}", std::get<1>(test.param).name, std::get<0>(test.param));
    });

/// A memfd that holds one byte.
io::Fd memory_with(std::byte byte) {
  io::Fd fd = io::create_memfd("corro-test", 1).value();
  EXPECT_EQ(pwrite(fd.get(), &byte, 1, 0), 1);
  return fd;
}

class MeshDescriptors : public ::testing::TestWithParam<int32_t> {};

TEST_P(MeshDescriptors, LocalPeersPassTheirDescriptorsInOrder) {
  Meeting meeting;
  const wire::Secret secret = wire::random_secret();
  std::vector<std::jthread> threads;
  for (int32_t rank = 0; rank < 9; ++rank) {
    threads.emplace_back([&, rank] {
      wire::StoreBootstrap store = meeting.join();
      const io::Fd first = memory_with(std::byte{static_cast<uint8_t>(10 * rank)});
      const io::Fd second = memory_with(std::byte{static_cast<uint8_t>(10 * rank + 1)});
      MeshOptions options = options_for(rank, 9, {.hosts = GetParam()}, store, secret);
      options.shared_descriptors = {first.get(), second.get()};
      auto mesh = connect_mesh(options);
      ASSERT_TRUE(mesh.ok()) << mesh.status().message();
      for (const MeshPeer& peer : mesh->peers) {
        if (peer.rank == rank || !peer.local) continue;
        ASSERT_EQ(peer.descriptors.size(), 2U);
        for (int i = 0; i < 2; ++i) {
          std::byte byte{};
          const io::Fd& fd = peer.descriptors[static_cast<size_t>(i)];
          ASSERT_EQ(pread(fd.get(), &byte, 1, 0), 1);
          EXPECT_EQ(byte, std::byte{static_cast<uint8_t>(10 * peer.rank + i)});
          EXPECT_NE(fcntl(fd.get(), F_GETFD) & FD_CLOEXEC, 0);
        }
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Hosts, MeshDescriptors, ::testing::Values(1, 2, 4));

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST(Mesh, LeavesNoDescriptorBehind) {
  const size_t before = open_descriptors();
  for (const Setting& setting : {Setting{}, Setting{.hosts = 2}}) {
    Meeting meeting;
    const wire::Secret secret = wire::random_secret();
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < 3; ++rank) {
      threads.emplace_back([&, rank] {
        wire::StoreBootstrap store = meeting.join();
        EXPECT_TRUE(connect_mesh(options_for(rank, 3, setting, store, secret)).ok());
      });
    }
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(Mesh, TcpWithoutASecretIsRefusedWithWhatToDo) {
  for (const Setting& setting : {Setting{.local = LocalTransport::kTcp}, Setting{.hosts = 2}}) {
    Meeting meeting;
    std::vector<std::jthread> threads;
    for (int32_t rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        wire::StoreBootstrap store = meeting.join();
        const auto refused = connect_mesh(options_for(rank, 2, setting, store, std::nullopt));
        EXPECT_EQ(refused.status().code(), Code::kFailedPrecondition);
        EXPECT_THAT(refused.status().message(), HasSubstr("CORRO_SECRET_FILE"));
        EXPECT_THAT(refused.status().message(), HasSubstr("corro run"));
        EXPECT_EQ(refused.status().message().find('\n'), std::string::npos);
      });
    }
  }
}

TEST(Mesh, ListenAddressIsOneThatOthersCanReach) {
  for (const char* address : {"0.0.0.0", "::", "localhost", "127.0.0.1:80", ""}) {
    Meeting meeting;
    wire::StoreBootstrap other = meeting.join();
    const Bytes record = record_of(2, "host-1");
    ASSERT_TRUE(other.put("job/rank/1", record).ok());
    wire::StoreBootstrap store = meeting.join();
    const Setting setting{.listen_address = address, .hosts = 2};
    const auto refused = connect_mesh(options_for(0, 2, setting, store, wire::random_secret()));
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr(fmt::format("CORRO_LISTEN={}:", address)));
  }
}

TEST(Mesh, ARankWithOtherSettingsIsNamedOnEveryRankWithoutWaitingForTheRest) {
  constexpr const char* kSettings[] = {"TRANSPORT=shm COMMIT=0", "TRANSPORT=shm COMMIT=1",
                                       "TRANSPORT=shm COMMIT=0"};
  for (int32_t rank = 0; rank < 3; ++rank) {
    Meeting meeting;
    wire::StoreBootstrap store = meeting.join();
    for (const int32_t other : {0, 1}) {
      if (other == rank) continue;
      const Bytes record = record_of(4, "host-0", kSettings[other]);
      ASSERT_TRUE(store.put(fmt::format("job/rank/{}", other), record).ok());
    }
    MeshOptions options = options_for(rank, 4, {}, store, std::nullopt);
    options.settings = kSettings[rank];
    const Status refused = connect_mesh(options).status();
    EXPECT_EQ(refused.code(), Code::kInvalidArgument) << refused.to_string();
    EXPECT_THAT(refused.message(),
                HasSubstr("COMMIT=1 on rank 1, COMMIT=0 on rank 0: expected the same on all"));
  }
}

TEST(Mesh, RanksThatDoNotAgreeOnTheirNumberAreToldSo) {
  Meeting meeting;
  wire::StoreBootstrap store = meeting.join();
  ASSERT_TRUE(store.put("job/rank/1", record_of(3, "host-0")).ok());
  const auto refused = connect_mesh(options_for(0, 2, {}, store, std::nullopt));
  EXPECT_THAT(refused.status().message(), HasSubstr("ranks=3 on rank 1, ranks=2 on rank 0"));
}

TEST(Mesh, RanksThatDoNotStartAreNamedAtTheDeadline) {
  Meeting meeting;
  wire::StoreBootstrap store = meeting.join();
  ASSERT_TRUE(store.put("job/rank/2", record_of(4, "host-0")).ok());
  MeshOptions options = options_for(0, 4, {}, store, std::nullopt);
  options.deadline = monotonic_now() + std::chrono::milliseconds(30);
  const auto late = connect_mesh(options);
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("ranks 1 and 3 did not start"));
  EXPECT_EQ(late.status().detail()->rank, 1);
}

/// An agent's, of whose ranks all others have ended.
class LonelyBootstrap final : public wire::Bootstrap {
 public:
  Status put(std::string_view /*key*/, BytesView value) override {
    own_ = Bytes(value.begin(), value.end());
    return {};
  }
  Result<Bytes> get(std::string_view key, Time /*deadline*/) override {
    if (key == "job/rank/0") return own_;
    return Status(Code::kNotFound, "rank 1 on b ended before it had joined the job");
  }
  [[nodiscard]] std::optional<wire::Secret> secret() const override { return std::nullopt; }

 private:
  Bytes own_;
};

TEST(Mesh, ARankThatEndedBeforeItJoinedIsNamedAtOnce) {
  LonelyBootstrap bootstrap;
  const auto refused = connect_mesh(options_for(0, 3, {}, bootstrap, std::nullopt));
  EXPECT_EQ(refused.status().code(), Code::kUnavailable);
  EXPECT_EQ(refused.status().message(), "connect: rank 1 on b ended before it had joined the job");
  EXPECT_EQ(refused.status().detail()->rank, 1);
}

TEST(Mesh, RanksThatDoNotConnectAreNamedAtTheDeadline) {
  Meeting meeting;
  wire::StoreBootstrap store = meeting.join();
  for (const int32_t rank : {0, 2}) {
    const Bytes record = record_of(3, "host-0", {}, "corro-test-nobody");
    ASSERT_TRUE(store.put(fmt::format("job/rank/{}", rank), record).ok());
  }
  MeshOptions options = options_for(1, 3, {}, store, std::nullopt);
  options.deadline = monotonic_now() + std::chrono::milliseconds(100);
  const auto late = connect_mesh(options);
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.status().message(), HasSubstr("not connected to ranks 0 and 2"));
  EXPECT_THAT(late.status().message(), HasSubstr("Connection refused"));
}

TEST(Mesh, TwoProcessesOfOneRankAreAnError) {
  Meeting meeting;
  wire::StoreBootstrap first = meeting.join();
  ASSERT_TRUE(first.put("job/rank/0", Bytes(8)).ok());
  wire::StoreBootstrap store = meeting.join();
  const auto refused = connect_mesh(options_for(0, 2, {}, store, std::nullopt));
  EXPECT_EQ(refused.status().code(), Code::kAlreadyExists);
  EXPECT_THAT(refused.status().message(), HasSubstr("is another process rank 0 of this job?"));
}

TEST(Mesh, NamesOfManyRanksStayShort) {
  EXPECT_EQ(list_ranks({3}), "rank 3");
  EXPECT_EQ(list_ranks({1, 2, 5}), "ranks 1, 2 and 5");
  EXPECT_EQ(list_ranks({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
}

/// A fresh directory for processes to meet in.
class MeetingDirectory {
 public:
  MeetingDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "corro-mesh-XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    path_ = name;
  }
  ~MeetingDirectory() { std::filesystem::remove_all(path_); }
  MeetingDirectory(const MeetingDirectory&) = delete;
  MeetingDirectory& operator=(const MeetingDirectory&) = delete;
  [[nodiscard]] std::unique_ptr<wire::DirectoryBootstrap> join() const {
    return wire::DirectoryBootstrap::open(path_).value();
  }

 private:
  std::filesystem::path path_;
};

/// Runs `body` in a child; the child's status is 0 if no expectation failed in it.
template <typename Body>
pid_t in_child(Body body) {
  const pid_t child = fork();
  if (child != 0) return child;
  body();
  _exit(::testing::Test::HasFailure() ? 1 : 0);
}

TEST(MeshOfProcesses, TalkOverSharedMemoryAndTcp) {
  for (const Setting& setting : {Setting{}, Setting{.local = LocalTransport::kTcp}}) {
    const MeetingDirectory directory;
    const wire::Secret secret = wire::random_secret();
    std::vector<pid_t> children;
    for (int32_t rank = 0; rank < 3; ++rank) {
      children.push_back(in_child([&, rank] {
        const auto bootstrap = directory.join();
        auto mesh = connect_mesh(options_for(rank, 3, setting, *bootstrap, secret));
        ASSERT_TRUE(mesh.ok()) << mesh.status().message();
        EXPECT_EQ(mesh->peers[static_cast<size_t>(rank)].pid, getpid());
        expect_talking(*mesh, rank);
      }));
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
  }
}

TEST(MeshOfProcesses, ARankKilledBeforeItConnectsIsNamedAtOnce) {
  const MeetingDirectory directory;
  const pid_t victim = in_child([&] {
    ASSERT_TRUE(directory.join()->put("job/rank/1", record_of(2, "host-0")).ok());
    while (true) pause();
  });
  const auto bootstrap = directory.join();
  ASSERT_TRUE(bootstrap->get("job/rank/1", soon()).ok());
  const std::jthread killer([victim] { kill(victim, SIGKILL); });
  MeshOptions options = options_for(0, 2, {}, *bootstrap, std::nullopt);
  options.deadline = monotonic_now() + std::chrono::hours(1);
  const auto lost = connect_mesh(options);
  EXPECT_EQ(lost.status().code(), Code::kUnavailable);
  EXPECT_THAT(lost.status().message(), HasSubstr(fmt::format("rank 1 (pid {}) ended", victim)));
  EXPECT_EQ(lost.status().detail()->rank, 1);
  waitpid(victim, nullptr, 0);
}

}  // namespace
}  // namespace corro::transport
