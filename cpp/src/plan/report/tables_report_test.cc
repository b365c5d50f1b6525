#include "plan/report/tables_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/amounts.h"
#include "plan/json.h"
#include "plan/report/table.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;

Tables two_tables() {
  return {.name = "shop",
          .batch = 4096,
          .tables = {{.name = "users \"x\"", .rows = 2e8, .dim = 32},
                     {.name = "days", .rows = 7, .dim = 16}}};
}

TablesDecision decision_of_two() {
  return {.ranks = 4,
          .servers = 3,
          .copies = 2,
          .staleness = 1,
          .seconds = 0.01,
          .server_bytes = 1 << 30,
          .rank_bytes = 896,
          .why_servers = "memory",
          .why_staleness = "long",
          .tables = {{.name = "users \"x\"", .seconds = 0.0099, .bytes = 3e9, .why = "large"},
                     {.name = "days", .place = TablePlace::kReplicated, .why = "small"}}};
}

TEST(TablesReport, SaysWhatToRunAndWhy) {
  const std::string text = format_tables(two_tables(), decision_of_two(), {.name = "c"});
  EXPECT_THAT(text, HasSubstr("servers     3 (corro run -np 4 --servers 3 ...): memory\n"));
  EXPECT_THAT(text, HasSubstr("mode        bounded, staleness 1: long\n"));
  EXPECT_THAT(text, HasSubstr("memory      1.00 GiB on each server, 896 B on each rank\n"));
  EXPECT_THAT(text, HasSubstr("replicated"));
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = text.find('\n', begin);
    EXPECT_LE(columns_of(text.substr(begin, end - begin)), kReportColumns);
    begin = end + 1;
  }
}

TEST(TablesReport, NoServersAreSaid) {
  TablesDecision decision = decision_of_two();
  decision.servers = decision.staleness = 0;
  const std::string text = format_tables(two_tables(), decision, {.name = "c"});
  EXPECT_THAT(text, HasSubstr("servers     none: memory\n"));
  EXPECT_THAT(text, HasSubstr("mode        sync: long\n"));
}

TEST(TablesReport, ProgramsReadIt) {
  const auto document = parse_json(tables_to_json(two_tables(), decision_of_two()), "d");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->at("corro_table_plan"), 1);
  EXPECT_EQ(document->at("mode"), "bounded");
  EXPECT_EQ(document->at("staleness"), 1);
  EXPECT_EQ(document->at("tables")[0]["name"], "users \"x\"");
  EXPECT_EQ(document->at("tables")[1]["placement"], "replicated");
  EXPECT_EQ(document->at("tables")[1]["why"], "small");
}

}  // namespace
}  // namespace corro::plan
