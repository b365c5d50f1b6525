// A server and its workers over TCP, each in a thread of its own.
#include "table/service/server.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "io/socket.h"
#include "table/service/tables.h"

namespace corro::table {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr uint32_t kDim = 2;

wire::Secret secret_of(int number) {
  wire::Secret secret{};
  secret[0] = static_cast<std::byte>(number);
  return secret;
}

io::Fd listen_anywhere() {
  return io::listen_tcp(io::SocketAddress::parse("127.0.0.1:0").value()).value();
}

/// A server in a thread.
class Served {
 public:
  explicit Served(int ranks, int index = 0) {
    io::Fd listener = listen_anywhere();
    address_ = io::local_address(listener.get()).value();
    server_ =
        TableServer::create(
            {.job = wire::digest_of("job"), .secret = secret_of(1), .index = index, .ranks = ranks},
            std::move(listener))
            .value();
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) server_->turn(monotonic_now() + milliseconds(20));
    });
  }
  [[nodiscard]] const io::SocketAddress& address() const { return address_; }
  void end() {
    thread_.request_stop();
    thread_.join();
    server_.reset();
  }

 private:
  io::SocketAddress address_;
  std::unique_ptr<TableServer> server_;
  std::jthread thread_;
};

std::unique_ptr<Tables> tables_of(uint32_t rank, uint32_t ranks,
                                  std::vector<io::SocketAddress> servers,
                                  Duration patience = seconds(60),
                                  Duration lost_after = seconds(10)) {
  return served_tables({.job = wire::digest_of("job"),
                        .secret = secret_of(1),
                        .rank = rank,
                        .ranks = ranks,
                        .servers = std::move(servers),
                        .patience = patience,
                        .lost_after = lost_after});
}

TableSpec spec_of(const std::string& name) {
  return {.name = name,
          .dim = kDim,
          .optimizer = {.lr = 0.5F},
          .initial = {.kind = InitialKind::kUniform, .low = -1, .high = 1}};
}

std::vector<float> rows_of(Tables& tables, TableNumber table, const std::vector<uint64_t>& ids) {
  std::vector<float> values(ids.size() * kDim);
  const Status status = tables.pull(table, ids, values);
  EXPECT_TRUE(status.ok()) << status.message();
  return values;
}

/// What a rank pushes in a step: ids, some of them twice, and gradients.
struct Drawn {
  std::vector<uint64_t> ids;
  std::vector<float> gradients;
};
Drawn draw(uint32_t rank, uint64_t step) {
  std::mt19937 random(rank * 1000 + static_cast<uint32_t>(step));
  Drawn drawn;
  drawn.ids.resize(random() % 300);
  for (uint64_t& id : drawn.ids) id = random() % 200;
  drawn.gradients.resize(drawn.ids.size() * kDim);
  for (float& gradient : drawn.gradients)
    gradient = std::uniform_real_distribution<float>(-1, 1)(random);
  return drawn;
}

/// The same in one process: gradients of a rank are added up first, then those of the ranks.
std::vector<float> expected_rows(uint32_t ranks, uint64_t steps, const std::vector<uint64_t>& ids) {
  const auto rows = LocalTable::create(spec_of("t")).value();
  for (uint64_t step = 1; step <= steps; ++step) {
    std::map<uint64_t, std::vector<float>> sums;
    for (uint32_t rank = 0; rank < ranks; ++rank) {
      const Drawn drawn = draw(rank, step);
      std::map<uint64_t, std::vector<float>> mine;
      for (size_t i = 0; i < drawn.ids.size(); ++i) {
        auto& sum = mine.try_emplace(drawn.ids[i], kDim).first->second;
        for (size_t j = 0; j < kDim; ++j) sum[j] += drawn.gradients[i * kDim + j];
      }
      for (const auto& [key, sum] : mine) {
        auto& total = sums.try_emplace(key, kDim).first->second;
        for (size_t j = 0; j < kDim; ++j) total[j] += sum[j];
      }
    }
    std::vector<uint64_t> keys;
    std::vector<float> gradients;
    for (const auto& [key, sum] : sums) {
      keys.push_back(key);
      gradients.insert(gradients.end(), sum.begin(), sum.end());
    }
    EXPECT_TRUE(rows->push(keys, gradients, step).ok());
  }
  std::vector<float> values(ids.size() * kDim);
  EXPECT_TRUE(rows->pull(ids, values).ok());
  return values;
}

std::vector<uint64_t> all_ids() {
  std::vector<uint64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = ids.size() - 1 - i;
  return ids;
}

/// How ranks use a table.
struct Use {
  uint64_t steps = 20;
  uint32_t replicas = 0;
  Duration lost_after = seconds(10);
  std::function<void(uint32_t rank, uint64_t step)> before = [](uint32_t, uint64_t) {};
};

/// Every rank sees what one process would have, after each of its pushes.
void expect_steps(uint32_t ranks, const std::vector<std::vector<io::SocketAddress>>& ways,
                  const Use& use) {
  const std::vector<float> expected = expected_rows(ranks, use.steps, all_ids());
  std::vector<std::jthread> workers;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    workers.emplace_back([=, &expected, &ways, &use] {
      const auto tables = tables_of(rank, ranks, ways[rank], seconds(60), use.lost_after);
      const auto table = tables->open(spec_of("t"), use.replicas);
      ASSERT_TRUE(table.ok()) << table.status().message();
      for (uint64_t step = 1; step <= use.steps; ++step) {
        use.before(rank, step);
        const Drawn drawn = draw(rank, step);
        const Status status = tables->push(*table, drawn.ids, drawn.gradients);
        ASSERT_TRUE(status.ok()) << status.message();
        EXPECT_EQ(tables->steps(*table), step);
      }
      EXPECT_EQ(rows_of(*tables, *table, all_ids()), expected);
    });
  }
}

TEST(TableServer, RanksSeeWhatOneProcessWouldHave) {
  Served first(3, 0);
  Served second(3, 1);
  const std::vector<io::SocketAddress> servers = {first.address(), second.address()};
  expect_steps(3, {servers, servers, servers}, {});
}

/// Passes bytes on between workers and a server, and cuts each connection after some of them.
class Cutter {
 public:
  Cutter(io::SocketAddress server, unsigned seed) : server_(server), random_(seed) {
    listener_ = listen_anywhere();
    address_ = io::local_address(listener_.get()).value();
    thread_ = std::jthread([this](const std::stop_token& stop) {
      while (!stop.stop_requested()) turn();
    });
  }
  [[nodiscard]] const io::SocketAddress& address() const { return address_; }
  [[nodiscard]] int cuts() const { return cuts_; }

 private:
  struct Pair {
    io::Fd worker, server;
    size_t left = 0;
  };

  void turn() {
    std::vector<pollfd> watched = {{listener_.get(), POLLIN, 0}};
    for (const Pair& pair : pairs_) {
      watched.push_back({pair.worker.get(), POLLIN, 0});
      watched.push_back({pair.server.get(), POLLIN, 0});
    }
    (void)poll(watched.data(), watched.size(), 20);
    for (size_t i = pairs_.size(); i-- > 0;) {
      const bool goes_on =
          (watched[1 + 2 * i].revents == 0 ||
           pass(pairs_[i], pairs_[i].worker, pairs_[i].server)) &&
          (watched[2 + 2 * i].revents == 0 || pass(pairs_[i], pairs_[i].server, pairs_[i].worker));
      if (!goes_on) pairs_.erase(pairs_.begin() + static_cast<ptrdiff_t>(i));
    }
    if (watched[0].revents != 0) accept();
  }
  void accept() {
    auto worker = io::accept_connection(listener_.get());
    if (!worker.ok() || !worker->valid()) return;
    io::Fd server = io::connect_tcp(server_).value();
    if (!io::wait_ready(server.get(), POLLOUT, monotonic_now() + seconds(5))) return;
    pairs_.push_back({std::move(worker).value(), std::move(server), 200 + random_() % 4000});
  }
  bool pass(Pair& pair, const io::Fd& from, const io::Fd& to) {
    std::array<std::byte, 512> buffer{};
    const io::Received received = io::receive_message(from.get(), buffer);
    if (received.would_block) return true;
    if (received.closed) return false;
    const size_t count = std::min(received.bytes, pair.left);
    BytesView rest = BytesView(buffer).first(count);
    while (!rest.empty()) {
      const auto sent = io::send_some(to.get(), rest);
      if (!sent.ok()) return false;
      rest = rest.subspan(*sent);
    }
    pair.left -= count;
    if (pair.left == 0) ++cuts_;
    return pair.left > 0;
  }

  const io::SocketAddress server_;
  std::mt19937 random_;
  io::Fd listener_;
  io::SocketAddress address_;
  std::vector<Pair> pairs_;
  std::atomic<int> cuts_ = 0;
  std::jthread thread_;
};

TEST(TableServer, PushesCountOnceWhereverConnectionsBreak) {
  for (unsigned seed = 0; seed < 5; ++seed) {
    Served first(2, 0);
    Served second(2, 1);
    Cutter to_first(first.address(), seed);
    Cutter to_second(second.address(), seed + 100);
    expect_steps(2,
                 {{to_first.address(), second.address()}, {first.address(), to_second.address()}},
                 {.steps = 25});
    EXPECT_GT(to_first.cuts() + to_second.cuts(), 3) << seed;
  }
}

/// Between calls the ranks' threads send and read.
TEST(TableServer, PushesAndPullsGoOnBetweenCalls) {
  Served served(2);
  TableSpec spec = spec_of("t");
  spec.mode = Mode::kBounded;
  spec.staleness = 2;
  const auto first = tables_of(0, 2, {served.address()});
  const auto second = tables_of(1, 2, {served.address()});
  const TableNumber table = first->open(spec, 0).value();
  ASSERT_EQ(second->open(spec, 0).value(), table);
  // More than the sockets take at once.
  std::vector<uint64_t> ids(200'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  std::vector<float> before(ids.size() * kDim);
  ASSERT_TRUE(first->pull(table, ids, before).ok());
  const std::vector<float> ones(before.size(), 1);
  ASSERT_TRUE(first->push(table, ids, ones).ok());
  ASSERT_TRUE(first->push(table, ids, ones).ok());
  EXPECT_EQ(first->steps(table), 0U);
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(second->push(table, {}, {}).ok());
    ASSERT_TRUE(second->wait(table).ok());  // Of the first one nobody calls anything.
  }
  std::vector<float> after(before.size());
  ASSERT_TRUE(second->prefetch(table, ids, 1).ok());
  ASSERT_TRUE(second->pull(table, ids, after).ok());
  for (size_t i = 0; i < before.size(); ++i) ASSERT_EQ(after[i], before[i] - 0.5F - 0.5F) << i;
  ASSERT_TRUE(first->wait(table).ok());
  EXPECT_EQ(first->steps(table), 2U);
}

TEST(TableServer, NoPushIsLostWithAServerThatHasAReplica) {
  for (unsigned seed = 0; seed < 8; ++seed) {
    std::vector<std::unique_ptr<Served>> servers;
    std::vector<io::SocketAddress> addresses;
    for (int i = 0; i < 3; ++i) {
      servers.push_back(std::make_unique<Served>(2, i));
      addresses.push_back(servers.back()->address());
    }
    std::mt19937 random(seed);
    const uint64_t step = 1 + random() % 15;
    const auto victim = random() % 3;
    const auto killer = static_cast<uint32_t>(random() % 2);
    expect_steps(2, {addresses, addresses},
                 {.replicas = 1, .before = [&](uint32_t rank, uint64_t now) {
                    if (rank == killer && now == step) servers[victim]->end();
                  }});
  }
}

/// A server that one rank alone cannot reach is left by all.
TEST(TableServer, RanksLeaveAServerTogether) {
  Served first(2, 0);
  Served second(2, 1);
  auto way = std::make_unique<Cutter>(first.address(), 1);
  const io::SocketAddress through = way->address();
  expect_steps(
      2, {{through, second.address()}, {first.address(), second.address()}},
      {.replicas = 1, .lost_after = milliseconds(200), .before = [&](uint32_t rank, uint64_t step) {
         if (rank == 0 && step == 5) way.reset();
       }});
}

TEST(TableServer, RowsThatNobodyHasAreNamed) {
  std::vector<std::unique_ptr<Served>> servers;
  std::vector<io::SocketAddress> addresses;
  for (int i = 0; i < 3; ++i) {
    servers.push_back(std::make_unique<Served>(1, i));
    addresses.push_back(servers.back()->address());
  }
  const auto tables = tables_of(0, 1, addresses);
  const TableNumber table = tables->open(spec_of("t"), 1).value();
  servers[0]->end();
  EXPECT_TRUE(tables->push(table, {}, {}).ok());
  servers[2]->end();
  const Status status = tables->push(table, {}, {});
  EXPECT_EQ(status.code(), Code::kUnavailable);
  for (const std::string words : {"table t: push 2: ", "server 0 (127.0.0.1:", "; ", "server 2 ("})
    EXPECT_NE(status.message().find(words), std::string::npos) << status.message();
}

TEST(TableServer, ALargePushComesInPartsAndALargePullToo) {
  Served served(1);
  const auto tables = tables_of(0, 1, {served.address()});
  TableSpec spec = spec_of("wide");
  spec.dim = 4096;
  const TableNumber table = tables->open(spec, 0).value();
  std::vector<uint64_t> ids(1000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = i;
  std::vector<float> before(ids.size() * spec.dim);
  std::vector<float> after(before.size());
  ASSERT_TRUE(tables->pull(table, ids, before).ok());
  ASSERT_TRUE(tables->push(table, ids, std::vector<float>(before.size(), 1)).ok());
  ASSERT_TRUE(tables->pull(table, ids, after).ok());
  for (size_t i = 0; i < before.size(); i += 997) EXPECT_EQ(after[i], before[i] - 0.5F);
}

TEST(TableServer, APushThatOthersDoNotMakeNamesThem) {
  Served served(3);
  const auto tables = tables_of(1, 3, {served.address()}, milliseconds(100));
  const TableNumber table = tables->open(spec_of("t"), 0).value();
  const Status status = tables->push(table, {}, {});
  EXPECT_EQ(status.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(status.message(), "table t: push 1: server 0 waits for ranks 0, 2");
  EXPECT_EQ(tables->push(table, {}, {}).message(), status.message());
}

TEST(TableServer, AServerThatIsGoneIsNamed) {
  Served served(1);
  const auto tables = tables_of(0, 1, {served.address()});
  const TableNumber table = tables->open(spec_of("t"), 0).value();
  served.end();
  std::vector<float> values(kDim);
  const std::vector<uint64_t> ids = {1};
  const Status status = tables->pull(table, ids, values);
  EXPECT_EQ(status.code(), Code::kUnavailable);
  EXPECT_NE(status.message().find("server 0 (127.0.0.1:"), std::string::npos) << status.message();
}

TEST(TableServer, AnInterruptedCallIsNotAnsweredLater) {
  Served served(2);
  std::atomic<bool> interrupted = false;
  const auto tables = served_tables({.job = wire::digest_of("job"),
                                     .secret = secret_of(1),
                                     .rank = 0,
                                     .ranks = 2,
                                     .servers = {served.address()},
                                     .interrupted = [&] { return interrupted.load(); }});
  const TableNumber table = tables->open(spec_of("t"), 0).value();
  const TableNumber other = tables->open(spec_of("other"), 0).value();
  interrupted = true;
  EXPECT_EQ(tables->push(table, {}, {}).code(), Code::kCancelled);
  interrupted = false;
  EXPECT_EQ(rows_of(*tables, other, {1, 1}).size(), 2 * kDim);
}

TEST(TableServer, AGradientThatIsNotFiniteIsNamedAndNothingHasChanged) {
  Served served(1);
  const auto tables = tables_of(0, 1, {served.address()});
  const TableNumber table = tables->open(spec_of("t"), 0).value();
  const auto before = rows_of(*tables, table, {5, 6});
  const std::vector<uint64_t> ids = {5, 6};
  const Status status = tables->push(table, ids, std::vector<float>{1, 2, 3, NAN});
  EXPECT_EQ(status.code(), Code::kInvalidArgument);
  EXPECT_NE(status.message().find("id 6 is nan in element 1"), std::string::npos)
      << status.message();
  EXPECT_EQ(rows_of(*tables, table, {5, 6}), before);
  EXPECT_TRUE(tables->push(table, ids, std::vector<float>(4, 1)).ok());
}

TEST(TableServer, AnotherSpecIsRefusedAndBothAreNamed) {
  Served served(2);
  const auto first = tables_of(0, 2, {served.address()});
  const auto second = tables_of(1, 2, {served.address()});
  ASSERT_TRUE(first->open(spec_of("t"), 0).ok());
  TableSpec other = spec_of("t");
  other.dim = 7;
  const auto opened = second->open(other, 0);
  EXPECT_EQ(opened.status().code(), Code::kInvalidArgument);
  EXPECT_NE(opened.status().message().find("dim"), std::string::npos);
}

/// Sends these bytes, and returns what comes until the server hangs up.
size_t bytes_for(const io::SocketAddress& address, BytesView bytes) {
  const io::Fd fd = io::connect_tcp(address).value();
  EXPECT_TRUE(io::wait_ready(fd.get(), POLLOUT, monotonic_now() + seconds(5)));
  (void)io::send_some(fd.get(), bytes);
  size_t count = 0;
  std::array<std::byte, 4096> buffer{};
  while (io::wait_ready(fd.get(), POLLIN, monotonic_now() + seconds(30))) {
    const io::Received received = io::receive_message(fd.get(), buffer);
    if (received.closed) return count;
    count += received.bytes;
  }
  ADD_FAILURE() << "the server has not hung up";
  return count;
}

TEST(TableServer, StrangersAreHungUpOnAndOthersServed) {
  Served served(1);
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n" + std::string(200, 'x');
  EXPECT_EQ(bytes_for(served.address(), std::as_bytes(std::span(http))), 0U);
  EXPECT_EQ(bytes_for(served.address(), {}), 0U);  // Says nothing for two seconds.
  const auto tables = tables_of(0, 1, {served.address()});
  EXPECT_TRUE(tables->open(spec_of("t"), 0).ok());
}

TEST(TableServer, AnotherSecretOrJobIsNotLetIn) {
  Served served(1);
  const auto tables = served_tables({.job = wire::digest_of("another"),
                                     .secret = secret_of(1),
                                     .servers = {served.address()},
                                     .patience = milliseconds(300)});
  EXPECT_EQ(tables->open(spec_of("t"), 0).status().code(), Code::kDeadlineExceeded);
  const auto guessing = served_tables({.job = wire::digest_of("job"),
                                       .secret = secret_of(2),
                                       .servers = {served.address()},
                                       .patience = milliseconds(300)});
  EXPECT_FALSE(guessing->open(spec_of("t"), 0).ok());
}

}  // namespace
}  // namespace corro::table
