#include "launch/job_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

JobRecord some_record() {
  return {.job = "00ff",
          .ranks = 3,
          .epoch = 7,
          .steps = 41,
          .resets = 6,
          .last = true,
          .hosts = {{.name = "node1", .slots = 2, .address = "10.0.0.1", .id = "boot/0"},
                    {.name = "node2", .slots = 0, .gone = true},
                    {.name = "node3", .slots = 1}},
          .members = {{.uuid = {std::byte{1}}, .place = 0, .host = 0, .slot = 1},
                      {.uuid = {std::byte{255}}, .incarnation = 2, .place = 3, .host = 2}},
          .over = true,
          .ending = Ending{.status = 75, .by_hosts = true, .why = "host node1 was lost"}};
}

TEST(JobRecord, IsReadAsItWasWritten) {
  for (const JobRecord& record :
       {some_record(), JobRecord{.job = "a", .hosts = {}, .members = {}}}) {
    const auto read = parse_record(format_record(record));
    ASSERT_TRUE(read.ok()) << read.status().message();
    EXPECT_EQ(*read, record);
  }
}

TEST(JobRecord, TheEndOfOneOfAnOlderCoordinatorIsItsStatus) {
  const auto read = parse_record(
      R"({"version": 1, "job": "a", "ranks": 1, "epoch": 0, "steps": 0, "resets": 0, "last": false,
          "over": true, "status": 3, "hosts": [], "members": []})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->ending, Ending{.status = 3});
}

TEST(JobRecord, WhatIsNoneIsRefused) {
  JobRecord twice = some_record();
  twice.members[1].place = 0;
  JobRecord crowded = some_record();
  crowded.members[1] = {.uuid = {std::byte{2}}, .place = 1, .host = 0, .slot = 1};
  JobRecord nowhere = some_record();
  nowhere.members[0].host = 3;
  JobRecord beyond = some_record();
  beyond.members[0].slot = 2;
  JobRecord nameless = some_record();
  nameless.job = "";
  for (const JobRecord& wrong : {twice, crowded, nowhere, beyond, nameless})
    EXPECT_EQ(parse_record(format_record(wrong)).status().code(), Code::kDataLoss);
  for (const char* text : {"", "{}", "[]", "null", R"({"version":1})"})
    EXPECT_EQ(parse_record(text).status().code(), Code::kDataLoss) << text;
  std::string newer = format_record(some_record());
  newer.replace(newer.find(":1,"), 3, ":2,");
  EXPECT_THAT(parse_record(newer).status().message(), HasSubstr("version is 2"));
}

}  // namespace
}  // namespace corro::launch
