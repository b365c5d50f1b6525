#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "plan/json.h"
#include "plan/partition/partition.h"

namespace corro::plan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr std::string_view kMaxLoad =
    R"({"maxSizePerFPGA": 10, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [)"
    R"({"id": 1, "supportedOnFpga": 1, "cpuLatency": 9, "fpgaLatency": 3, "isBackwardNode": 0, )"
    R"("colorClass": -4, "size": 4, "name": "first", "layerId": 1}, )"
    R"({"id": 2, "supportedOnFpga": false, "cpuLatency": 8, "fpgaLatency": 2.5, )"
    R"("isBackwardNode": 0, "size": 4}, )"
    R"({"id": 3, "supportedOnFpga": 1, "cpuLatency": 7, "fpgaLatency": 1, "isBackwardNode": true, )"
    R"("colorClass": -4, "size": 0}], "edges": [)"
    R"({"sourceId": 1, "destId": 2, "cost": 1, "size": 6}, {"sourceId": 1, "destId": 3, "cost": 1}, )"
    R"({"sourceId": 2, "destId": 3, "cost": 0}]})";

constexpr std::string_view kPiper =
    R"({"maxMemoryPerDevice": 10, "maxDevices": 2, "mbsInBatch": 4, "bandwidth": 5, "nodes": [)"
    R"({"id": 1, "name": "first", "TMPCs": {"1": [{"id": "a", "timePerSample": 3, )"
    R"("parameterSize": 4, "memoryUsageA": 1, "memoryUsageB": 2, "syncTimeFw": {}, )"
    R"("syncTimeBw": {"2": 0.5}}], "2": []}}, )"
    R"({"id": 2, "TMPCs": {"1": [{"id": "b", "timePerSample": 2, "parameterSize": 0, )"
    R"("memoryUsageA": 1, "memoryUsageB": 2, "syncTimeFw": {"1": 0.25}, "syncTimeBw": {}}]}}], )"
    R"("edges": [{"sourceId": 1, "destId": 2, "communicationCost": 7}]})";

TEST(ReadInstance, ReadsAMaxLoadInstance) {
  const auto instance = read_instance(kMaxLoad, "file.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  const auto& problem = std::get<MaxLoadInstance>(instance->problem);
  EXPECT_THAT(problem.ids, ElementsAre(1, 2, 3));
  EXPECT_EQ(problem.accelerators, 2U);
  EXPECT_EQ(problem.processors, 1U);
  EXPECT_EQ(problem.memory_bytes, 10);
  EXPECT_EQ(problem.colors, 2U);
  EXPECT_EQ(problem.nodes[0].color, problem.nodes[2].color);
  EXPECT_NE(problem.nodes[0].color, problem.nodes[1].color);
  EXPECT_FALSE(problem.nodes[1].on_accelerator);
  EXPECT_EQ(problem.nodes[1].accelerator_time, 2.5);
  EXPECT_EQ(problem.nodes[0].processor_time, 9);
  EXPECT_EQ(problem.nodes[0].send_time, 1);
  EXPECT_THAT(problem.nodes[0].readers, ElementsAre(1, 2));
  EXPECT_TRUE(problem.nodes[2].backward);
}

TEST(ReadInstance, ReadsAnInstanceOfPiper) {
  const auto instance = read_instance(kPiper, "file.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  const auto& problem = std::get<PiperInstance>(instance->problem);
  EXPECT_THAT(problem.ids, ElementsAre(1, 2));
  EXPECT_THAT(problem.degrees, ElementsAre(1, 2));
  EXPECT_EQ(problem.micro_batches, 4U);
  EXPECT_EQ(problem.bandwidth, 5);
  const auto& choice = problem.nodes[1].choices[0].at(0);
  EXPECT_EQ(choice.id, "b");
  EXPECT_THAT(choice.sync_in, ElementsAre(0.25));
  EXPECT_TRUE(choice.sync_out.empty());
  EXPECT_TRUE(problem.nodes[0].choices[1].empty());
  EXPECT_TRUE(problem.nodes[1].choices[1].empty());
  EXPECT_EQ(problem.nodes[1].in.at(0).bytes, 7);
}

TEST(ReadInstance, TheDocumentedNameOfMicroBatchesIsReadToo) {
  std::string text(kPiper);
  text.replace(text.find("mbsInBatch"), 10, "maxBatchSize");
  const auto instance = read_instance(text, "file.json");
  ASSERT_TRUE(instance.ok()) << instance.status().to_string();
  EXPECT_EQ(std::get<PiperInstance>(instance->problem).micro_batches, 4U);
}

struct BadFile {
  std::string_view part;  ///< Of the good file; the first one is replaced.
  std::string_view by;
  std::string_view error;
};

void expect_errors(std::string_view good, const std::vector<BadFile>& table) {
  for (const BadFile& bad : table) {
    SCOPED_TRACE(std::string(bad.part) + " -> " + std::string(bad.by));
    std::string text(good);
    const size_t at = text.find(bad.part);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, bad.part.size(), bad.by);
    const Status status = read_instance(text, "file.json").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), StartsWith("file.json: " + std::string(bad.error)));
    EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
  }
}

TEST(ReadInstance, EveryBadMaxLoadFileIsOneLineWithThePlace) {
  expect_errors(
      kMaxLoad,
      {{"}]}", "}", "is not JSON: "},
       {"\"cpuLatency\": 9", "\"cpuLatency\": NaN", "is not JSON: "},
       {"\"cpuLatency\": 9", "\"cpuLatency\": 1e999", "is not JSON: "},
       {"\"cpuLatency\": 9", "\"cpuLatency\": -9",
        "nodes[0].cpuLatency: must be a number from 0 to 1e+30"},
       {"\"cpuLatency\": 9", "\"cpuLatency\": 1e31", "nodes[0].cpuLatency: must be a number"},
       {"\"cpuLatency\": 9", "\"cpuLatency\": \"9\"", "nodes[0].cpuLatency: must be a number"},
       {"\"cpuLatency\": 9, ", "", "nodes[0].cpuLatency: is missing"},
       {"\"cpuLatency\": 9", "\"cpuLatency\": 9, \"gpuLatency\": 9",
        "nodes[0].gpuLatency: is no field here; there are id, supportedOnFpga, "},
       {"\"size\": 4", "\"size\": -1", "nodes[0].size: must be a number"},
       {"\"isBackwardNode\": 0", "\"isBackwardNode\": 2",
        "nodes[0].isBackwardNode: must be true, false, 0 or 1"},
       {"\"supportedOnFpga\": false", "\"supportedOnFpga\": null",
        "nodes[1].supportedOnFpga: must be true, false, 0 or 1"},
       {"\"supportedOnFpga\": 1, ", "", "nodes[0].supportedOnFpga: is missing"},
       {"-4", "\"red\"", "nodes[0].colorClass: must be an integer"},
       {"\"id\": 2", "\"id\": 1", "nodes[1].id: node 1 comes twice"},
       {"\"id\": 2", "\"id\": 2.5", "nodes[1].id: must be an integer"},
       {"\"destId\": 2", "\"destId\": 4", "edges[0].destId: there is no node 4"},
       {"\"sourceId\": 1", "\"sourceId\": 0", "edges[0].sourceId: there is no node 0"},
       {"\"cost\": 1}", "\"cost\": 2}", "edges[1].cost: is 2, but another edge of node 1 costs 1"},
       {"\"cost\": 0", "\"cost\": -1", "edges[2].cost: must be a number"},
       {"\"cost\": 1, ", "", "edges[0].cost: is missing"},
       {"\"destId\": 2", "\"destId\": 1", "edges: make a cycle through node 1"},
       {"\"sourceId\": 1, \"destId\": 3", "\"sourceId\": 2, \"destId\": 1",
        "edges[2].cost: is 0, but another edge of node 2 costs 1"},
       {"\"sourceId\": 1, \"destId\": 3, \"cost\": 1",
        "\"sourceId\": 2, \"destId\": 1, \"cost\": 0", "edges: make a cycle through node 1"},
       {"\"sourceId\": 2, \"destId\": 3", "\"sourceId\": 3, \"destId\": 2",
        "edges[2]: leads from backward node 3 to forward node 2"},
       {"\"maxFPGAs\": 2", "\"maxFPGAs\": -1", "maxFPGAs: must be an integer from 0 to 65536"},
       {"\"maxFPGAs\": 2", "\"maxFPGAs\": 65537", "maxFPGAs: must be an integer"},
       {"\"maxFPGAs\": 2, \"maxCPUs\": 1", "\"maxFPGAs\": 0, \"maxCPUs\": 0",
        "maxFPGAs: must be at least 1, for there is no CPU either"},
       {"\"maxCPUs\": 1, ", "", "maxCPUs: is missing"},
       {"\"maxSizePerFPGA\": 10, ", "", "maxSizePerFPGA: is missing"},
       {"\"maxFPGAs\": 2, ", "", "must have either maxFPGAs (a max-load instance) or maxDevices"},
       {"\"maxFPGAs\": 2", "\"maxFPGAs\": 2, \"maxDevices\": 2", "must have either maxFPGAs"},
       {"\"maxFPGAs\": 2", "\"maxFPGAs\": 2, \"maxFPGAs\": 2", "maxFPGAs: comes twice"},
       {"\"edges\": [", "\"edges\": 5, \"more\": [", "more: is no field here"},
       {"\"nodes\"", "\"knots\"", "knots: is no field here"}});
}

TEST(ReadInstance, EveryBadFileOfPiperIsOneLineWithThePlace) {
  expect_errors(
      kPiper,
      {{"}]}", "}", "is not JSON: "},
       {"\"maxDevices\": 2", "\"maxDevices\": 0", "maxDevices: must be an integer from 1 to 65536"},
       {"\"mbsInBatch\": 4", "\"mbsInBatch\": 0", "mbsInBatch: must be an integer from 1"},
       {"\"mbsInBatch\": 4, ", "", "mbsInBatch: is missing"},
       {"\"mbsInBatch\": 4", "\"mbsInBatch\": 4, \"maxBatchSize\": 4",
        "maxBatchSize: is another name of mbsInBatch"},
       {"\"bandwidth\": 5", "\"bandwidth\": 0", "bandwidth: must be a number from 1e-09 to 1e+30"},
       {"\"maxMemoryPerDevice\": 10", "\"maxMemoryPerDevice\": -1", "maxMemoryPerDevice: must be"},
       {"\"timePerSample\": 3", "\"timePerSample\": -3",
        "nodes[0].TMPCs.1[0].timePerSample: must be a number from 0 to 1e+30"},
       {"\"timePerSample\": 3", "\"timePerSample\": NaN", "is not JSON: "},
       {"\"timePerSample\": 3, ", "", "nodes[0].TMPCs.1[0].timePerSample: is missing"},
       {"\"id\": \"a\"", "\"id\": \"\"", "nodes[0].TMPCs.1[0].id: must be 1 to 200 bytes"},
       {"\"id\": \"a\"", "\"id\": 5", "nodes[0].TMPCs.1[0].id: must be text"},
       {"\"2\": []", "\"0\": []", "nodes[0].TMPCs.0: must be named by a number from 1 to 65536"},
       {"\"2\": []", "\"two\": []", "nodes[0].TMPCs.two: must be named by a number"},
       {"\"2\": []", "\"2\": {}", "nodes[0].TMPCs.2: must be a list"},
       {"\"2\": []", "\"2\": [5]", "nodes[0].TMPCs.2[0]: must be an object"},
       {"\"TMPCs\": {\"1\": [{\"id\": \"b\"", "\"TMPC\": {\"1\": [{\"id\": \"b\"",
        "nodes[1].TMPC: is no field here"},
       {"{\"2\": 0.5}", "{}", "nodes[0].TMPCs.1[0].syncTimeBw: lacks the edge with node 2"},
       {"{\"2\": 0.5}", "{\"2\": 0.5, \"1\": 0}",
        "nodes[0].TMPCs.1[0].syncTimeBw: names 2 nodes, but 1 edges lead there"},
       {"{\"2\": 0.5}", "{\"2\": -1}", "nodes[0].TMPCs.1[0].syncTimeBw.2: must be a number"},
       {"{\"2\": 0.5}", "[]", "nodes[0].TMPCs.1[0].syncTimeBw: must be an object"},
       {"\"id\": 2", "\"id\": 1", "nodes[1].id: node 1 comes twice"},
       {"\"destId\": 2", "\"destId\": 4", "edges[0].destId: there is no node 4"},
       {"\"communicationCost\": 7}",
        "\"communicationCost\": 7}, {\"sourceId\": 1, \"destId\": 2, "
        "\"communicationCost\": 7}",
        "edges[1]: leads from node 1 to node 2 like another edge"},
       {"\"communicationCost\": 7", "\"communicationCost\": -7",
        "edges[0].communicationCost: must be a number"}});
}

TEST(ReadInstance, ACycleOfLayersIsNamed) {
  const std::string text =
      R"({"maxMemoryPerDevice": 10, "maxDevices": 2, "mbsInBatch": 4, "bandwidth": 5, "nodes": [)"
      R"({"id": 8, "TMPCs": {}}, {"id": 9, "TMPCs": {}}], "edges": [)"
      R"({"sourceId": 8, "destId": 9, "communicationCost": 1}, )"
      R"({"sourceId": 9, "destId": 8, "communicationCost": 1}]})";
  EXPECT_EQ(read_instance(text, "file.json").status().message(),
            "file.json: edges: make a cycle through node 8");
}

TEST(ReadInstance, WhatIsNoInstanceIsRefused) {
  for (const char* text : {"", "{", "[]", "5", "null", "{}", "{\"maxFPGAs\": {}}"}) {
    const Status status = read_instance(text, "file.json").status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << text;
    EXPECT_THAT(status.message(), StartsWith("file.json: ")) << text;
  }
}

TEST(ReadInstance, ListsAreLimited) {
  std::string nodes = "0";
  for (size_t i = 0; i < kMostPartitionNodes; ++i) nodes += ",0";
  const std::string text = R"({"maxSizePerFPGA": 1, "maxFPGAs": 1, "maxCPUs": 1, "edges": [], )"
                           R"("nodes": [)" +
                           nodes + "]}";
  EXPECT_EQ(read_instance(text, "file.json").status().message(),
            "file.json: nodes: has 20001 items; at most 20000 are read");
}

}  // namespace
}  // namespace corro::plan
