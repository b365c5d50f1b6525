#include "plan/cost/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace corro::plan {
namespace {

using testing::HasSubstr;

constexpr const char* kRuns =
    "note,gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,step_ms\n"
    "a,64,512,4,3072,32,30,2048,1,64,1,3638.3\n"
    "b,64,512,4,3072,32,30,2048,2,32,1,\n"
    "c,64,512,8,3072,32,30,2048,1,64,1,3566.5\n";

RunTable runs() {
  auto table = read_runs(kRuns, "runs.csv");
  EXPECT_TRUE(table.ok()) << table.status().message();
  return *std::move(table);
}

Cluster two_hosts() {
  const Machine machine = default_machine();
  return {.name = "two", .types = {machine.device}, .hosts = {machine.host, machine.host}};
}

TEST(RunReport, APredictionKeepsTheRowsAsTheyWere) {
  const auto csv = predictions_csv(runs(), default_machine(), "runs.csv");
  ASSERT_TRUE(csv.ok()) << csv.status().message();
  EXPECT_THAT(*csv, HasSubstr("dp,pp,step_ms,predicted_ms,predicted_gib\na,64,512,"));
  EXPECT_THAT(*csv, HasSubstr("\nb,64,512,4,3072,32,30,2048,2,32,1,,"));
  EXPECT_EQ(std::count(csv->begin(), csv->end(), '\n'), 4);
}

TEST(RunReport, ARunThatCannotBePredictedIsNamed) {
  Machine machine = default_machine();
  machine.device.peak = {};
  const auto csv = predictions_csv(runs(), machine, "runs.csv");
  ASSERT_FALSE(csv.ok());
  EXPECT_THAT(csv.status().message(), testing::StartsWith("runs.csv: run 1: "));
}

TEST(RunReport, AFitCountsOnlyRunsWithATime) {
  const auto report = report_fit(runs().runs, default_machine());
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report->runs, 2U);
  EXPECT_TRUE(report->models.empty());  // all runs are of one model
  EXPECT_THAT(format_fit(*report), HasSubstr("fitted to 2 runs"));
  EXPECT_THAT(format_fit(*report), HasSubstr("matmul_efficiency"));
  EXPECT_THAT(format_fit(*report), testing::Not(HasSubstr("regret")));
}

TEST(RunReport, AFitShowsEveryModelThatWasLeftOut) {
  FitReport report{.runs = 40,
                   .models = {{"hidden 8, 2 layers", 30, 0.1, 0.2, 0.01},
                              {"hidden 16, 2 layers", 10, 0.5, 0.6, 0.03}}};
  const std::string text = format_fit(report);
  EXPECT_THAT(text, HasSubstr("hidden 8, 2 layers"));
  EXPECT_THAT(text, HasSubstr("20.0 %"));  // the mean of all runs
  EXPECT_THAT(text, HasSubstr("3.0 %"));
  EXPECT_THAT(text, HasSubstr("each run from a fit"));
  report.runs = kMostFits + 1;  // half of them are left out in turn
  EXPECT_THAT(format_fit(report), HasSubstr("each run (1 in 2) from a fit"));
}

TEST(RunReport, NoTimeIsNoFit) {
  RunTable table = runs();
  for (MeasuredRun& run : table.runs) run.seconds.reset();
  EXPECT_EQ(report_fit(table.runs, default_machine()).status().code(), Code::kInvalidArgument);
}

TEST(RunReport, TheMachineIsAHostAndTheNarrowestLinkFromTheFirstOne) {
  Cluster cluster = two_hosts();
  cluster.matrix = {0, 5e9, 5e9, 0};
  const auto machine = machine_of(cluster, {});
  ASSERT_TRUE(machine.ok()) << machine.status().message();
  EXPECT_EQ(machine->between_hosts.bandwidth, 5e9);
  EXPECT_EQ(machine->host, cluster.hosts[0]);
}

TEST(RunReport, HostsOfSeveralKindsAreNoMachine) {
  Cluster cluster = two_hosts();
  cluster.hosts[1].devices = 4;
  EXPECT_THAT(machine_of(cluster, {}).status().message(), HasSubstr("differ"));
}

}  // namespace
}  // namespace corro::plan
