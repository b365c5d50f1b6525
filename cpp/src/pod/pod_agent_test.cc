#include "pod/pod_agent.h"

#include <gtest/gtest.h>

namespace corro::pod {
namespace {

TEST(PodAgentTest, AnElasticLauncherIsToldApart) {
  EXPECT_TRUE(survives_losses({"horovodrun", "--min-np", "2", "python", "train.py"}));
  EXPECT_TRUE(survives_losses({"horovodrun", "--min-num-proc=2", "python", "train.py"}));
  EXPECT_TRUE(survives_losses(
      {"sh", "-c", "exec horovodrun --host-discovery-script /etc/mpi/discover_hosts.sh train"}));
  EXPECT_FALSE(survives_losses({"mpirun", "-np", "2", "python", "train.py"}));
  EXPECT_FALSE(survives_losses({"horovodrun", "-np", "2", "python", "train.py"}));
  EXPECT_FALSE(survives_losses({}));
}

}  // namespace
}  // namespace corro::pod
