#include "launch/lead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coord/memory_store.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

class LeadTest : public testing::Test {
 protected:
  LeadTest() : lead_(mine_, mine_.try_lead("host1").value().value(), now_) {}

  Time now_{std::chrono::hours(1)};
  std::shared_ptr<coord::MemoryRecords> records_ =
      std::make_shared<coord::MemoryRecords>([this] { return now_; });
  coord::MemoryStore mine_{records_};
  coord::MemoryStore other_{records_};
  Lead lead_;
};

TEST_F(LeadTest, IsRenewedEachSecond) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(lead_.due(), now_ + seconds(1));
    now_ = lead_.due();
    lead_.keep(now_);
  }
  EXPECT_EQ(lead_.lost(), "");
  lead_.write({.job = "a", .hosts = {}, .members = {}});
  EXPECT_EQ(records_->record, format_record({.job = "a", .hosts = {}, .members = {}}));
}

TEST_F(LeadTest, IsLostWhenAnotherOneLeads) {
  now_ = now_ + seconds(6);
  ASSERT_TRUE(other_.try_lead("host2").value().has_value());
  lead_.keep(now_);
  EXPECT_THAT(lead_.lost(), HasSubstr("the lead of term 1 is lost: "));
  EXPECT_THAT(lead_.lost(), HasSubstr("host2"));
  lead_.write({.job = "a", .hosts = {}, .members = {}});
  EXPECT_EQ(records_->record, "");
}

TEST_F(LeadTest, IsLostByAWriteThatFails) {
  now_ = now_ + seconds(6);
  ASSERT_TRUE(other_.try_lead("host2").value().has_value());
  lead_.write({.job = "a", .hosts = {}, .members = {}});
  EXPECT_NE(lead_.lost(), "");
}

TEST_F(LeadTest, OutlivesAStoreThatIsAwayForAMoment) {
  mine_.cut_off(true);
  now_ = now_ + seconds(2);
  lead_.keep(now_);
  mine_.cut_off(false);
  now_ = now_ + seconds(1);
  lead_.keep(now_);
  EXPECT_EQ(lead_.lost(), "");
  mine_.cut_off(true);
  for (int i = 0; i < 5; ++i) {
    now_ = now_ + seconds(1);
    lead_.keep(now_);
  }
  EXPECT_NE(lead_.lost(), "") << "another one may lead by now";
}

TEST_F(LeadTest, IsLostByWhoWasStoppedAlthoughNobodyElseLeads) {
  now_ = now_ + seconds(9);
  lead_.keep(now_);
  EXPECT_THAT(lead_.lost(), HasSubstr("did not run for a while"));
}

}  // namespace
}  // namespace corro::launch
