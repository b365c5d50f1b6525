#include "launch/leadership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coord/memory_store.h"

namespace corro::launch {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

JobRecord record_of(uint32_t epoch) {
  return {.job = "a", .epoch = epoch, .hosts = {}, .members = {}};
}

class LeadershipTest : public testing::Test {
 protected:
  LeadershipTest()
      : lead_(mine_, mine_.try_lead("host1").value().value(), now_), leadership_(&lead_) {}

  /// Nobody has renewed the lead in time.
  void lose_lead() {
    now_ = now_ + seconds(9);
    leadership_.keep(now_);
  }

  Time now_{std::chrono::hours(1)};
  std::shared_ptr<coord::MemoryRecords> records_ =
      std::make_shared<coord::MemoryRecords>([this] { return now_; });
  coord::MemoryStore mine_{records_};
  Lead lead_;
  Leadership leadership_;
};

TEST_F(LeadershipTest, IsWhoseAgentsAreStarted) {
  Leadership leadership(nullptr);
  leadership.write(record_of(1));
  leadership.end("a", Ending{.status = 0});
  leadership.keep(now_);
  EXPECT_TRUE(leadership.holds(now_));
  EXPECT_FALSE(leadership.over());
  EXPECT_EQ(leadership.due(), Time::never());
  EXPECT_EQ(leadership.lost(), "");
  EXPECT_EQ(records_->record, "");
}

TEST_F(LeadershipTest, EndsWithTheLead) {
  EXPECT_TRUE(leadership_.holds(now_));
  EXPECT_EQ(leadership_.due(), now_ + seconds(1));
  lose_lead();
  EXPECT_FALSE(leadership_.holds(now_));
  EXPECT_THAT(leadership_.lost(), HasSubstr("did not run for a while"));
}

TEST_F(LeadershipTest, EndsTheJobAsItWasWrittenLast) {
  leadership_.write(record_of(1));
  leadership_.write(record_of(2));
  leadership_.end("a", Ending{.status = 3});
  JobRecord record = record_of(2);
  record.over = true;
  record.ending = Ending{.status = 3};
  EXPECT_EQ(parse_record(records_->record).value(), record);
}

TEST_F(LeadershipTest, EndsAJobThatHasNoRecord) {
  leadership_.end("a", std::nullopt);
  EXPECT_TRUE(leadership_.over());
  EXPECT_EQ(parse_record(records_->record).value().job, "a");
}

TEST_F(LeadershipTest, OfAJobThatIsOverNeedsNoLead) {
  leadership_.end("a", std::nullopt);
  EXPECT_EQ(leadership_.due(), Time::never());
  lose_lead();
  EXPECT_TRUE(leadership_.holds(now_));
}

TEST_F(LeadershipTest, OfWhoHasLostTheLeadDoesNotEndTheJob) {
  lose_lead();
  leadership_.end("a", Ending{.status = 0});
  EXPECT_FALSE(leadership_.over());
  EXPECT_FALSE(leadership_.holds(now_));
}

}  // namespace
}  // namespace corro::launch
