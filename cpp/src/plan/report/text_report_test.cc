#include "plan/report/text_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plan/amounts.h"
#include "plan/report/facts.h"
#include "plan/report/sample_decision.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string golden(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(CORRO_REPORT_SOURCES "/golden/" + name).rdbuf();
  return text.str();
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

/// A decision whose every name is as long as it may be, and every number large.
DecisionFile widest_file() {
  DecisionFile file = sample_file();
  const std::string name(kMostNameBytes, 'w');
  file.model.name = name;
  file.cluster.name = name;
  for (DeviceType& type : file.cluster.types) type.name = name;
  for (LayerSummary& run : file.model.layers) run.name = name;
  Decision& decision = file.decision;
  decision.limit = name;
  decision.why = std::string(kMostSentenceBytes, 'w');
  for (Candidate* candidate : {&decision.best, &*decision.runner_up}) {
    candidate->shape.micro_batches = 1U << 20U;
    candidate->step = 123456789;
    for (PlannedStage& stage : candidate->stages) stage.estimate.memory.weights = 1e30;
  }
  return file;
}

TEST(FormatDecision, IsWhatTheGoldenFileSays) {
  EXPECT_EQ(format_decision(sample_file(), false), golden("decision.txt"));
}

TEST(FormatDecision, IsReadInTenSeconds) {
  for (const DecisionFile& file : {sample_file(), widest_file()}) {
    const auto lines = lines_of(format_decision(file, false));
    EXPECT_LE(lines.size(), 25U);
    for (const std::string& line : lines) EXPECT_LE(columns_of(line), kReportColumns) << line;
  }
}

TEST(FormatDecision, ColorsChangeNoWord) {
  std::string text = format_decision(sample_file(), true);
  EXPECT_THAT(text, HasSubstr("\x1b["));
  for (size_t at = text.find('\x1b'); at != std::string::npos; at = text.find('\x1b')) {
    text.erase(at, text.find('m', at) - at + 1);
  }
  EXPECT_EQ(text, format_decision(sample_file(), false));
}

TEST(FormatDecision, LeavesOutWhatIsNotKnown) {
  DecisionFile file = sample_file();
  file.decision.hours = 0;
  file.decision.cost = 0;
  file.decision.lambda = 0;
  file.decision.runner_up.reset();
  file.decision.why.clear();
  const std::string text = format_decision(file, false);
  for (const char* label : {"to the end", "storage", "runner-up", "why"}) {
    EXPECT_THAT(text, Not(HasSubstr(label)));
  }
}

TEST(FormatDecision, TheFullestDeviceIsTheOneWithTheLeastOfItsOwnLimit) {
  DecisionFile file = sample_file();
  file.decision.memory_limit = 75e9;
  auto& stages = file.decision.best.stages;
  stages[0].estimate.memory = {.weights = 60e9};
  stages[3].estimate.memory = {.weights = 31e9};
  EXPECT_EQ(limit_of(file, stages[0]), 75e9);
  EXPECT_EQ(limit_of(file, stages[3]), 32e9);
  EXPECT_EQ(fullest_stage(file), 3U);
  EXPECT_THAT(format_decision(file, false), HasSubstr("28.9 GiB a device of stage 3"));
  EXPECT_THAT(format_decision(file, false),
              HasSubstr("limits      69.8 GiB in stages 0-1, 29.8 GiB in 2-3"));
  EXPECT_THAT(explain_decision(file), HasSubstr("96.9 %"));
}

TEST(FormatDecision, SaysWhatThePlacementGains) {
  DecisionFile file = sample_file();
  for (uint32_t rank = 0; rank < 16; ++rank) file.decision.best.placement.push_back(rank ^ 4U);
  file.decision.best.placement[0] = 0;
  file.decision.best.placement[4] = 4;
  file.decision.best.unplaced = 0.7;
  EXPECT_THAT(format_decision(file, false),
              HasSubstr("placement   14 of 16 ranks on other devices than their numbers'; in their "
                        "order 700 ms\n"));
}

TEST(FormatDecision, OfNothingIsNoCrash) {
  const DecisionFile empty;
  EXPECT_FALSE(format_decision(empty, false).empty());
  EXPECT_FALSE(explain_decision(empty).empty());
  EXPECT_FALSE(compare_decisions(empty, "a", sample_file(), "b").empty());
}

TEST(ExplainDecision, SaysNothingOfWeightsThatNobodyElseHas) {
  DecisionFile file = sample_file();
  file.decision.best.shape = {.data = 1, .zero = 3};
  EXPECT_THAT(explain_decision(file), HasSubstr("nothing"));
  file.decision.best.shape.pipeline = 4;
  EXPECT_THAT(explain_decision(file), Not(HasSubstr("each micro-batch")));
}

TEST(ExplainDecision, IsWhatTheGoldenFileSays) {
  EXPECT_EQ(explain_decision(sample_file()), golden("explanation.txt"));
}

TEST(ExplainDecision, IsAtMostAHundredColumnsWide) {
  for (const DecisionFile& file : {sample_file(), widest_file()}) {
    for (const std::string& line : lines_of(explain_decision(file))) {
      EXPECT_LE(columns_of(line), kReportColumns) << line;
    }
  }
}

TEST(ExplainDecision, NamesEveryTermAndTheirSum) {
  DecisionFile file = sample_file();
  file.decision.best.terms = {.compute = 1,
                              .recompute = 2,
                              .exchanges = 4,
                              .weights = 8,
                              .offload = 16,
                              .hops = 32,
                              .bubble = 64,
                              .sync = 128,
                              .update = 256};
  const Table table = explanation_of(file).front();
  ASSERT_EQ(table.rows.size(), 10U);
  for (size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(table.rows[i][1], seconds_text(1U << i)) << table.rows[i][0];
  }
  EXPECT_EQ(table.rows[9][1], "511 s");
}

TEST(ExplainDecision, SaysWhatBucketsTake) {
  DecisionFile file = sample_file();
  EXPECT_THAT(explain_decision(file), Not(HasSubstr("Reducing gradients, of a step")));
  for (PlannedStage& stage : file.decision.best.stages) {
    stage.estimate.bucket = 0.5e9;
    stage.estimate.reduce = 0.04;
    stage.estimate.starts = 0.0016;
  }
  EXPECT_THAT(explain_decision(file), HasSubstr("477 MiB        6   40.0 ms         1.60 ms"));
  EXPECT_THAT(format_decision(file, false), HasSubstr("no offload, buckets of 477 MiB\n"));
}

TEST(ExplainDecision, StagesThatLookAlikeShareARow) {
  DecisionFile file = sample_file();
  file.decision.best.stages[2] = file.decision.best.stages[1];
  file.decision.best.stages[2].layers = {7, 10};
  file.decision.best.stages[2].first_device = 8;
  const auto groups = groups_of(file, file.decision.best.stages);
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[1].first, 1U);
  EXPECT_EQ(groups[1].last, 2U);
  file.decision.best.stages[2].estimate.hops *= 2;
  EXPECT_EQ(groups_of(file, file.decision.best.stages).size(), 4U);
}

TEST(CompareDecisions, IsWhatTheGoldenFileSays) {
  DecisionFile other = sample_file();
  other.decision.best = *other.decision.runner_up;
  EXPECT_EQ(compare_decisions(sample_file(), "a.json", other, "b.json"), golden("comparison.txt"));
}

TEST(CompareDecisions, IsAtMostAHundredColumnsWide) {
  for (const std::string& line :
       lines_of(compare_decisions(widest_file(), std::string(200, 'p'), sample_file(), "b"))) {
    EXPECT_LE(columns_of(line), kReportColumns) << line;
  }
}

TEST(Wrapped, KeepsWordsWhole) {
  EXPECT_THAT(wrapped("one two  three", 7), ElementsAre("one two", "three"));
  EXPECT_THAT(wrapped("abcdefgh i", 4), ElementsAre("abc…", "i"));
  EXPECT_TRUE(wrapped("", 4).empty());
}

TEST(Table, NumbersStandAtTheRight) {
  const Table table{.head = {"name", "n", "word"}, .rows = {{"a", "1", "x"}, {"b", "22", "yy"}}};
  EXPECT_EQ(table_to_text(table), "name   n  word\n--------------\na      1  x\nb     22  yy\n");
}

TEST(Table, EscapesCells) {
  const Table table{.title = "<t>", .head = {"&"}, .rows = {{"<script>'\""}}};
  const std::string html = table_to_html(table);
  EXPECT_THAT(html, HasSubstr("&lt;t&gt;"));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;&#39;&quot;"));
  EXPECT_THAT(html, Not(HasSubstr("<script>")));
}

}  // namespace
}  // namespace corro::plan
