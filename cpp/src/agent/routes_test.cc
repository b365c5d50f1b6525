#include "agent/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/socket.h"

namespace corro::agent {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RouteTarget target_of(const Routes& routes, int host, std::vector<std::string> addresses) {
  return {.host = host,
          .token = routes.token(),
          .port = routes.port(),
          .addresses = std::move(addresses)};
}

/// Polls both until the first has nothing going on; gives up after a minute.
void settle(Routes& dials, Routes& listens) {
  const Time end = monotonic_now() + std::chrono::minutes(1);
  while (!dials.idle() && monotonic_now() < end) {
    (void)io::wait_ready(dials.poll_fd(), POLLIN, monotonic_now() + std::chrono::milliseconds(5));
    listens.poll();
    dials.poll();
  }
}

std::vector<std::string> text_of(const std::vector<Route>& routes) {
  std::vector<std::string> text;
  for (const Route& route : routes)
    text.push_back(std::to_string(route.host) + " " + route.address);
  return text;
}

TEST(Routes, AnAddressThatLeadsToTheHostIsFound) {
  auto a = Routes::create().value();
  auto b = Routes::create().value();
  a->dial({target_of(*b, 7, {"127.0.0.1", "127.0.0.2"})});
  settle(*a, *b);
  EXPECT_THAT(text_of(a->take()), ElementsAre("7 127.0.0.1", "7 127.0.0.2"));
  EXPECT_THAT(a->take(), IsEmpty());
}

TEST(Routes, AnAddressThatLeadsToAnotherHostIsNot) {
  auto a = Routes::create().value();
  auto b = Routes::create().value();
  RouteTarget stranger = target_of(*b, 1, {"127.0.0.1"});
  stranger.token[0] ^= std::byte{1};
  a->dial({stranger, target_of(*b, 2, {"127.0.0.1"})});
  settle(*a, *b);
  EXPECT_THAT(text_of(a->take()), ElementsAre("2 127.0.0.1"));
}

TEST(Routes, WhereNobodyListensOrAnswersNothingIsFound) {
  auto a = Routes::create().value();
  auto b = Routes::create().value();
  RouteTarget gone = target_of(*b, 1, {"127.0.0.1", "no address"});
  b.reset();
  auto mute = io::listen_tcp(io::SocketAddress::parse("127.0.0.1:0").value()).value();
  RouteTarget silent = gone;
  silent.port = io::local_address(mute.get())->port();
  a->dial({gone});
  auto other = Routes::create().value();
  settle(*a, *other);
  EXPECT_THAT(a->take(), IsEmpty());
  a->dial({silent});
  a->poll();
  EXPECT_FALSE(a->idle());
  EXPECT_THAT(a->take(), IsEmpty());
  EXPECT_TRUE(a->idle());
}

}  // namespace
}  // namespace corro::agent
