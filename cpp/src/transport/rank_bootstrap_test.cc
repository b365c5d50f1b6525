#include "transport/rank_bootstrap.h"

#include <gmock/gmock.h>

#include "wire/bootstrap_conformance.h"

namespace corro::transport {
namespace {

using ::testing::HasSubstr;

RankBootstrapOptions options_of(int32_t rank, int32_t size, const std::string& job) {
  return {.job = job,
          .rank = rank,
          .size = size,
          .serves = rank == 0,
          .hosts = {},
          .ports = {},
          .interrupted = {},
          .deadline = monotonic_now() + std::chrono::seconds(60)};
}

constexpr int32_t kSize = 8;

/// Ranks of one host.
struct HostMeeting {
  std::unique_ptr<wire::Bootstrap> join(int32_t rank) {
    return RankBootstrap::join(options_of(rank, kSize, job)).value();
  }
  std::string job = wire::random_hex(8);
};

/// Over TCP, as if ranks were on other hosts than the one that serves.
struct TcpMeeting {
  TcpMeeting() { stand_in = StandInAgent::start({job, secret, kSize, job, ports}).value(); }
  std::unique_ptr<wire::Bootstrap> join(int32_t rank) {
    RankBootstrapOptions options = options_of(rank, kSize, job);
    options.name = "nobody-" + job;
    options.hosts = {"127.0.0.1"};
    options.ports = ports;
    options.secret = secret;
    return find_stand_in(options).value().client;
  }
  std::string job = wire::random_hex(8);
  std::vector<uint16_t> ports = bootstrap_ports(job);
  wire::Secret secret = wire::random_secret();
  std::unique_ptr<StandInAgent> stand_in;
};

}  // namespace
}  // namespace corro::transport

namespace corro::wire {
INSTANTIATE_TYPED_TEST_SUITE_P(RanksOfOneHost, BootstrapConformance, transport::HostMeeting);
INSTANTIATE_TYPED_TEST_SUITE_P(RanksOverTcp, BootstrapConformance, transport::TcpMeeting);
}  // namespace corro::wire

namespace corro::transport {
namespace {

TEST(RankBootstrap, ASecretIsHandedOutOnOneHostOnly) {
  HostMeeting host;
  const auto first = host.join(0);
  EXPECT_EQ(host.join(1)->secret(), first->secret());
  TcpMeeting tcp;
  EXPECT_EQ(tcp.join(1)->secret(), tcp.secret) << "its own, not one that came over the network";
}

TEST(RankBootstrap, WhoDoesNotKnowTheSecretIsNotServedAndDoesNotTakeItForTheRank) {
  TcpMeeting meeting;
  RankBootstrapOptions stranger = options_of(1, kSize, meeting.job);
  stranger.name = "nobody";
  stranger.hosts = {"127.0.0.1"};
  stranger.ports = meeting.ports;
  stranger.secret = wire::random_secret();
  stranger.deadline = monotonic_now() + std::chrono::milliseconds(200);
  const auto found = find_stand_in(stranger);
  EXPECT_EQ(found.status().code(), Code::kDeadlineExceeded);
  EXPECT_THAT(found.status().message(), HasSubstr("the other side does not know the job's secret"));
}

TEST(RankBootstrap, AnotherJobOfTheSameUserIsNotTakenForThisOne) {
  TcpMeeting meeting;
  RankBootstrapOptions other = options_of(1, kSize, "another");
  other.hosts = {"127.0.0.1"};
  other.ports = meeting.ports;
  other.secret = meeting.secret;
  other.deadline = monotonic_now() + std::chrono::milliseconds(200);
  EXPECT_THAT(find_stand_in(other).status().message(), HasSubstr("another job"));
}

TEST(RankBootstrap, APortThatIsTakenIsNoHindrance) {
  TcpMeeting taken;
  TcpMeeting meeting;
  meeting.stand_in.reset();
  meeting.ports = {taken.ports[0], meeting.ports[0]};
  meeting.stand_in =
      StandInAgent::start({meeting.job, meeting.secret, kSize, meeting.job, meeting.ports}).value();
  EXPECT_TRUE(meeting.join(1)->put("key", {}).ok());
}

TEST(RankBootstrap, AHostThatNobodyKnowsIsNamedAtOnce) {
  RankBootstrapOptions options = options_of(1, 2, "job");
  options.hosts = {"no-such-host.invalid"};
  options.ports = {20000};
  const auto found = find_stand_in(options);
  EXPECT_EQ(found.status().code(), Code::kNotFound);
  EXPECT_THAT(found.status().message(), HasSubstr("no-such-host.invalid"));
}

TEST(RankBootstrap, NobodyListensAnyMoreOnceAllRanksHaveComeAndLeft) {
  const std::string job = wire::random_hex(8);
  auto first = RankBootstrap::join(options_of(0, 2, job)).value();
  auto second = RankBootstrap::join(options_of(1, 2, job)).value();
  first->joined();
  second->joined();
  while (io::connect_abstract(
             fmt::format("corro-ranks-{}-{}", geteuid(), wire::to_hex(wire::digest_of(job))))
             .ok()) {
    std::this_thread::yield();
  }
}

TEST(RankBootstrap, PortsFollowFromTheJobAndAreNoneThatKernelsGiveAway) {
  EXPECT_EQ(bootstrap_ports("1.0"), bootstrap_ports("1.0"));
  EXPECT_NE(bootstrap_ports("1.0"), bootstrap_ports("1.1"));
  for (const uint16_t port : bootstrap_ports("1.0")) {
    EXPECT_GE(port, 20000);
    EXPECT_LT(port, 32000);
  }
}

}  // namespace
}  // namespace corro::transport
