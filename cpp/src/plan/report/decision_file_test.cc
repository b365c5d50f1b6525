#include "plan/report/decision_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>
#include <string>

#include "plan/bad_files.h"
#include "plan/plan_file.h"
#include "plan/report/facts.h"
#include "plan/report/sample_decision.h"

namespace corro::plan {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

std::string written(const DecisionFile& file) {
  const auto text = decision_to_json(file);
  EXPECT_TRUE(text.ok()) << text.status().to_string();
  return text.ok() ? *text : "";
}

void expect_equal(const Candidate& a, const Candidate& b) {
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.simulated, b.simulated);
  EXPECT_EQ(a.price, b.price);
  EXPECT_EQ(a.terms.sum(), b.terms.sum());
  ASSERT_EQ(a.stages.size(), b.stages.size());
  for (size_t i = 0; i < a.stages.size(); ++i) {
    EXPECT_EQ(a.stages[i].layers, b.stages[i].layers);
    EXPECT_EQ(a.stages[i].first_device, b.stages[i].first_device);
    EXPECT_EQ(a.stages[i].devices, b.stages[i].devices);
    EXPECT_EQ(a.stages[i].type, b.stages[i].type);
    EXPECT_EQ(a.stages[i].recompute, b.stages[i].recompute);
    EXPECT_EQ(a.stages[i].estimate.period(), b.stages[i].estimate.period());
    EXPECT_EQ(a.stages[i].estimate.exchanges, b.stages[i].estimate.exchanges);
    EXPECT_EQ(a.stages[i].estimate.memory.sum(), b.stages[i].estimate.memory.sum());
  }
}

TEST(DecisionFile, WhatIsWrittenIsReadAgain) {
  const DecisionFile file = sample_file();
  const std::string text = written(file);
  const auto again = read_decision(text, "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->model, file.model);
  EXPECT_EQ(again->cluster, file.cluster);
  expect_equal(again->decision.best, file.decision.best);
  ASSERT_TRUE(again->decision.runner_up.has_value());
  expect_equal(*again->decision.runner_up, *file.decision.runner_up);
  EXPECT_EQ(again->decision.why, file.decision.why);
  EXPECT_EQ(again->decision.limit, file.decision.limit);
  EXPECT_EQ(again->decision.bound, file.decision.bound);
  EXPECT_EQ(again->decision.gap, file.decision.gap);
  EXPECT_EQ(again->decision.memory_proof, file.decision.memory_proof);
  EXPECT_EQ(again->decision.memory_limit, file.decision.memory_limit);
  EXPECT_EQ(again->decision.global_batch, file.decision.global_batch);
  EXPECT_EQ(again->decision.hours, file.decision.hours);
  EXPECT_EQ(again->decision.cost, file.decision.cost);
  EXPECT_EQ(again->decision.eta, file.decision.eta);
  EXPECT_EQ(again->decision.lambda, file.decision.lambda);
  EXPECT_EQ(again->decision.shapes, file.decision.shapes);
  EXPECT_EQ(again->decision.exact, file.decision.exact);
  EXPECT_EQ(graph::hash_of(again->decision.graph), graph::hash_of(file.decision.graph));
  EXPECT_EQ(written(*again), text);
}

TEST(DecisionFile, AStageSaysItsLimitWhereItIsAnother) {
  DecisionFile file = sample_file();
  for (PlannedStage& stage : file.decision.best.stages) stage.memory_limit = 30e9;
  EXPECT_EQ(Json::parse(written(file))["decisions"]["stages"][3].count("memory_limit_bytes"), 0U);
  file.decision.best.stages[3].memory_limit = 16e9;
  const std::string text = written(file);
  const auto again = read_decision(text, "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->decision.best.stages[3].memory_limit, 16e9);
  EXPECT_EQ(limit_of(*again, again->decision.best.stages[3]), 16e9);
  EXPECT_EQ(limit_of(*again, again->decision.best.stages[0]), 30e9);
  EXPECT_EQ(written(*again), text);
}

TEST(DecisionFile, LayersThatGoToHostMemoryAreAFourthCount) {
  DecisionFile file = sample_file();
  const auto counts = [](const std::string& text) {
    return Json::parse(text)["decisions"]["stages"][1]["recompute"][1].size();
  };
  EXPECT_EQ(counts(written(file)), 3U);
  PlannedStage& stage = file.decision.best.stages[1];
  stage.recompute[1] = {0, 1, 1, 1};
  stage.estimate.offload = 0.001;
  stage.estimate.host = 5e9;
  const std::string text = written(file);
  EXPECT_EQ(counts(text), 4U);
  const auto again = read_decision(text, "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  expect_equal(again->decision.best, file.decision.best);
  EXPECT_EQ(again->decision.best.stages[1].estimate.host, 5e9);
  EXPECT_EQ(written(*again), text);
}

TEST(DecisionFile, APlacementIsKept) {
  DecisionFile file = sample_file();
  for (uint32_t rank = 0; rank < 16; ++rank) file.decision.best.placement.push_back(rank ^ 4U);
  file.decision.best.unplaced = 0.7;
  const std::string text = written(file);
  const auto again = read_decision(text, "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->decision.best.placement, file.decision.best.placement);
  EXPECT_EQ(again->decision.best.unplaced, 0.7);
  EXPECT_EQ(written(*again), text);
  file.decision.best.placement[3] = 0;
  EXPECT_THAT(decision_to_json(file).status().message(),
              HasSubstr("decisions.placement: must be 16 different devices, each below 16"));
}

TEST(DecisionFile, EveryChoiceOfAShapeIsKept) {
  DecisionFile file = sample_file();
  JobShape& shape = file.decision.best.shape;
  shape.context = 2;
  shape.data = 1;
  shape.expert = 2;
  shape.chunks = 3;
  shape.schedule = Schedule::kInterleaved;
  shape.zero = 3;
  shape.overlap = false;
  shape.offload = Offload::kWeights;
  shape.dtype = DType::kF16;
  shape.gradient_dtype = DType::kF16;
  const auto again = read_decision(written(file), "plan.json");
  ASSERT_TRUE(again.ok()) << again.status().to_string();
  EXPECT_EQ(again->decision.best.shape, shape);
}

TEST(DecisionFile, TheGraphIsAPlanFileOfItsOwn) {
  const Json document = Json::parse(written(sample_file()));
  const auto plan = read_plan(document["graph"].dump(), "graph");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(graph::hash_of(*plan), graph::hash_of(sample_graph()));
}

TEST(DecisionFile, OfWhatWasJustMadeKeepsNoLinks) {
  Cluster cluster = sample_cluster();
  cluster.hosts[0].network = {.bandwidth = 1e9};
  cluster.matrix.assign(9, 1e9);
  const DecisionFile file = make_decision_file(sample_decision(), sample_model(), cluster);
  EXPECT_EQ(file.cluster, sample_cluster());
  EXPECT_EQ(file.model.parameters, parameter_count(sample_model()));
  ASSERT_EQ(file.model.layers.size(), 3U);
  EXPECT_EQ(file.model.layers[1].layers, (LayerRange{1, 13}));
  EXPECT_EQ(file.model.layers[1].hidden, 768);
  EXPECT_TRUE(file.model.layers[1].attention);
  EXPECT_FALSE(file.model.layers[2].attention);
}

TEST(DecisionFile, WithNumbersThatAreNoneIsNotWritten) {
  for (const double none : {std::nan(""), HUGE_VAL, -1.0}) {
    DecisionFile file = sample_file();
    file.decision.best.step = none;
    EXPECT_THAT(decision_to_json(file).status().message(),
                HasSubstr("predictions.step_seconds: must be a number"));
  }
  DecisionFile file = sample_file();
  file.decision.best.stages.pop_back();
  EXPECT_THAT(decision_to_json(file).status().message(), HasSubstr("decisions.stages: must be 4"));
  file = sample_file();
  file.decision.why = "two\nlines";
  EXPECT_THAT(decision_to_json(file).status().message(), HasSubstr("why: must be at most"));
}

TEST(DecisionFile, OfAGraphThatStandsStillIsRefused) {
  DecisionFile file = sample_file();
  graph::Plan& graph = file.decision.graph;
  const graph::ChannelId back = graph.add_channel({.name = "back"});
  graph.services[0].inputs.push_back(back);
  graph.services[1].outputs.push_back(back);
  const auto text = decision_to_json(file);
  EXPECT_EQ(text.status().code(), Code::kFailedPrecondition);
  EXPECT_THAT(text.status().message(), StartsWith("decision: graph: "));
}

TEST(DecisionFile, EveryBadFileIsOneLineWithThePlace) {
  const std::string good = Json::parse(written(sample_file())).dump();
  ASSERT_TRUE(read_decision(good, "plan.json").ok());
  for (const BadFile& bad :
       read_bad_files(CORRO_REPORT_SOURCES "/bad_decisions.json", good).cases) {
    SCOPED_TRACE(bad.what);
    expect_refused(read_decision(bad.text, "plan.json").status(), bad.error);
  }
}

TEST(DecisionFile, TheDocumentsExampleIsRead) {
  std::ostringstream document;
  document << std::ifstream(CORRO_DECISION_DOCUMENT).rdbuf();
  const std::string fence = "```json file=decision.json\n";
  const std::string example = document.str().substr(document.str().find(fence) + fence.size());
  const auto file = read_decision(example.substr(0, example.find("```")), "docs/plan-decision.md");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_DOUBLE_EQ(file->decision.best.terms.sum(), file->decision.best.step);
  EXPECT_NEAR(file->decision.gap, 1 - file->decision.bound / file->decision.best.step, 1e-4);
}

TEST(DecisionFile, AnyPieceOfAFileIsRefused) {
  const std::string good = written(sample_file());
  for (size_t end = 0; end + 2 < good.size(); end += 97) {
    EXPECT_FALSE(read_decision(good.substr(0, end), "plan.json").ok()) << end;
  }
}

TEST(DecisionFile, NamesTheLineOfWhatIsWrong) {
  std::string text = written(sample_file());
  const std::string part = "\"global_batch\": 64";
  text.replace(text.find(part), part.size(), "\"global_batch\": 0");
  const size_t line =
      1 + static_cast<size_t>(std::count(
              text.begin(), text.begin() + static_cast<ptrdiff_t>(text.find("\"global_batch\"")),
              '\n'));
  EXPECT_EQ(read_decision(text, "plan.json").status().message(),
            fmt::format("plan.json:{}: decisions.global_batch: must be an integer from 1 to "
                        "1073741824",
                        line));
}

TEST(DecisionFile, IsReadInTimeHoweverManyStagesItNames) {
  std::string text = "{\"corro_decision\":1,\"decisions\":{\"stages\":[";
  for (int i = 0; i < 100'000; ++i) text += "[],";
  EXPECT_FALSE(read_decision(text + "0]}}", "plan.json").ok());
}

}  // namespace
}  // namespace corro::plan
