#include "app/planning/plan_question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/cost/runs.h"

namespace corro::app {
namespace {

using testing::HasSubstr;

plan::Cluster four_hosts() {
  const plan::Machine machine = plan::default_machine();
  plan::HostGroup hosts = machine.host;
  hosts.name = "node";
  hosts.count = 4;
  return {.name = "four", .types = {machine.device}, .hosts = {hosts}};
}

std::vector<std::string> names_of(const plan::Cluster& cluster) {
  std::vector<std::string> names;
  for (uint32_t i = 0; i < cluster.host_count(); ++i) names.push_back(cluster.host_name(i));
  return names;
}

TEST(PlanQuestion, HostsAreRemovedByTheirNames) {
  const auto cluster = without_hosts(four_hosts(), {"node2", "node0"});
  ASSERT_TRUE(cluster.ok()) << cluster.status().message();
  EXPECT_THAT(names_of(*cluster), testing::ElementsAre("node1", "node3"));
}

TEST(PlanQuestion, AHostThatIsNotThereIsAnError) {
  EXPECT_EQ(without_hosts(four_hosts(), {"nod2"}).status().message(),
            "--remove: there is no host \"nod2\"; did you mean node2?");
  EXPECT_THAT(without_hosts(four_hosts(), {"node1", "node1"}).status().message(),
              HasSubstr("no host \"node1\""));
  EXPECT_THAT(without_hosts(four_hosts(), {"node0", "node1", "node2", "node3"}).status().message(),
              HasSubstr("no host would be left"));
}

TEST(PlanQuestion, AModelIsAFileOrAName) {
  std::vector<std::string> remarks;
  PlanQuestion question{.model = "gpt3-175", .cluster = "no/such.yaml"};
  EXPECT_EQ(read_question(question, remarks).status().message(),
            "--model: there is no model \"gpt3-175\"; did you mean gpt3-175b?");
  question.model = "no/such.json";
  EXPECT_THAT(read_question(question, remarks).status().message(), HasSubstr("no/such.json"));
  question.model = "gpt3-175b";
  EXPECT_THAT(read_question(question, remarks).status().message(), HasSubstr("no/such.yaml"));
}

TEST(PlanQuestion, WithoutAClusterRunsAreOfTheDefaultMachine) {
  plan::Calibration calibration;
  calibration.matmul_efficiency = 0.5;
  const auto machine = read_machine_of("", calibration);
  ASSERT_TRUE(machine.ok());
  EXPECT_EQ(machine->device, plan::default_machine().device);
  EXPECT_EQ(machine->calibration, calibration);
}

}  // namespace
}  // namespace corro::app
