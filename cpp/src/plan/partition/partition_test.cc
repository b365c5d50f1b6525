#include "plan/partition/partition.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "plan/json.h"
#include "plan/partition/partition_command.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;

PartitionInstance load(const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(CORRO_PARTITION_INSTANCES "/" + name).rdbuf();
  auto instance = read_instance(text.str(), name);
  CORRO_CHECK(instance.ok(), instance.status().to_string());
  return std::move(instance).value();
}

PartitionResult optimum(const PartitionInstance& instance, const PartitionOptions& options = {}) {
  auto result = solve(instance, options);
  CORRO_CHECK(result.ok(), result.status().to_string());
  return std::move(result).value();
}

/// Every node is in one stage, and no stage is slower than the objective.
void expect_split(const PartitionInstance& instance, const PartitionResult& result) {
  std::vector<int64_t> nodes;
  double slowest = 0;
  for (const PartitionStage& stage : result.stages) {
    EXPECT_FALSE(stage.nodes.empty());
    nodes.insert(nodes.end(), stage.nodes.begin(), stage.nodes.end());
    slowest = std::max(slowest, stage.time);
  }
  auto ids = std::visit([](const auto& problem) { return problem.ids; }, instance.problem);
  std::ranges::sort(nodes);
  std::ranges::sort(ids);
  EXPECT_EQ(nodes, ids);
  EXPECT_EQ(slowest, result.objective);
}

struct MaxLoadCase {
  const char* file;
  double optimum;
  uint64_t most_steps;  ///< The published program looks at 0.46, 15 507, 29, 676, 1 966 thousand.
};

class PublishedMaxLoad : public ::testing::TestWithParam<MaxLoadCase> {};

TEST_P(PublishedMaxLoad, HasThePublishedOptimum) {
  const PartitionInstance instance = load(GetParam().file);
  const PartitionResult result = optimum(instance);
  EXPECT_NEAR(result.objective, GetParam().optimum, 1e-4);
  EXPECT_LT(result.steps, GetParam().most_steps);
  expect_split(instance, result);
  const double memory = std::get<MaxLoadInstance>(instance.problem).memory_bytes;
  for (const PartitionStage& stage : result.stages) {
    EXPECT_LE(stage.on_accelerator ? stage.memory_bytes : 0, memory);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Instances, PublishedMaxLoad,
    ::testing::Values(MaxLoadCase{"pipeline_bert24_inference.json", 17.7899, 464},
                      MaxLoadCase{"pipeline_gnmt_inference.json", 32.9107, 10'000'000},
                      MaxLoadCase{"pipeline_resnet50_inference.json", 33.7747, 20'000},
                      MaxLoadCase{"pipeline_bert_l-3_inference.json", 27.9186, 2'000'000},
                      MaxLoadCase{"pipeline_bert_l-3_training.json", 65.3031, 6'000'000}));

struct PiperCase {
  double memory;  ///< GiB.
  uint32_t devices;
  double optimum;
};

class PublishedPiper : public ::testing::TestWithParam<PiperCase> {};

PartitionOptions options_of(const PiperCase& params) {
  return {.devices = params.devices,
          .micro_batches = 1920,
          .memory_bytes = params.memory * kGibibyte,
          .bandwidth = 25 * kGibibyte};
}

TEST_P(PublishedPiper, HasThePublishedOptimum) {
  const PartitionInstance instance = load("piper_bert32_a100.json");
  const PartitionOptions options = options_of(GetParam());
  const PartitionResult result = optimum(instance, options);
  EXPECT_NEAR(result.objective / GetParam().optimum, 1, 1e-5);
  EXPECT_LT(result.steps, 1'000'000U);
  expect_split(instance, result);
  uint32_t devices = 0;
  for (const PartitionStage& stage : result.stages) {
    devices += stage.devices();
    EXPECT_LE(stage.memory_bytes, *options.memory_bytes);
    EXPECT_EQ(1920 % stage.data_parallel, 0U);
    EXPECT_EQ(stage.choices.size(), stage.nodes.size());
  }
  EXPECT_LE(devices, GetParam().devices);
}

INSTANTIATE_TEST_SUITE_P(Bert32, PublishedPiper,
                         ::testing::Values(PiperCase{8, 8, 0.165856}, PiperCase{8, 64, 0.0202006},
                                           PiperCase{8, 512, 0.00256113},
                                           PiperCase{8, 1024, 0.00130318},
                                           PiperCase{80, 8, 0.122007}, PiperCase{80, 64, 0.0156502},
                                           PiperCase{80, 512, 0.00227252},
                                           PiperCase{80, 1024, 0.00115876}));

TEST(Partition, MoreDevicesNeverRaiseTheOptimum) {
  for (const char* file : {"pipeline_bert24_inference.json", "pipeline_resnet50_inference.json",
                           "piper_bert32_a100.json"}) {
    SCOPED_TRACE(file);
    const PartitionInstance instance = load(file);
    double before = optimum(instance, {.devices = 1}).objective;
    for (uint32_t devices = 2; devices <= 12; ++devices) {
      const double now = optimum(instance, {.devices = devices}).objective;
      EXPECT_LE(now, before) << devices;
      before = now;
    }
  }
}

TEST(Partition, MoreMemoryNeverRaisesTheOptimum) {
  for (const char* file : {"pipeline_resnet50_inference.json", "piper_bert32_a100.json"}) {
    SCOPED_TRACE(file);
    const PartitionInstance instance = load(file);
    double before = 1e300;
    size_t feasible = 0;
    for (double memory = 0.5; memory <= 128; memory *= 2) {
      const auto result = solve(instance, {.devices = 8, .memory_bytes = memory * kGibibyte});
      if (!result.ok()) {
        EXPECT_EQ(result.status().code(), Code::kFailedPrecondition);
        EXPECT_EQ(before, 1e300) << "less memory was enough";
        continue;
      }
      EXPECT_LE(result->objective, before);
      before = result->objective;
      ++feasible;
    }
    EXPECT_GE(feasible, 3U);
  }
}

TEST(Partition, MoreBandwidthNeverRaisesTheOptimum) {
  const PartitionInstance instance = load("piper_bert32_a100.json");
  double before = 1e300;
  for (double bandwidth = 1e8; bandwidth < 1e13; bandwidth *= 10) {
    const double now = optimum(instance, {.devices = 64, .bandwidth = bandwidth}).objective;
    EXPECT_LE(now, before);
    before = now;
  }
}

constexpr const char* kChain = R"({"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
  {"id": 7, "supportedOnFpga": 1, "cpuLatency": 90, "fpgaLatency": 3, "isBackwardNode": 0, "size": 4},
  {"id": 5, "supportedOnFpga": true, "cpuLatency": 90, "fpgaLatency": 3, "isBackwardNode": 0, "size": 4},
  {"id": 3, "supportedOnFpga": 1, "cpuLatency": 90, "fpgaLatency": 2, "isBackwardNode": 0, "size": 4}],
  "edges": [{"sourceId": 7, "destId": 5, "cost": 1}, {"sourceId": 5, "destId": 3, "cost": 2}]})";

TEST(Partition, AnOutputCostsBothDevicesThatItJoins) {
  const auto instance = read_instance(kChain, "chain.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  const auto result = optimum(*instance);
  EXPECT_EQ(result.objective, 6);  // 3 + 1 and 3 + 2 + 1; the other cut makes 3 + 3 + 2.
  ASSERT_EQ(result.stages.size(), 2U);
  EXPECT_THAT(result.stages[0].nodes, ElementsAre(7));
  EXPECT_THAT(result.stages[1].nodes, ElementsAre(5, 3));
  EXPECT_EQ(result.stages[1].memory_bytes, 8);
}

TEST(Partition, TheAnswerIsALineOfJson) {
  const auto instance = read_instance(kChain, "chain.json");
  const std::string line = to_json(optimum(*instance), 0.25);
  EXPECT_EQ(line,
            "{\"objective\":6.0,\"stages\":[{\"device\":\"accelerator\",\"load\":4.0,"
            "\"memory_bytes\":4.0,\"nodes\":[7]},{\"device\":\"accelerator\",\"load\":6.0,"
            "\"memory_bytes\":8.0,\"nodes\":[5,3]}],\"seconds\":0.25}\n");
  const Json bert = Json::parse(to_json(optimum(load("piper_bert32_a100.json")), 1));
  EXPECT_TRUE(bert["stages"][0].contains("tensor_parallel"));
  EXPECT_TRUE(bert["stages"][0].contains("choices"));
}

TEST(Partition, AnOptionThatIsNotPossibleIsNamed) {
  const auto chain = read_instance(kChain, "chain.json").value();
  const auto bert = load("piper_bert32_a100.json");
  const auto message = [](const PartitionInstance& instance, const PartitionOptions& options) {
    const Status status = solve(instance, options).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_EQ(message(chain, {.micro_batches = 4}),
            "chain.json: micro-batches: is no number of this kind of file");
  EXPECT_EQ(message(chain, {.bandwidth = 4}),
            "chain.json: bandwidth: is no number of this kind of file");
  EXPECT_EQ(message(chain, {.memory_bytes = -1}),
            "chain.json: memory: must be a number from 0 to 1e+30");
  EXPECT_EQ(message(chain, {.devices = 65'537}),
            "chain.json: devices: must be a number from 0 to 65536");
  EXPECT_THAT(message(bert, {.devices = 0}), HasSubstr("devices: must be a number from 1 to"));
  EXPECT_THAT(message(bert, {.micro_batches = 0}), HasSubstr("micro-batches: must be"));
  EXPECT_THAT(message(bert, {.memory_bytes = 0}), HasSubstr("memory: must be"));
  EXPECT_THAT(message(bert, {.bandwidth = std::nan("")}), HasSubstr("bandwidth: must be"));
}

TEST(Partition, WhatDoesNotFitIsSaidInALine) {
  const auto chain = read_instance(kChain, "chain.json").value();
  EXPECT_EQ(optimum(chain, {.devices = 0}).objective, 270);  // The processor takes everything.
  EXPECT_EQ(optimum(chain, {.memory_bytes = 3}).objective, 270);
  const auto bert = load("piper_bert32_a100.json");
  const Status status = solve(bert, {.memory_bytes = 1e6}).status();
  EXPECT_EQ(status.code(), Code::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "piper_bert32_a100.json: no pipeline fits: 37 layers on 10 devices of 1000000 bytes");
}

TEST(Partition, TimesThatRoundToZeroPerDeviceEndTheSearch) {
  constexpr std::string_view kTiny = R"({"maxMemoryPerDevice": 10, "maxDevices": 9,
      "mbsInBatch": 1, "bandwidth": 5, "edges": [], "nodes": [
      {"id": 1, "TMPCs": {"1": [{"id": "a", "timePerSample": 5e-324, "parameterSize": 0,
        "memoryUsageA": 1, "memoryUsageB": 2, "syncTimeFw": {}, "syncTimeBw": {}}]}},
      {"id": 2, "TMPCs": {"1": [{"id": "a", "timePerSample": 5e-324, "parameterSize": 0,
        "memoryUsageA": 1, "memoryUsageB": 2, "syncTimeFw": {}, "syncTimeBw": {}}]}}]})";
  const auto instance = read_instance(kTiny, "tiny.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  EXPECT_LE(optimum(*instance).objective, 1e-322);
}

TEST(Partition, AGraphOfTooManyWaysIsRefused) {
  std::string text =
      R"({"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 1, "edges": [], "nodes": [)";
  for (int i = 0; i < 40; ++i) {
    text += (i == 0 ? "" : ",") + std::string("{\"id\": ") + std::to_string(i) +
            R"(, "supportedOnFpga": 1, "cpuLatency": 1, "fpgaLatency": 1, "isBackwardNode": 0,
               "size": 0})";
  }
  const auto instance = read_instance(text + "]}", "wide.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  const Status status = solve(*instance).status();
  EXPECT_EQ(status.code(), Code::kResourceExhausted);
  EXPECT_THAT(status.message(), StartsWith("wide.json: the graph can be cut in more than 500"));
}

TEST(PartitionCommand, ReadsAFileAndItsOptions) {
  const std::vector<std::string> all{"--devices", "8",   "a.json",      "--micro-batches=1920",
                                     "--memory",  "8e9", "--bandwidth", "2.5e10"};
  const auto request = parse_partition_arguments(all);
  ASSERT_TRUE(request.ok()) << request.status().to_string();
  EXPECT_EQ(request->file, "a.json");
  EXPECT_EQ(request->options.devices, 8U);
  EXPECT_EQ(request->options.micro_batches, 1920U);
  EXPECT_EQ(request->options.memory_bytes, 8e9);
  EXPECT_EQ(request->options.bandwidth, 2.5e10);
  const auto amounts = parse_partition_arguments(
      std::vector<std::string>{"a.json", "--memory=16 GiB", "--bandwidth", "200 Gbit/s"});
  ASSERT_TRUE(amounts.ok()) << amounts.status().to_string();
  EXPECT_EQ(amounts->options.memory_bytes, 16.0 * (1U << 30U));
  EXPECT_EQ(amounts->options.bandwidth, 2.5e10);
}

TEST(PartitionCommand, AWrongArgumentIsNamed) {
  const auto message = [](const std::vector<std::string>& arguments) {
    const Status status = parse_partition_arguments(arguments).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    return status.message();
  };
  EXPECT_THAT(message({}), StartsWith("a file is missing (usage: corro plan partition FILE "));
  EXPECT_THAT(message({"a", "b"}), StartsWith("\"b\" is no argument here"));
  EXPECT_THAT(message({"a", "--device", "8"}), StartsWith("\"--device\" is no argument here"));
  EXPECT_THAT(message({"a", "--devices"}), StartsWith("--devices: needs a value"));
  for (const char* value : {"", "-1", "1.5", "x", "8 8", "5000000000", "nan"}) {
    EXPECT_THAT(message({"a", "--devices", value}), StartsWith("--devices: must be a whole"));
  }
  for (const char* value : {"", "nan", "inf", "1e", "0x10", "1e999", "8 GB/s"}) {
    EXPECT_THAT(message({"a", "--memory", value}),
                StartsWith("--memory: must be an amount of bytes "));
  }
}

}  // namespace
}  // namespace corro::plan
