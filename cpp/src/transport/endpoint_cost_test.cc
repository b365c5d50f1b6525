// What one small message costs in steady state: allocations and system calls; and as what it
// counts.
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <new>

#include "io/socket.h"
#include "transport/endpoint.h"
#include "transport/memory_stream.h"
#include "transport/shm_stream.h"
#include "transport/tcp_stream.h"
#include "transport/tcp_test_pair.h"

namespace {
std::atomic<size_t> g_allocations{0};
}  // namespace

void* operator new(size_t bytes) {
  g_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace corro::transport {
namespace {

struct Ends {
  Ends(std::unique_ptr<Stream> a, std::unique_ptr<Stream> b)
      : first(std::move(a), [](const auto&) {}), second(std::move(b), [](const auto&) {}) {}
  /// One message there and one back, each posted before it is sent.
  void ping_pong(uint64_t op) {
    pass(first, second, {{0, 1}, op, 1});
    pass(second, first, {{0, 1}, op, 2});
    first.retire_below({0, 1}, op + 1);
    second.retire_below({0, 1}, op + 1);
  }
  void pass(Endpoint& from, Endpoint& to, MessageKey key) {
    SendRequest send{.key = key, .signature = {5}, .payload = out};
    RecvRequest recv{.key = key, .signature = {5}, .into = in};
    to.post_recv(recv);
    from.post_send(send);
    wait_readable(to);
    to.progress();
    ASSERT_TRUE(send.done && recv.done);
  }
  static void wait_readable(const Endpoint& endpoint) {
    pollfd wanted{.fd = endpoint.poll_fd(), .events = POLLIN, .revents = 0};
    if (wanted.fd < 0) return;
    ASSERT_EQ(poll(&wanted, 1, 30'000), 1);
  }
  Bytes out = Bytes(256, std::byte{1});
  Bytes in = Bytes(256);
  Endpoint first;
  Endpoint second;
};

/// What was sent counts under this transport alone.
void expect_all_under(std::string_view transport, const Ends& ends) {
  for (size_t i = 0; i < obs::kMetricCount; ++i) {
    const obs::MetricInfo& metric = obs::all_metrics()[i];
    if (metric.transport.empty()) continue;
    const uint64_t counted = ends.first.metrics().value(static_cast<obs::Metric>(i));
    EXPECT_EQ(counted > 0, metric.transport == transport) << metric.name;
  }
}

void expect_no_allocations(Ends& ends) {
  constexpr uint64_t kWarm = 100;
  uint64_t op = 0;
  while (op < kWarm) ends.ping_pong(op++);
  const size_t before = g_allocations;
  while (op < 10 * kWarm) ends.ping_pong(op++);
  EXPECT_EQ(g_allocations, before);
  EXPECT_EQ(ends.first.metrics().value(obs::Metric::kBounced) +
                ends.second.metrics().value(obs::Metric::kBounced),
            0U);
}

TEST(EndpointCost, TheCounterCounts) {
  const size_t before = g_allocations;
  const auto memory = std::make_unique<std::vector<int>>(3);
  EXPECT_EQ(g_allocations, before + 2);
}

TEST(EndpointCost, APostedMessageAllocatesNothing) {
  MemoryPair memory = make_memory_pair();
  Ends over_memory(std::move(memory.first), std::move(memory.second));
  expect_no_allocations(over_memory);
  ShmPair shm = make_shm_pair().value();
  Ends over_shm(std::move(shm.first), std::move(shm.second));
  expect_no_allocations(over_shm);
  TcpTestPair tcp = connect_tcp_pair("127.0.0.1");
  Ends over_tcp(std::move(tcp.first), std::move(tcp.second));
  expect_no_allocations(over_tcp);
}

TEST(EndpointMetrics, MessagesCountUnderTheTransportOfTheirStream) {
  ShmPair shm = make_shm_pair().value();
  Ends over_shm(std::move(shm.first), std::move(shm.second));
  over_shm.ping_pong(0);
  expect_all_under("shm", over_shm);
  TcpTestPair tcp = connect_tcp_pair("127.0.0.1");
  Ends over_tcp(std::move(tcp.first), std::move(tcp.second));
  over_tcp.ping_pong(0);
  expect_all_under("tcp", over_tcp);
}

TEST(EndpointCost, ASmallMessageOverTcpIsOneWriteAndOneRead) {
  TcpTestPair tcp = connect_tcp_pair("127.0.0.1");
  const TcpStream& first = *tcp.first;
  const TcpStream& second = *tcp.second;
  Ends ends(std::move(tcp.first), std::move(tcp.second));
  for (uint64_t op = 0; op < 100; ++op) ends.ping_pong(op);
  EXPECT_EQ(first.calls().writes, 100U);
  EXPECT_EQ(first.calls().reads, 100U);
  EXPECT_EQ(second.calls().writes, 100U);
  EXPECT_EQ(second.calls().reads, 100U);
}

}  // namespace
}  // namespace corro::transport
