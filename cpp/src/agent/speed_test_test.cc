#include "agent/speed_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include "io/socket.h"

namespace corro::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using testing::HasSubstr;

/// An agent's side that answers: routes, and the server behind them.
struct Answers {
  explicit Answers(const SpeedKey& key)
      : routes(Routes::create().value()), server(SpeedServer::create(key).value()) {
    routes->on_caller([this](io::Fd caller) { server->add(std::move(caller)); });
  }
  [[nodiscard]] RouteTarget target() const {
    return {
        .host = 3, .token = routes->token(), .port = routes->port(), .addresses = {"127.0.0.1"}};
  }
  std::unique_ptr<Routes> routes;
  std::unique_ptr<SpeedServer> server;
};

SpeedKey some_key(int seed) {
  SpeedKey key{};
  key.fill(static_cast<std::byte>(seed));
  return key;
}

/// Polls both sides until the test is done; gives up after a minute.
Speed settle(SpeedTest& test, Answers& answers) {
  const Time end = monotonic_now() + minutes(1);
  while (!test.done() && monotonic_now() < end) {
    answers.routes->poll();
    answers.server->poll();
    test.poll();
  }
  EXPECT_TRUE(test.done());
  return test.result();
}

Speed measure(Answers& answers, const RouteTarget& target, const SpeedKey& key) {
  auto test = SpeedTest::create(
      {.target = target, .key = key, .span = milliseconds(20), .patience = minutes(1)});
  EXPECT_TRUE(test.ok());
  return settle(**test, answers);
}

TEST(SpeedTest, MeasuresARoundTripAndBytes) {
  Answers answers(some_key(1));
  for (int i = 0; i < 2; ++i) {
    const Speed speed = measure(answers, answers.target(), some_key(1));
    EXPECT_EQ(speed.failure, "");
    EXPECT_GT(speed.round_trip, Duration::zero());
    EXPECT_GT(speed.bytes, 0U);
    EXPECT_GE(speed.span, milliseconds(1));
  }
}

TEST(SpeedTest, SaysThatAnotherHostAnswers) {
  Answers answers(some_key(1));
  RouteTarget target = answers.target();
  target.token[0] ^= std::byte{1};
  EXPECT_THAT(measure(answers, target, some_key(1)).failure, HasSubstr("another host"));
}

TEST(SpeedTest, WithoutTheKeyNothingIsAnswered) {
  Answers answers(some_key(1));
  EXPECT_NE(measure(answers, answers.target(), some_key(2)).failure, "");
}

TEST(SpeedTest, IsOverWhereNobodyListens) {
  Answers answers(some_key(1));
  const RouteTarget target = answers.target();
  answers.routes = Routes::create().value();
  EXPECT_NE(measure(answers, target, some_key(1)).failure, "");
}

TEST(SpeedTest, IsGivenUpWhereNobodyAnswers) {
  auto mute = io::listen_tcp(io::SocketAddress::parse("127.0.0.1:0").value()).value();
  auto test = SpeedTest::create({.target = {.host = 0,
                                            .token = {},
                                            .port = io::local_address(mute.get())->port(),
                                            .addresses = {"127.0.0.1"}},
                                 .key = some_key(1),
                                 .span = milliseconds(20),
                                 .patience = minutes(1)});
  ASSERT_TRUE(test.ok());
  (*test)->poll();
  EXPECT_FALSE((*test)->done());
  (*test)->give_up();
  EXPECT_THAT((*test)->result().failure, HasSubstr("does not answer for 60 s"));
}

/// What a stranger sends to the server; true if it is still connected then.
bool is_served(const std::string& words) {
  Answers answers(some_key('k'));
  const auto address =
      io::SocketAddress::parse_host("127.0.0.1", static_cast<uint16_t>(answers.routes->port()));
  io::Fd fd = io::connect_tcp(*address).value();
  EXPECT_TRUE(io::wait_ready(fd.get(), POLLOUT, monotonic_now() + minutes(1)));
  EXPECT_TRUE(io::send_some(fd.get(), std::as_bytes(std::span(words))).ok());
  Bytes heard(1024);
  const Time end = monotonic_now() + minutes(1);
  // The token and what the pings are answered with; then it hangs up, or nothing comes.
  for (int quiet = 0; quiet < 20 && monotonic_now() < end;) {
    answers.routes->poll();
    answers.server->poll();
    const auto received = io::receive_message(fd.get(), heard);
    if (received.closed) return false;
    const bool more = io::wait_ready(fd.get(), POLLIN, monotonic_now() + milliseconds(5));
    quiet = more ? 0 : quiet + 1;
  }
  return true;
}

TEST(SpeedServer, HangsUpOnWhoeverSaysWhatNobodySays) {
  const std::string key(sizeof(SpeedKey), 'k');
  EXPECT_TRUE(is_served(""));
  EXPECT_TRUE(is_served(key + "ppp"));
  EXPECT_FALSE(is_served(std::string(sizeof(SpeedKey), 'x')));
  EXPECT_FALSE(is_served(key + "x"));
  EXPECT_FALSE(is_served(key + "b" + std::string(8, '\0')));
  EXPECT_FALSE(is_served(key + "b" + std::string(8, '\x7F')));
}

}  // namespace
}  // namespace corro::agent
