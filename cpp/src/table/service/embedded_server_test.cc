#include "table/service/embedded_server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "table/service/tables.h"
#include "wire/running_agent.h"
#include "wire/server_number.h"

namespace corro::table {
namespace {

/// Ranks of one job, each with a server of its own, in this process.
class RanksThatServe : public testing::Test {
 protected:
  static constexpr uint32_t kRanks = 3;

  void SetUp() override {
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      servers_.push_back(
          EmbeddedServer::start(environment(rank), std::chrono::seconds(60)).value());
    for (uint32_t rank = 0; rank < kRanks; ++rank) tables_.push_back(tables_of_rank(rank));
  }

  Environment environment(uint32_t rank) {
    Environment all;
    all.agent = agent_.service().name();
    all.rank = static_cast<int32_t>(rank);
    all.size = static_cast<int32_t>(kRanks);
    all.servers = static_cast<int32_t>(kRanks);
    all.ranks_serve = true;
    return all;
  }
  std::unique_ptr<Tables> tables_of_rank(uint32_t rank) {
    const auto found = wire::find_servers(environment(rank), std::chrono::seconds(60)).value();
    ServedOptions options{
        .job = found.job, .secret = found.secret, .rank = rank, .ranks = kRanks, .servers = {}};
    for (const std::string& address : found.addresses)
      options.servers.push_back(io::SocketAddress::parse(address).value());
    return served_tables(options);
  }
  static TableSpec spec_of_words() {
    return {.name = "words",
            .dim = 2,
            .optimizer = {.kind = OptimizerKind::kSgd, .lr = 0.5F},
            .initial = {InitialKind::kNormal, 0.0F, 1.0F}};
  }
  /// Of a step all ranks push the same keys, and other numbers.
  static std::vector<float> gradients_of(uint32_t rank, uint32_t step) {
    std::vector<float> values;
    for (size_t i = 0; i < kKeys.size() * 2; ++i)
      values.push_back(0.1F * static_cast<float>(rank + 1) / static_cast<float>(step + i + 1));
    return values;
  }
  static std::vector<float> rows_in(Tables& tables) {
    std::vector<float> rows(kKeys.size() * 2);
    EXPECT_TRUE(tables.pull(0, kKeys, rows).ok());
    return rows;
  }
  /// Those of one process after the same steps.
  static std::vector<float> rows_of_one_process(uint32_t steps) {
    const auto alone = local_tables();
    EXPECT_TRUE(alone->open(spec_of_words(), 0).ok());
    for (uint32_t step = 0; step < steps; ++step) {
      std::vector<float> sums = gradients_of(0, step);
      for (uint32_t rank = 1; rank < kRanks; ++rank) {
        const std::vector<float> more = gradients_of(rank, step);
        for (size_t i = 0; i < sums.size(); ++i) sums[i] += more[i];
      }
      EXPECT_TRUE(alone->push(0, kKeys, sums).ok());
    }
    return rows_in(*alone);
  }
  void push_steps(uint32_t steps, uint32_t replicas) {
    std::vector<std::jthread> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank)
      ranks.emplace_back([this, rank, steps, replicas] {
        EXPECT_TRUE(tables_[rank]->open(spec_of_words(), replicas).ok());
        for (uint32_t step = 0; step < steps; ++step)
          EXPECT_TRUE(tables_[rank]->push(0, kKeys, gradients_of(rank, step)).ok());
      });
  }

  static inline const std::vector<uint64_t> kKeys = {1, 2, 3, 1ULL << 40U, 5, 6, 7, 8, 9, 10};
  wire::RunningAgent agent_{kRanks, 1U << 20U, /*servers=*/kRanks};
  std::vector<std::unique_ptr<EmbeddedServer>> servers_;  ///< By rank.
  std::vector<std::unique_ptr<Tables>> tables_;           ///< By rank.
};

/// By replicas.
class EmbeddedServers : public RanksThatServe, public testing::WithParamInterface<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Replicas, EmbeddedServers, testing::Values(0U, 1U));

TEST_P(EmbeddedServers, KeepTheRowsOfOneProcess) {
  push_steps(5, GetParam());
  for (const auto& tables : tables_) {
    EXPECT_EQ(rows_in(*tables), rows_of_one_process(5));
    EXPECT_EQ(tables->copies(0), 1 + GetParam());
  }
}

TEST_P(EmbeddedServers, ShowTheAgentWhatTheyKeepUntilTheyAreOver) {
  push_steps(2, GetParam());
  uint64_t rows = 0;
  const auto add_up = [&] {
    rows = 0;
    auto hellos = agent_.hellos().lock();
    for (const wire::WorkerHello& hello : *hellos) {
      EXPECT_EQ(hello.descriptors.size(), 1U) << "of server " << hello.rank - wire::kFirstServer;
      const auto found = obs::read_tables(hello.descriptors.at(0).get());
      for (const obs::TableCounts& table : *found) rows += table.rows;
    }
    return rows;
  };
  const size_t expected = kKeys.size() * (1 + GetParam());
  // It is written within a second.
  for (const Time late = wire::soon(); add_up() != expected && monotonic_now() < late;)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(rows, expected);
  servers_.clear();
  EXPECT_EQ(add_up(), 0U);
}

TEST_P(EmbeddedServers, KeepTheirRowsUntilNoRankUsesATable) {
  push_steps(1, GetParam());
  std::atomic<int> over = 0;
  std::vector<std::jthread> leaving;
  const auto leave = [&](size_t rank) {
    leaving.emplace_back([this, &over, rank] {
      EXPECT_TRUE(servers_[rank]->leave().ok());
      ++over;
      servers_[rank].reset();
    });
  };
  leave(0);
  leave(1);
  const auto reader = agent_.connect(wire::kReader).value();
  for (const char* key : {"job-1/tables-unused/0", "job-1/tables-unused/1"})
    EXPECT_TRUE(reader->get(key, wire::soon()).ok());
  EXPECT_EQ(rows_in(*tables_[2]), rows_of_one_process(1));
  EXPECT_EQ(over, 0);
  leave(2);
  leaving.clear();
  EXPECT_EQ(over, 3);
}

TEST_F(RanksThatServe, SayThatTheyPushNoMore) {
  push_steps(1, 1);
  std::jthread early([this] { EXPECT_TRUE(servers_[1]->leave().ok()); });
  const Status status = tables_[0]->push(0, kKeys, gradients_of(0, 1));
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(), "table words: push 2: rank 1 has ended, and pushes no more");
  servers_[0].reset();
  servers_[2].reset();
}

TEST_F(RanksThatServe, WaitForNobodyWhoHasEndedWithoutAWord) {
  servers_[1].reset();
  servers_[2].reset();
  EXPECT_TRUE(servers_[0]->leave().ok());
}

TEST_F(RanksThatServe, AreOneServerEach) {
  const auto second = EmbeddedServer::start(environment(1), std::chrono::seconds(60));
  EXPECT_EQ(second.status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(second.status().message(), "table server 1: another process of this rank is it");
}

TEST_F(RanksThatServe, AreLostAsServersAre) {
  push_steps(1, 1);
  servers_[1].reset();  // Its rows are on others, too.
  EXPECT_EQ(rows_in(*tables_[0]), rows_of_one_process(1));
}

}  // namespace
}  // namespace corro::table
