// A server that reads a checkpoint: what it answers meanwhile, and afterwards.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "table/service/service.h"

namespace corro::table {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// Loads end when the test says so.
class SlowStore final : public SnapshotStore {
 public:
  std::unique_ptr<PartWriter> begin(const Save&, const PartHead&) override {
    ADD_FAILURE() << "nobody asks";
    return nullptr;
  }
  std::unique_ptr<RowsLoading> begin_load(const std::string&, uint64_t step,
                                          const LoadOptions& options) override {
    begun.push_back(step);
    return std::make_unique<Loading>(*this, options.spec);
  }

  std::vector<uint64_t> begun;  ///< The steps of all loads.
  bool done = false;
  Status status;  ///< Of the load that is done.

 private:
  class Loading final : public RowsLoading {
   public:
    Loading(const SlowStore& store, TableSpec spec) : store_(store), spec_(std::move(spec)) {}
    [[nodiscard]] bool done() const override { return store_.done; }
    /// Row 1 after 40 steps, each of which has added 1.
    Result<LoadedRows> take() override {
      CORRO_TRY(store_.status);
      CORRO_ASSIGN(auto rows, LocalTable::create(spec_));
      CORRO_TRY(rows->push(std::vector<uint64_t>{1}, std::vector<float>{-40}, 40));
      return LoadedRows{std::move(rows), 40};
    }

   private:
    const SlowStore& store_;
    const TableSpec spec_;
  };
};

class ServiceLoads : public testing::Test {
 protected:
  ServiceLoads() {
    service_.admit(kClient, 0);
    for (const uint16_t table : {uint16_t{0}, uint16_t{1}}) {
      const Open open{.spec = spec(table), .rank = 0, .ranks = 1};
      say(kClient, MessageKind::kOpen, table, encode_open(open));
    }
    said_.clear();
  }

  static TableSpec spec(uint16_t table) {
    TableSpec made{.name = table == 0 ? "large" : "small", .dim = 1};
    made.optimizer.lr = 1;
    return made;
  }
  void say(uint64_t client, MessageKind kind, uint16_t table, const Bytes& body) {
    const Header header{.kind = kind, .table = table, .body = static_cast<uint32_t>(body.size())};
    const Status status = service_.hear(client, header, body, Time());
    EXPECT_TRUE(status.ok()) << status.message();
  }
  void load(uint64_t step, uint64_t client = kClient) {
    say(client, MessageKind::kLoad, 0,
        encode_load({.step = step, .shards = ShardSet().set(), .folder = "/there"}));
  }
  void pull(uint16_t table) {
    const Bytes message = encode_pull(table, 0, {}, std::vector<uint64_t>{1});
    const auto body = message.begin() + static_cast<ptrdiff_t>(kHeaderBytes);
    say(kClient, MessageKind::kPull, table, {body, message.end()});
  }
  /// As the server's loop does.
  void turn() {
    while (service_.has_work()) service_.work();
  }
  [[nodiscard]] float row(uint16_t table) const {
    const ServedTable* const found = service_.find(spec(table).name);
    float value = -1;
    EXPECT_TRUE(found->pull(std::vector<uint64_t>{1}, {&value, 1}).ok());
    return value;
  }

  static constexpr uint64_t kClient = 7;
  SlowStore store_;
  std::vector<MessageKind> said_;
  TableService service_{{.index = 0, .ranks = 1}, store_, [this](uint64_t, Bytes message) {
                          std::array<std::byte, kHeaderBytes> raw{};
                          std::copy_n(message.begin(), raw.size(), raw.begin());
                          said_.push_back(decode_header(raw).value().kind);
                        }};
};

TEST_F(ServiceLoads, OthersAreAnsweredMeanwhile) {
  load(9);
  turn();
  EXPECT_THAT(said_, IsEmpty());
  pull(1);
  pull(0);
  turn();
  EXPECT_THAT(said_, ElementsAre(MessageKind::kRows, MessageKind::kRows));
  store_.done = true;
  turn();
  EXPECT_EQ(said_.back(), MessageKind::kLoaded);
  EXPECT_EQ(row(0), 0);
  say(kClient, MessageKind::kAdopt, 0, {});
  EXPECT_EQ(said_.back(), MessageKind::kAdopted);
  EXPECT_EQ(row(0), 40);
  EXPECT_EQ(service_.find("large")->steps(), 40U);
}

TEST_F(ServiceLoads, WhatIsDamagedIsAnError) {
  store_.status = {Code::kDataLoss, "damaged"};
  load(9);
  store_.done = true;
  turn();
  EXPECT_THAT(said_, ElementsAre(MessageKind::kError));
  say(kClient, MessageKind::kAdopt, 0, {});
  EXPECT_EQ(row(0), 0);
}

TEST_F(ServiceLoads, ANewConnectionWaitsForWhatIsUnderWay) {
  load(9);
  service_.dismiss(kClient);
  service_.admit(8, 0);
  say(8, MessageKind::kOpen, 0, encode_open({.spec = spec(0), .rank = 0, .ranks = 1}));
  load(9, 8);
  store_.done = true;
  turn();
  EXPECT_THAT(store_.begun, ElementsAre(9));
  EXPECT_EQ(said_.back(), MessageKind::kLoaded);
}

TEST_F(ServiceLoads, NobodyIsToldOfWhatADeadConnectionHasAsked) {
  load(9);
  service_.dismiss(kClient);
  store_.done = true;
  turn();
  EXPECT_THAT(said_, IsEmpty());
}

TEST_F(ServiceLoads, AnotherStepTakesThePlaceOfOneUnderWay) {
  load(9);
  load(8);
  store_.done = true;
  turn();
  EXPECT_THAT(store_.begun, ElementsAre(9, 8));
  EXPECT_THAT(said_, ElementsAre(MessageKind::kLoaded));
}

}  // namespace
}  // namespace corro::table
