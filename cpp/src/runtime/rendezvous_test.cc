#include "runtime/rendezvous.h"

#include <gtest/gtest.h>

namespace corro::runtime {
namespace {

Environment environment_of(std::string launcher, int32_t local_rank, int32_t local_size,
                           std::vector<std::string> hosts) {
  Environment environment;
  environment.launcher = std::move(launcher);
  environment.size = 4;
  environment.local_rank = local_rank;
  environment.local_size = local_size;
  environment.meeting_hosts = std::move(hosts);
  return environment;
}

TEST(Rendezvous, TheFirstRankOfOneHostTakesTheAgentsPlace) {
  EXPECT_TRUE(takes_agents_place(environment_of("Open MPI", 0, 4, {}), 0, {}));
  EXPECT_FALSE(takes_agents_place(environment_of("Open MPI", 1, 4, {}), 1, {}));
}

TEST(Rendezvous, TheFirstRankOfMpirunsHostDoes) {
  const auto first = environment_of("Open MPI", 0, 2, {"10.0.0.1", "172.17.0.1"});
  EXPECT_TRUE(takes_agents_place(first, 2, {"a", "172.17.0.1", "10.0.0.1"}));
  EXPECT_FALSE(takes_agents_place(first, 0, {"b", "172.17.0.1", "10.0.0.2"}))
      << "a bridge that every host has";
  EXPECT_FALSE(takes_agents_place(environment_of("Open MPI", 1, 2, {"a"}), 0, {"a"}));
  EXPECT_TRUE(takes_agents_place(environment_of("Open MPI", 0, 2, {"a"}), 0, {"a"}));
}

TEST(Rendezvous, TheFirstRankOfAStepsFirstNodeDoes) {
  Environment environment = environment_of("Slurm", 0, 2, {"n1"});
  environment.nodes = 2;
  environment.node_rank = 0;
  EXPECT_TRUE(takes_agents_place(environment, 2, {"whatever"}));
  environment.node_rank = 1;
  EXPECT_FALSE(takes_agents_place(environment, 0, {"n1"}));
}

TEST(Rendezvous, Rank0DoesWhereTheUserSaysAPlace) {
  Environment environment = environment_of("", 0, 2, {"n1"});
  environment.meeting_port = 4711;
  EXPECT_TRUE(takes_agents_place(environment, 0, {}));
  EXPECT_FALSE(takes_agents_place(environment, 2, {"n1"}));
}

}  // namespace
}  // namespace corro::runtime
