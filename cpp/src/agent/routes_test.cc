#include "agent/routes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>

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

size_t count_descriptors() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd"))
    count += entry.exists() ? 1 : 0;
  return count;
}

/// Strangers that stay connected.
std::vector<io::Fd> call(const Routes& routes, int count) {
  std::vector<io::Fd> callers;
  const auto address =
      io::SocketAddress::parse_host("127.0.0.1", static_cast<uint16_t>(routes.port())).value();
  for (int i = 0; i < count; ++i) callers.push_back(io::connect_tcp(address).value());
  return callers;
}

bool hears_token(const io::Fd& caller, const Routes& routes) {
  RouteToken said{};
  const Time end = monotonic_now() + std::chrono::minutes(1);
  (void)io::wait_ready(caller.get(), POLLIN, end);
  return io::receive_message(caller.get(), said).bytes == said.size() && said == routes.token();
}

bool has_work(const Routes& routes) {
  pollfd ready{.fd = routes.poll_fd(), .events = POLLIN, .revents = 0};
  return poll(&ready, 1, 0) > 0;
}

TEST(Routes, KeepsNoDescriptorOfWhoCalls) {
  auto routes = Routes::create().value();
  const auto callers = call(*routes, 40);
  const size_t before = count_descriptors();
  for (const io::Fd& caller : callers) {
    routes->poll();
    EXPECT_TRUE(hears_token(caller, *routes));
  }
  EXPECT_EQ(count_descriptors(), before);
}

TEST(Routes, AnswersAndRestsWhereNoDescriptorIsLeft) {
  auto routes = Routes::create().value();
  const auto callers = call(*routes, 3);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const auto next = static_cast<rlim_t>(io::Fd(dup(STDERR_FILENO)).get());
  const rlimit none{.rlim_cur = next, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  routes->poll();
  const bool spins = has_work(*routes);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(spins);
  for (const io::Fd& caller : callers) EXPECT_TRUE(hears_token(caller, *routes));
}

TEST(Routes, OnceClosedNobodyIsAnsweredOrDialled) {
  auto routes = Routes::create().value();
  auto other = Routes::create().value();
  const auto callers = call(*routes, 1);
  routes->dial({target_of(*other, 1, {"127.0.0.1"})});
  routes->close();
  EXPECT_TRUE(routes->idle());
  EXPECT_FALSE(has_work(*routes));
  EXPECT_FALSE(hears_token(callers[0], *routes));
}

}  // namespace
}  // namespace corro::agent
