// What a server counts of its tables, and what others read of it.
#include "table/service/service_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "table/service/service.h"

namespace corro::table {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using testing::ElementsAre;

uint64_t p99_of(const ServiceCounts& counts) {
  obs::TableCounts read;
  counts.count(read);
  return read.pull_p99_ns;
}

TEST(ServiceCounts, OfAHundredPullsOneTakesLongerThanWhatIsSaid) {
  ServiceCounts counts;
  EXPECT_EQ(p99_of(counts), 0U);
  counts.add_pull(1, nanoseconds(7));
  EXPECT_EQ(p99_of(counts), 7U);
  for (int took = 100; took > 1; --took) counts.add_pull(1, nanoseconds(took));
  EXPECT_EQ(p99_of(counts), 99U);
}

TEST(ServiceCounts, ForgetHowLongEarlierPullsTook) {
  ServiceCounts counts;
  for (size_t i = 0; i < 3 * ServiceCounts::kKeptPulls / 2; ++i) counts.add_pull(2, seconds(9));
  for (size_t i = 0; i < ServiceCounts::kKeptPulls; ++i) counts.add_pull(1, nanoseconds(3));
  EXPECT_EQ(p99_of(counts), 3U);
  obs::TableCounts read;
  counts.count(read);
  EXPECT_EQ(read.pulls, 5 * ServiceCounts::kKeptPulls / 2);
  EXPECT_EQ(read.pulled_rows, 4 * ServiceCounts::kKeptPulls);
}

/// Nothing is saved, and nothing loaded.
class NoStore final : public SnapshotStore {
 public:
  std::unique_ptr<PartWriter> begin(const Save&, const PartHead&) override { return nullptr; }
  std::unique_ptr<RowsLoading> begin_load(const std::string&, uint64_t,
                                          const LoadOptions&) override {
    return nullptr;
  }
};

/// Server 1 of two, two ranks, and the table of which others read.
class RecordedService : public testing::Test {
 protected:
  RecordedService() {
    for (const uint32_t rank : {0U, 1U}) service_.admit(rank, rank);
    open("words");
  }

  void open(const std::string& name) {
    for (const uint32_t rank : {0U, 1U})
      say(rank, MessageKind::kOpen,
          encode_open({.spec = {.name = name, .dim = 2}, .rank = rank, .ranks = 2}));
  }
  void say(uint64_t client, MessageKind kind, const Bytes& body) {
    const Status status = service_.hear(
        client, {.kind = kind, .table = 0, .body = static_cast<uint32_t>(body.size())}, body, now_);
    EXPECT_TRUE(status.ok()) << status.message();
  }
  /// Without its header.
  static Bytes body_of(const Bytes& message) {
    return {message.begin() + static_cast<ptrdiff_t>(kHeaderBytes), message.end()};
  }
  void pull(const std::vector<uint64_t>& keys, uint64_t at_least = 0) {
    say(0, MessageKind::kPull, body_of(encode_pull(0, 0, {.at_least = at_least}, keys)));
  }
  void push(uint32_t rank, uint64_t step, const std::vector<uint64_t>& keys) {
    const PushHead head{.step = step, .rows = keys.size(), .patience_ms = 60'000, .lr = 1};
    say(rank, MessageKind::kPush, body_of(encode_push(0, 0, head, keys, 2)));
  }
  /// As the server's loop does, once there is something to do.
  obs::TableCounts published() {
    EXPECT_LE(service_.wake(), now_ + seconds(1));
    now_ = std::max(now_, service_.wake());
    service_.publish(now_);
    return read();
  }
  [[nodiscard]] obs::TableCounts read() const {
    const auto tables = obs::read_tables(recorder_->fd()).value();
    return tables.empty() ? obs::TableCounts() : tables.front();
  }

  Time now_{seconds(100)};
  NoStore store_;
  std::unique_ptr<obs::TableRecorder> recorder_ = obs::TableRecorder::create().value();
  TableService service_{{.index = 1,
                         .ranks = 2,
                         .servers = 2,
                         .recorder = recorder_.get(),
                         .clock = [this] { return now_ + milliseconds(3); }},
                        store_,
                        [](uint64_t, const Bytes&) {}};
};

TEST_F(RecordedService, ShowsATableAsSoonAsItIsOpened) {
  EXPECT_EQ(service_.wake(), now_);
  const obs::TableCounts words = published();
  EXPECT_EQ(words.name, "words");
  EXPECT_EQ(words.rows, 0U);
  const size_t mine = Holders(2, 1).servers().at(1).count();
  EXPECT_GT(mine, 1500U);
  EXPECT_EQ(words.shards, mine);
}

TEST_F(RecordedService, CountsWhatRanksPullAndPush) {
  (void)published();
  pull({1, 2, 3});
  push(0, 1, {2, 3});
  push(1, 1, {3});
  push(1, 1, {3});  // Its connection was broken: the step was taken, and nothing changes.
  const obs::TableCounts words = published();
  EXPECT_EQ(words.rows, 2U);
  EXPECT_GT(words.bytes, 2 * 2 * sizeof(float));
  EXPECT_EQ(words.steps, 1U);
  EXPECT_EQ(words.pulls, 1U);
  EXPECT_EQ(words.pulled_rows, 3U);
  EXPECT_EQ(words.pushes, 2U);
  EXPECT_EQ(words.pushed_rows, 3U);
  EXPECT_EQ(words.pull_p99_ns, 3'000'000U);
}

TEST_F(RecordedService, APullThatWaitsForAStepTakesWhatItTakesFromThatStepOn) {
  pull({1}, /*at_least=*/1);
  EXPECT_EQ(published().pulls, 0U) << "it is not answered yet";
  now_ = now_ + seconds(2);
  for (const uint32_t rank : {0U, 1U}) push(rank, 1, {1});
  EXPECT_EQ(published().pulls, 1U);
  EXPECT_LT(read().pull_p99_ns, 2'000'000'000U) << "nobody is slow whose rows are asked for ahead";
}

TEST_F(RecordedService, IsWrittenOnceASecondAndNotWhileNobodySpeaks) {
  (void)published();
  EXPECT_EQ(service_.wake(), Time::never());
  pull({1});
  service_.publish(now_);
  EXPECT_EQ(read().pulls, 0U);
  EXPECT_EQ(service_.wake(), now_ + seconds(1));
  EXPECT_EQ(published().pulls, 1U);
  now_ = now_ + seconds(30);
  pull({1});
  EXPECT_EQ(service_.wake(), now_) << "the last time is long ago";
}

TEST_F(RecordedService, ShowsTheShardsThatRanksSay) {
  Holds holds{.version = 1, .servers = {{.number = 1, .address = "a:1", .shards = {}}}};
  for (const size_t shard : {3U, 70U, 4095U}) holds.servers[0].shards.set(shard);
  say(0, MessageKind::kHolds, encode_holds(holds));
  EXPECT_EQ(published().shards, 3U);
}

TEST_F(RecordedService, TablesWithoutAPlaceAreServedAllTheSame) {
  for (size_t i = 1; i <= obs::kMostShownTables; ++i) open("t" + std::to_string(i));
  pull({1});  // Of the last one.
  EXPECT_EQ(published().name, "words");
  EXPECT_EQ(obs::read_tables(recorder_->fd())->size(), obs::kMostShownTables);
  EXPECT_NE(service_.find("t64"), nullptr);
}

TEST(ServiceCounts, AServerThatCameLaterHasNoShardsBeforeRanksSaySo) {
  NoStore store;
  const auto recorder = obs::TableRecorder::create().value();
  TableService late({.index = 2, .ranks = 1, .servers = 2, .recorder = recorder.get()}, store,
                    [](uint64_t, const Bytes&) {});
  late.admit(7, 0);
  const Bytes open = encode_open({.spec = {.name = "words", .dim = 2}, .rank = 0, .ranks = 1});
  EXPECT_TRUE(late.hear(7, {.kind = MessageKind::kOpen}, open, Time()).ok());
  late.publish(Time());
  EXPECT_THAT(*obs::read_tables(recorder->fd()),
              ElementsAre(testing::Field(&obs::TableCounts::shards, 0U)));
}

}  // namespace
}  // namespace corro::table
