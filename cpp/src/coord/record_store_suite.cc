#include "coord/record_store_suite.h"

namespace corro::coord {
namespace {

TEST_P(RecordStoreSuite, TheFirstOneLeadsAndIsNamed) {
  EXPECT_EQ(leader_of(*first_), "");
  EXPECT_EQ(first_->leads_until(), Time{});
  EXPECT_GT(lead(*first_, "host1, process 1"), 0U);
  EXPECT_EQ(leader_of(*first_), "host1, process 1");
  EXPECT_GT(first_->leads_until(), world_->now());
}

TEST_P(RecordStoreSuite, TheSecondOneIsToldWhoLeads) {
  lead(*first_, "host1, process 1");
  EXPECT_TRUE(is_refused(*second_));
  EXPECT_EQ(second_->leads_until(), Time{});
  EXPECT_EQ(leader_of(*second_), "host1, process 1");
}

TEST_P(RecordStoreSuite, ALeaderThatAsksAgainKeepsItsTerm) {
  const uint64_t term = lead(*first_, "first");
  EXPECT_EQ(lead(*first_, "first"), term);
}

TEST_P(RecordStoreSuite, ALaterLeadHasAHigherTerm) {
  uint64_t last = lead(*first_, "first");
  for (int round = 0; round < 3; ++round) {
    first_->resign();
    const uint64_t second = lead(*second_, "second");
    EXPECT_GT(second, last);
    second_->resign();
    last = lead(*first_, "first");
    EXPECT_GT(last, second);
  }
  world_->end_lead();
  EXPECT_GT(lead(*second_, "second"), last);
}

TEST_P(RecordStoreSuite, EverybodyReadsWhatTheLeaderWroteLast) {
  EXPECT_EQ(record_of(*second_), "");
  lead(*first_, "first");
  for (const std::string record : {"one", "three", "", "two"}) {
    write(*first_, record);
    EXPECT_EQ(record_of(*first_), record);
    EXPECT_EQ(record_of(*second_), record);
  }
}

TEST_P(RecordStoreSuite, WhoDoesNotLeadCannotWrite) {
  EXPECT_EQ(first_->write("nobody leads").code(), Code::kAborted);
  lead(*first_, "host1, process 1");
  write(*first_, "old");
  const Status refused = second_->write("new");
  EXPECT_EQ(refused.code(), Code::kAborted) << refused.to_string();
  EXPECT_THAT(refused.message(), testing::HasSubstr("host1, process 1 leads"));
  EXPECT_EQ(second_->renew().code(), Code::kAborted);
  first_->resign();
  EXPECT_EQ(first_->write("new").code(), Code::kAborted);
  EXPECT_EQ(record_of(*first_), "old");
}

TEST_P(RecordStoreSuite, ARecordHasALimit) {
  std::string record(kMostRecordBytes, '\0');
  for (size_t i = 0; i < record.size(); ++i) record[i] = static_cast<char>(i * i >> 3U);
  lead(*first_, "first");
  write(*first_, record);
  EXPECT_TRUE(record_of(*second_) == record);
  EXPECT_EQ(first_->write(record + "x").code(), Code::kResourceExhausted);
  EXPECT_TRUE(record_of(*second_) == record);
}

TEST_P(RecordStoreSuite, TheNextOneLeadsOnceTheLeaderIsGone) {
  lead(*second_, "second");
  write(*second_, "left behind");
  second_.reset();
  world_->end_lead();
  lead(*first_, "first");
  EXPECT_EQ(record_of(*first_), "left behind");
  EXPECT_EQ(leader_of(*first_), "first");
}

TEST_P(RecordStoreSuite, AfterAResignationTheNextOneLeadsAtOnce) {
  first_->resign();  // Without the lead: nothing happens.
  lead(*first_, "first");
  second_->resign();
  EXPECT_TRUE(is_refused(*second_));
  first_->resign();
  EXPECT_EQ(first_->leads_until(), Time{});
  EXPECT_EQ(leader_of(*second_), "");
  EXPECT_EQ(first_->renew().code(), Code::kAborted);
  lead(*second_, "second");
  EXPECT_TRUE(is_refused(*first_));
}

TEST_P(RecordStoreSuite, ALeaderIsRenewed) {
  lead(*first_, "first");
  const Time before = first_->leads_until();
  const Status renewed = first_->renew();
  EXPECT_TRUE(renewed.ok()) << renewed.to_string();
  EXPECT_GE(first_->leads_until(), before);
  write(*first_, "record");
}

TEST_P(RecordStoreSuite, ALeaderThatWasReplacedChangesNothing) {
  lead(*first_, "first");
  write(*first_, "old");
  world_->end_lead();
  lead(*second_, "second");
  write(*second_, "new");
  const Status written = first_->write("stale");
  EXPECT_EQ(written.code(), Code::kAborted) << written.to_string();
  EXPECT_THAT(written.message(), testing::HasSubstr("second leads"));
  EXPECT_EQ(first_->leads_until(), Time{});
  first_->resign();
  EXPECT_TRUE(is_refused(*first_));
  EXPECT_EQ(record_of(*first_), "new");
  write(*second_, "newer");
}

TEST_P(RecordStoreSuite, ALeaderThatWasReplacedIsNotRenewed) {
  lead(*first_, "first");
  world_->end_lead();
  lead(*second_, "second");
  EXPECT_EQ(first_->renew().code(), Code::kAborted);
  EXPECT_EQ(first_->leads_until(), Time{});
  EXPECT_EQ(leader_of(*first_), "second");
  const Status renewed = second_->renew();
  EXPECT_TRUE(renewed.ok()) << renewed.to_string();
}

}  // namespace
}  // namespace corro::coord
