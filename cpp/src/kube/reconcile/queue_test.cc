// Jobs in queues of Kueue that are not elastic: the pods of each round are a group, which Kueue
// admits as a whole, and which has ended once all of them have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using Harm = ClusterModel::Harm;

Json queued_job(int workers) { return with(sample_corro_job(workers), R"({"queue": "team-a"})"); }

/// Of each live worker, its group and how many pods the group has.
std::map<std::string, std::string> groups_of(const ClusterModel& cluster) {
  std::map<std::string, std::string> groups;
  for (const std::string& name : cluster.live_pods()) {
    const Json& metadata = (*cluster.get("Pod", name))["metadata"];
    const std::string group = text_in(metadata["labels"], "kueue.x-k8s.io/pod-group-name");
    if (group.empty()) continue;
    const Json& annotations = metadata["annotations"];
    EXPECT_EQ(annotations["kueue.x-k8s.io/retriable-in-group"], "false");
    groups[name] = group + " of " + text_in(annotations, "kueue.x-k8s.io/pod-group-total-count");
  }
  return groups;
}

TEST(Queue, ALossBeginsARoundWithAnotherGroup) {
  ClusterModel cluster(queued_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(groups_of(cluster), ElementsAre(Pair("mnist-worker-0-g0", "mnist-11111111-0 of 2"),
                                              Pair("mnist-worker-1-g0", "mnist-11111111-0 of 2")));
  ASSERT_TRUE(cluster.harm_pod("mnist-worker-0-g0", Harm::kEvict));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(groups_of(cluster), ElementsAre(Pair("mnist-worker-0-g1", "mnist-11111111-1 of 2"),
                                              Pair("mnist-worker-1-g1", "mnist-11111111-1 of 2")));
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_EQ(status_of(cluster, "/restarts"), Json(1));
}

TEST(Queue, AnotherSizeIsAnotherGroup) {
  ClusterModel cluster(queued_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(workers_of(cluster, 2));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(groups_of(cluster), ElementsAre(Pair("mnist-worker-0-g1", "mnist-11111111-1 of 2"),
                                              Pair("mnist-worker-1-g0", "mnist-11111111-1 of 2")));
  cluster.change_spec(workers_of(cluster, 1));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(groups_of(cluster), ElementsAre(Pair("mnist-worker-0-g2", "mnist-11111111-2 of 1")));
  EXPECT_EQ(status_of(cluster, "/restarts"), Json(0));
}

TEST(Queue, AResumedJobHasAnotherGroup) {
  ClusterModel cluster(queued_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"suspend": true})"));
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"suspend": false})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(groups_of(cluster), ElementsAre(Pair("mnist-worker-0-g1", "mnist-11111111-1 of 1")));
}

}  // namespace
}  // namespace corro::kube
