#include "coord/memory_store.h"

#include "coord/record_store_suite.h"

namespace corro::coord {
namespace {

class MemoryWorld final : public RecordStoreWorld {
 public:
  [[nodiscard]] std::unique_ptr<RecordStore> open() override {
    return std::make_unique<MemoryStore>(records_);
  }
  void end_lead() override { now_ = now_ + kLeaseTime; }
  [[nodiscard]] Time now() const override { return now_; }

 private:
  Time now_ = Time{std::chrono::hours(1)};
  const std::shared_ptr<MemoryRecords> records_ =
      std::make_shared<MemoryRecords>([this] { return now_; });
};

std::unique_ptr<RecordStoreWorld> make_memory_world() { return std::make_unique<MemoryWorld>(); }

INSTANTIATE_TEST_SUITE_P(Memory, RecordStoreSuite, testing::Values(&make_memory_world));

class MemoryStoreTest : public testing::Test {
 protected:
  Time now_ = Time{std::chrono::hours(1)};
  const std::shared_ptr<MemoryRecords> records_ =
      std::make_shared<MemoryRecords>([this] { return now_; });
  MemoryStore store_{records_};
};

TEST_F(MemoryStoreTest, ALeaseEndsASecondAfterTheLeaderStopsActing) {
  ASSERT_TRUE(store_.try_lead("first").ok());
  now_ = store_.leads_until();
  EXPECT_EQ(*store_.leader(), "first");
  now_ = now_ + kLeaseMargin;
  EXPECT_EQ(*store_.leader(), "");
  EXPECT_EQ(store_.write("late").code(), Code::kAborted);
  EXPECT_EQ(*store_.read(), "");
}

TEST_F(MemoryStoreTest, ALeaderThatIsCutOffKeepsItsLeadForATime) {
  ASSERT_TRUE(store_.try_lead("first").ok());
  const Time until = store_.leads_until();
  store_.cut_off(true);
  EXPECT_EQ(store_.renew().code(), Code::kUnavailable);
  EXPECT_EQ(store_.write("lost").code(), Code::kUnavailable);
  EXPECT_EQ(store_.leader().status().code(), Code::kUnavailable);
  EXPECT_EQ(store_.leads_until(), until);
  store_.cut_off(false);
  EXPECT_TRUE(store_.renew().ok());
}

}  // namespace
}  // namespace corro::coord
