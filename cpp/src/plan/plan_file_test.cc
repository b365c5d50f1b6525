#include "plan/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "graph/cut.h"
#include "graph/executor.h"
#include "graph/random_plan.h"
#include "graph/virtual_lanes.h"
#include "plan/bad_files.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string path_of(const std::string& name) { return CORRO_PLAN_SOURCES "/" + name; }

std::string text_of(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(path_of(name)).rdbuf();
  return text.str();
}

TEST(PlanFile, WhatIsWrittenIsReadAgain) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const graph::Plan plan = graph::random_live_plan(random, 1 + static_cast<uint32_t>(seed % 4));
    const auto text = write_plan(plan);
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const auto again = read_plan(*text, "plan.json");
    ASSERT_TRUE(again.ok()) << again.status().to_string() << *text;
    ASSERT_EQ(graph::hash_of(*again), graph::hash_of(plan)) << *text;
    EXPECT_EQ(write_plan(*again).value(), *text);
  }
}

TEST(PlanFile, EveryFieldKeepsItsLargestAndSmallestValue) {
  graph::Plan plan;
  plan.ranks = graph::kMostRanks;
  plan.add_lane({.name = "größte – lane's \\ {name}", .depth = graph::kMostDepth});
  plan.add_lane(
      {.name = "all", .order = graph::LaneOrder::kAgreed, .ranks = {0, graph::kMostRanks - 1}});
  plan.add_channel({.name = std::string(kMostNameBytes, 'x'),
                    .slots = graph::kMostSlots,
                    .initial = graph::kMostSlots,
                    .slot_bytes = graph::kMostSlotBytes});
  plan.add_service({.name = "first",
                    .priority = std::numeric_limits<int32_t>::min(),
                    .duration = graph::kMostDuration,
                    .outputs = {0}});
  plan.add_service({.name = "last",
                    .priority = std::numeric_limits<int32_t>::max(),
                    .every = graph::kMostEvery,
                    .inputs = {0}});
  plan.add_service({.name = "reduce",
                    .lane = 1,
                    .lag = graph::kMostLag,
                    .operation = graph::OperationSpec{.kind = OpKind::kReduce,
                                                      .dtype = DType::kBF16,
                                                      .count = graph::kMostCount,
                                                      .reduce_op = ReduceOp::kProduct,
                                                      .root = graph::kMostRanks - 1}});
  plan.add_service(
      {.name = "load", .outputs = {plan.add_channel({.name = "in", .slot_bytes = 1})}});
  plan.services.back().copy = graph::CopySpec{.kind = graph::CopyKind::kRead,
                                              .path = std::string(graph::kMostPathBytes, '/'),
                                              .offset = graph::kMostOffset,
                                              .stride = graph::kMostSlotBytes,
                                              .count = graph::kMostRanges};
  plan.add_service({.name = "keep",
                    .inputs = {1},
                    .outputs = {plan.add_channel({.name = "out", .slot_bytes = 2})},
                    .copy = graph::CopySpec{}});
  plan.add_service({.name = "save",
                    .inputs = {2},
                    .copy = graph::CopySpec{.kind = graph::CopyKind::kWrite, .path = "ü \\"}});
  const auto text = write_plan(plan);
  ASSERT_TRUE(text.ok()) << text.status().to_string();
  const auto again = read_plan(*text, "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(graph::hash_of(*again), graph::hash_of(plan));
}

TEST(PlanFile, IsALineForEachLaneChannelAndService) {
  const auto plan = read_plan(text_of("pipeline.json"), "pipeline.json");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(write_plan(*plan).value(), text_of("pipeline.json"));
}

TEST(PlanFile, IsPartOfALargerDocument) {
  graph::Plan plan;
  plan.add_lane({.name = "lane"});
  plan.add_service({.name = "alone", .lane = 0});
  Json document{{"decisions", 7}, {"graph", to_json(plan).value()}};
  const auto again = from_json(document["graph"], "result.json: graph");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(graph::hash_of(*again), graph::hash_of(plan));
  document["graph"]["services"][0]["lane"] = "line";
  EXPECT_EQ(from_json(document["graph"], "result.json: graph").status().message(),
            "result.json: graph: services[0].lane: there is no lane \"line\"");
}

TEST(PlanFile, TheDocumentsExampleCanRun) {
  std::ostringstream document;
  document << std::ifstream(CORRO_PLAN_DOCUMENT).rdbuf();
  const std::string fence = "```json file=plan.json\n";
  const std::string example = document.str().substr(document.str().find(fence) + fence.size());
  const auto plan = read_plan(example.substr(0, example.find("```")), "docs/plan.md");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_TRUE(graph::check(*plan).ok()) << graph::check(*plan).to_string();
  EXPECT_EQ(graph::cut(*plan, 1).channels, (std::vector<graph::ChannelId>{1, 2, 4, 5, 7}));
}

TEST(PlanFile, EveryBadFileIsOneLineWithThePlace) {
  const BadFiles files = read_bad_files(path_of("bad_plans.json"));
  ASSERT_TRUE(read_plan(files.good, "plan.json").ok())
      << read_plan(files.good, "plan.json").status().message();
  for (const BadFile& bad : files.cases) {
    SCOPED_TRACE(bad.what);
    expect_refused(read_plan(bad.text, "plan.json").status(), "plan.json: " + bad.error);
  }
}

TEST(PlanFile, BytesThatAreNoTextAreRefusedInALineOfAscii) {
  for (const char* text : {"\xff\xfe{}", "{\"corro_plan\xc3\": 1}", "{\"\xed\xa0\x80\": 1}"}) {
    const std::string message = read_plan(text, "plan.json").status().message();
    EXPECT_THAT(message, StartsWith("plan.json: is not JSON: "));
    EXPECT_TRUE(std::ranges::all_of(message, [](char c) { return c >= ' ' && c <= '~'; }));
  }
}

TEST(PlanFile, DepthAndSizeAreLimitedBeforeAnythingIsBuilt) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(read_plan(deep, "plan.json").status().message(),
            "plan.json: is nested deeper than 32 levels");
  const std::string huge(kMostJsonBytes + 1, ' ');
  EXPECT_EQ(read_plan(huge, "plan.json").status().message(),
            "plan.json: has 67108865 bytes; at most 67108864 are read");
}

TEST(PlanFile, IsNotWrittenWhereNamesDoNotTellThingsApart) {
  graph::Plan plan;
  plan.add_lane({.name = "lane"});
  plan.add_service({.name = "a", .lane = 0});
  EXPECT_TRUE(write_plan(plan).ok());
  for (const char* name : {"", "a", "a\nb", "\"", "\xff", "\xc0\xaf"}) {
    graph::Plan other = plan;
    other.add_service({.name = name, .lane = 0});
    EXPECT_THAT(write_plan(other).status().message(), HasSubstr("services[1].name"));
  }
  graph::Plan other = plan;
  other.channels.push_back({.name = "data", .slot_bytes = 8});
  other.services[0].outputs = {0};
  other.add_service({.name = "b", .inputs = {0}});
  other.services[0].copy = graph::CopySpec{.kind = graph::CopyKind::kRead, .path = "\xff"};
  EXPECT_THAT(write_plan(other).status().message(), HasSubstr("services[0].copy.path"));
  plan.lanes[0].depth = 0;
  EXPECT_THAT(write_plan(plan).status().message(), HasSubstr("lanes[0].depth"));
}

/// The table of docs/design/0002, from the plan of a file with other numbers in it.
double step_of(const std::vector<uint32_t>& credits, double link) {
  constexpr int64_t kUnit = 2'000'000;
  Json document = Json::parse(text_of("pipeline.json"));
  for (Json& channel : document["channels"]) {
    const auto name = channel["name"].get<std::string>();
    if (name.starts_with("stash")) {
      channel["slots"] = credits[static_cast<size_t>(name.back() - '0')];
    } else {
      channel["transfer_ns"] = static_cast<int64_t>(link * kUnit);
    }
  }
  const auto plan = read_plan(document.dump(), "pipeline.json");
  CORRO_CHECK(plan.ok(), plan.status().to_string());
  const graph::Plan whole = graph::expand(*plan);
  graph::VirtualLanes lanes(whole);
  auto executor = graph::Executor::create(whole, lanes.lanes());
  CORRO_CHECK(executor.ok(), executor.status().to_string());
  (*executor)->run_until(8);
  const Time end = lanes.run(**executor);
  EXPECT_TRUE((*executor)->reached());
  return static_cast<double>(end.since_start.count()) / kUnit;
}

TEST(PipelineFromAFile, TakesAsLongAsTheTableSays) {
  EXPECT_EQ(step_of({4, 3, 2, 1}, 0), 33);
  EXPECT_EQ(step_of({8, 8, 8, 8}, 0), 33);
  EXPECT_EQ(step_of({3, 3, 2, 1}, 0), 39);
  EXPECT_EQ(step_of({2, 2, 2, 1}, 0), 51);
  EXPECT_EQ(step_of({1, 1, 1, 1}, 0), 96);
  EXPECT_EQ(step_of({4, 3, 2, 1}, 0.5), 41);
  EXPECT_EQ(step_of({7, 5, 3, 1}, 0.5), 36);
}

}  // namespace
}  // namespace corro::plan
