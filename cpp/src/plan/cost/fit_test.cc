#include "plan/cost/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

namespace corro::plan {
namespace {

RunTable table_of(const std::string& file) {
  std::ifstream stream(std::string(CORRO_MEASURED_RUNS "/") + file);
  const std::string text((std::istreambuf_iterator<char>(stream)), {});
  auto table = read_runs(text, file);
  EXPECT_TRUE(table.ok()) << table.status().message();
  return *std::move(table);
}

/// Micro-batch and interleaving were not published; the model takes what it thinks fastest.
double fastest(MeasuredRun run, const Machine& machine) {
  double best = INFINITY;
  for (const uint32_t micro_batch : {1U, 2U, 4U, 8U, 16U}) {
    for (uint32_t chunks = 1; chunks <= 6; ++chunks) {
      const uint32_t micro_batches = run.global_batch / run.data / micro_batch;
      if (run.global_batch % (run.data * micro_batch) != 0) continue;
      const bool interleaves = run.pipeline > 1 && run.layers % (run.pipeline * chunks) == 0 &&
                               micro_batches % run.pipeline == 0;
      if (chunks > 1 && !interleaves) continue;
      run.micro_batch = micro_batch;
      run.chunks = chunks;
      const auto predicted = predict(run, machine);
      if (predicted.ok()) best = std::min(best, predicted->seconds);
    }
  }
  return best;
}

TEST(Fit, ReachesItsBarOnMeasuredRuns) {
  const RunTable table = table_of("megatron_a100_steps.csv");
  ASSERT_EQ(table.runs.size(), 69U);
  const auto fit = fit_calibration(table.runs, default_machine());
  ASSERT_TRUE(fit.ok()) << fit.status().message();
  EXPECT_LE(fit->mean_error, 0.07);
  EXPECT_LE(fit->median_error, 0.04);
  // What the product ships with is this fit, rounded.
  const Calibration shipped;
  for (const CalibrationField& field : kCalibrationFields) {
    EXPECT_NEAR(shipped.*(field.field) / fit->calibration.*(field.field), 1, 0.02) << field.name;
  }
}

TEST(Fit, PredictsModelsThatItHasNotSeen) {
  const auto left = leave_models_out(table_of("megatron_a100_steps.csv").runs, default_machine());
  ASSERT_TRUE(left.ok());
  ASSERT_EQ(left->size(), 3U);
  for (const LeftOut& model : *left) {
    EXPECT_LE(model.mean_error, 0.10) << model.model;
    EXPECT_LE(model.regret, 0.05) << model.model;
  }
}

TEST(Fit, PredictsMegatronsOwnTableOnAnotherCluster) {
  Machine machine = default_machine();
  machine.host.network.bandwidth = 200e9;
  machine.between_hosts = machine.host.network;
  const RunTable table = table_of("megatron_sc21_steps.csv");
  ASSERT_EQ(table.runs.size(), 10U);
  for (const MeasuredRun& run : table.runs) {
    EXPECT_NEAR(fastest(run, machine) / *run.seconds, 1, 0.08) << run.hidden;
  }
}

TEST(Fit, FindsWhatMadeTheRuns) {
  RunTable table = table_of("megatron_a100_steps.csv");
  Machine machine = default_machine();
  machine.calibration.matmul_efficiency = 0.5;
  machine.calibration.network_efficiency = 0.6;
  for (MeasuredRun& run : table.runs) run.seconds = predict(run, machine)->seconds;
  const auto fit = fit_calibration(table.runs, default_machine());
  ASSERT_TRUE(fit.ok());
  EXPECT_LT(fit->mean_error, 0.01);
  EXPECT_NEAR(fit->calibration.matmul_efficiency, 0.5, 0.02);
  EXPECT_NEAR(fit->calibration.network_efficiency, 0.6, 0.05);
}

TEST(Fit, NeedsARunWithATime) {
  const auto fit = fit_calibration({}, default_machine());
  EXPECT_EQ(fit.status().code(), Code::kInvalidArgument);
}

TEST(Runs, SayWhatIsWrongAndWhere) {
  const std::string head =
      "gpus,global_batch,micro_batch,hidden,heads,layers,seq_len,tp,dp,pp,step_ms\n";
  const auto message = [&](const std::string& text) {
    const auto table = read_runs(text, "runs.csv");
    return table.ok() ? std::string("fine") : table.status().message();
  };
  EXPECT_EQ(message(head + "8,8,1,64,4,4,128,2,2,2,10\n"), "fine");
  EXPECT_EQ(message(head + "8,8,1,64,4,4,128,2,2,2,\r\n"), "fine");
  EXPECT_EQ(message(""), "runs.csv: is empty");
  EXPECT_THAT(message("a,b\n"), testing::StartsWith("runs.csv:1: gpus: is no column"));
  EXPECT_EQ(message("tp," + head + "8,8,8,1,64,4,4,128,2,2,2,1\n"),
            "runs.csv:1: tp: is named twice");
  EXPECT_EQ(message(head + "8,8\n"), "runs.csv:2: has 2 values; the first line has 11");
  EXPECT_THAT(message(head + "8,8,1,64,4,4,128,2,2,2,nan\n"), testing::HasSubstr("step_ms: must"));
  EXPECT_THAT(message(head + "8,8,1,64,5,4,128,2,2,2,1\n"), testing::HasSubstr("heads: 5 do not"));
  EXPECT_THAT(message(head + "9,8,1,64,4,4,128,2,2,2,1\n"), testing::HasSubstr("gpus: is 9, but"));
  EXPECT_THAT(message(head + "8,8,1,64,4,1,128,2,2,2,1\n"), testing::HasSubstr("pp: 2 stages"));
  EXPECT_THAT(message(head + "8,x,1,64,4,4,128,2,2,2,1\n"),
              testing::HasSubstr("global_batch: must"));
}

}  // namespace
}  // namespace corro::plan
