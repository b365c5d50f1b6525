#include "wire/server_bootstrap.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <chrono>
#include <span>

#include "io/event.h"
#include "wire/running_agent.h"
#include "wire/server_number.h"

namespace corro::wire {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int32_t kRanksOfTheJob = 4;

/// An agent of a job with four ranks and two servers.
class Servers : public testing::Test {
 protected:
  [[nodiscard]] Environment environment(std::optional<int32_t> server = {}) {
    Environment all;
    all.agent = agent_.service().name();
    all.size = kRanksOfTheJob;
    all.servers = 2;
    all.server = server;
    return all;
  }
  [[nodiscard]] ServerBootstrap join(int32_t server) {
    return ServerBootstrap::join(environment(server), soon()).value();
  }
  static io::SocketAddress at(const char* text) { return io::SocketAddress::parse(text).value(); }

  RunningAgent agent_{kRanksOfTheJob, 1U << 20U, /*servers=*/2};
};

TEST_F(Servers, KnowTheirPlaceAndTellRanksWhereTheyListen) {
  ServerBootstrap second = join(1);
  const ServerPlace& place = second.place();
  EXPECT_EQ(place.index, 1);
  EXPECT_EQ(place.servers, 2);
  EXPECT_EQ(place.ranks, kRanksOfTheJob);
  EXPECT_EQ(place.job, "job-1");
  EXPECT_EQ(place.digest, digest_of("job-1"));
  EXPECT_EQ(place.secret, agent_.secret());
  EXPECT_EQ(place.listen.to_string(), "127.0.0.1:0");
  ASSERT_TRUE(second.publish(at("127.0.0.1:7001")).ok());
  ASSERT_TRUE(join(0).publish(at("[::1]:7000")).ok());
  const auto found = find_servers(environment(), std::chrono::seconds(60));
  EXPECT_THAT(found->addresses, ElementsAre("[::1]:7000", "127.0.0.1:7001"));
  EXPECT_EQ(found->job, digest_of("job-1"));
  EXPECT_EQ(found->secret, agent_.secret());
  const auto rank = agent_.connect(0).value();
  EXPECT_EQ(rank->get("job-1/server/0", soon()).value().size(), 10U);
}

TEST_F(Servers, ListenWhereOtherHostsReachThem) {
  Environment there = environment(0);
  there.listen = "10.0.0.7";
  EXPECT_EQ(ServerBootstrap::join(there, soon())->place().listen.to_string(), "10.0.0.7:0");
}

TEST_F(Servers, PassTheAgentWhatItIsToRead) {
  const io::EventFd shown = io::EventFd::create().value();
  const int fd = shown.fd();
  auto server = ServerBootstrap::join(environment(1), soon(), std::span(&fd, 1)).value();
  ASSERT_TRUE(server.publish(at("127.0.0.1:7001")).ok());  // Behind its hello.
  auto hellos = agent_.hellos().lock();
  ASSERT_EQ(hellos->size(), 1U);
  EXPECT_EQ(hellos->front().rank, kFirstServer + 1);
  ASSERT_EQ(hellos->front().descriptors.size(), 1U);
  io::EventFd::ring(hellos->front().descriptors[0].get());
  EXPECT_TRUE(io::wait_ready(fd, POLLIN, Time{})) << "it is the same";
}

TEST_F(Servers, ReadersAreNoRanks) {
  ASSERT_TRUE(agent_.connect(kReader).ok());
  const auto reader = agent_.connect(kReader).value();
  EXPECT_EQ(reader->secret(), agent_.secret());
  EXPECT_EQ(reader->put("k", {}).code(), Code::kUnavailable) << "readers write nothing";
  EXPECT_TRUE(agent_.hellos().lock()->empty()) << "nobody has joined";
}

TEST_F(Servers, OthersAreRefused) {
  for (const int32_t number : {kFirstServer - 1, kFirstServer + 2, kReader - 1}) {
    EXPECT_THAT(agent_.connect(number).status().message(), HasSubstr("it has ranks 0 to 3"));
  }
  EXPECT_EQ(ServerBootstrap::join(environment(), soon()).status().code(),
            Code::kFailedPrecondition);
}

TEST_F(Servers, NobodyWaitsForOneThatIsGone) {
  // It has said HELLO, and not where it listens.
  ASSERT_EQ(join(0).place().index, 0);
  agent_.end_rank(kFirstServer);
  const Status gone = find_servers(environment(), std::chrono::seconds(60)).status();
  EXPECT_EQ(gone.code(), Code::kNotFound);
  EXPECT_EQ(gone.message(), "table server 0 on node2 ended before it had said where it listens");
  agent_.end_rank(0);
  const auto rank = agent_.connect(1).value();
  EXPECT_EQ(rank->get("job-1/rank/0", soon()).status().message(),
            "rank 0 on node2 ended before it had joined the job")
      << "it is another one than server 0";
}

TEST_F(Servers, ThatAreGoneHaveLeftTheirAddress) {
  ASSERT_TRUE(join(0).publish(at("127.0.0.1:7000")).ok());
  ASSERT_TRUE(join(1).publish(at("127.0.0.1:7001")).ok());
  agent_.end_rank(kFirstServer + 1);
  EXPECT_TRUE(find_servers(environment(), std::chrono::seconds(60)).ok());
}

/// A rank of this job that is a server, too.
Environment serving(Environment rank, int32_t number) {
  rank.ranks_serve = true;
  rank.rank = number;
  return rank;
}

TEST_F(Servers, AreRanksThatSayWhenTheyUseNoTable) {
  ServerBootstrap zero = ServerBootstrap::join(serving(environment(), 0), soon()).value();
  ServerBootstrap one = ServerBootstrap::join(serving(environment(), 1), soon()).value();
  EXPECT_EQ(one.place().index, 1);
  ASSERT_TRUE(one.publish(at("127.0.0.1:7001")).ok());
  EXPECT_EQ(zero.find(1)->to_string(), "127.0.0.1:7001");
  const auto moment = std::chrono::milliseconds(10);
  EXPECT_EQ(zero.wait_unused(1, monotonic_now() + moment).code(), Code::kDeadlineExceeded);
  ASSERT_TRUE(one.say_unused().ok());
  EXPECT_TRUE(zero.wait_unused(1, soon()).ok());
  agent_.end_rank(2);
  EXPECT_EQ(zero.wait_unused(2, soon()).code(), Code::kNotFound) << "it has never joined";
  EXPECT_EQ(find_servers(serving(environment(), 0), moment).status().message(),
            "rank 0 has made no table: with --servers ranks every rank keeps rows");
}

TEST_F(Servers, ThatAreLateOrMissingAreNamed) {
  const auto moment = std::chrono::milliseconds(10);
  const Status late = find_servers(environment(), moment).status();
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_THAT(late.message(), HasSubstr("table server 0"));
  Environment none = environment();
  none.servers = 0;
  EXPECT_THAT(find_servers(none, moment).status().message(), HasSubstr("--servers N"));
}

}  // namespace
}  // namespace corro::wire
