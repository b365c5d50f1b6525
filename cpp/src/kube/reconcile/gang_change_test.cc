// Jobs in Kubernetes' own gangs that are given another number of workers. A group's minCount cannot
// be changed, and a pod names its group for life.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Harm = ClusterModel::Harm;

struct Case {
  const char* name;
  Json job;       ///< With three workers.
  int launchers;  ///< That the gang counts.
};

bool resize(ClusterModel& cluster, int workers) {
  cluster.change_spec(workers_of(cluster, workers));
  return cluster.settle();
}

/// Of each live pod of the gang, the group that it names; "" for none.
std::map<std::string, std::string> groups_of_pods(const ClusterModel& cluster) {
  std::map<std::string, std::string> groups;
  for (const std::string& name : cluster.live_pods()) {
    const Json& pod = *cluster.get("Pod", name);
    if (pod["metadata"]["labels"][std::string(kRoleLabel)] == "head") continue;
    groups[name] = group_named_in(object_in(pod, "spec"));
  }
  return groups;
}

std::set<std::string> groups_named(const ClusterModel& cluster) {
  std::set<std::string> names;
  for (const auto& [pod, group] : groups_of_pods(cluster)) names.insert(group);
  return names;
}

std::string group_of(const ClusterModel& cluster, const std::string& pod) {
  const auto groups = groups_of_pods(cluster);
  const auto found = groups.find(pod);
  return found == groups.end() ? "no such pod" : found->second;
}

std::map<std::string, Json> uids_of_live(const ClusterModel& cluster) {
  std::map<std::string, Json> uids;
  for (const std::string& name : cluster.live_pods())
    uids[name] = (*cluster.get("Pod", name))["metadata"]["uid"];
  return uids;
}

std::string phase_of(const ClusterModel& cluster, const std::string& pod) {
  const Json* found = cluster.get("Pod", pod);
  return found == nullptr ? "none" : (*found)["status"].value("phase", "");
}

class GangChange : public ::testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] std::string group(int workers) const {
    return "mnist-" + std::to_string(workers + GetParam().launchers);
  }

  [[nodiscard]] std::string worker(int index, int generation) const {
    const std::string name = "mnist-worker-" + std::to_string(index);
    if (generation == 0 && GetParam().job["kind"] == "MPIJob") return name;
    return name + "-g" + std::to_string(generation);
  }

  ClusterModel cluster{GetParam().job, 1, native_gangs()};
};

TEST_P(GangChange, PodsThatWaitAreMadeAgainInAGroupOfTheNewSize) {
  for (const int workers : {2, 4}) {
    ClusterModel crowded(GetParam().job, 1, native_gangs());
    crowded.room = 1;  // For the head.
    ASSERT_TRUE(crowded.settle());
    EXPECT_THAT(groups_named(crowded), ElementsAre(group(3)));
    ASSERT_TRUE(resize(crowded, workers));
    EXPECT_THAT(groups_named(crowded), ElementsAre(group(workers)));
    EXPECT_THAT(groups_of_pods(crowded), SizeIs(workers + GetParam().launchers));
    const Json* made = crowded.get("PodGroup", group(workers));
    ASSERT_NE(made, nullptr);
    EXPECT_EQ((*made)["spec"]["schedulingPolicy"]["gang"]["minCount"],
              workers + GetParam().launchers);
    crowded.room = 10;
    ASSERT_TRUE(crowded.settle());
    EXPECT_EQ(crowded.state(), "Running");
    EXPECT_EQ(status_of(crowded, "/restarts"), 0);
    EXPECT_THAT(crowded.violations, IsEmpty());
  }
}

TEST_P(GangChange, PodsThatRunAreLeftAlone) {
  ASSERT_TRUE(cluster.settle());
  auto before = uids_of_live(cluster);
  ASSERT_TRUE(resize(cluster, 2));
  ASSERT_TRUE(resize(cluster, 4));
  EXPECT_EQ(cluster.state(), "Running");
  const auto after = uids_of_live(cluster);
  std::erase_if(before, [](const auto& pod) {
    return pod.first.starts_with("mnist-worker-2") || pod.first.starts_with("mnist-head");
  });
  for (const auto& [name, uid] : before) {
    ASSERT_TRUE(after.contains(name)) << name;
    EXPECT_EQ(after.at(name), uid) << name;
  }
}

TEST_P(GangChange, WhatReplacesAPodOfASmallerJobStarts) {
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 2));
  cluster.harm_pod(worker(1, 0), Harm::kEvict);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(phase_of(cluster, worker(1, 1)), "Running");
  // The others run in the old group, so the new one would never be full.
  EXPECT_EQ(group_of(cluster, worker(1, 1)), "");
  EXPECT_EQ(group_of(cluster, worker(0, 0)), group(3));
}

TEST_P(GangChange, AReplacementThatWaitedForItsOldGroupIsMadeAgainAndStarts) {
  ASSERT_TRUE(cluster.settle());
  cluster.room = 0;
  cluster.harm_pod(worker(1, 0), Harm::kEvict);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(phase_of(cluster, worker(1, 1)), "Pending");
  ASSERT_TRUE(resize(cluster, 2));
  cluster.room = 10;
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_EQ(phase_of(cluster, worker(1, 2)), "Running");
  EXPECT_EQ(status_of(cluster, "/restarts"), 1);
}

TEST_P(GangChange, AJobThatBecomesSmallAndLargeAgainRuns) {
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 1));
  cluster.harm_pod(worker(0, 0), Harm::kEvict);
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 3));
  EXPECT_EQ(cluster.state(), "Running") << cluster.last().reason;
  EXPECT_EQ(status_of(cluster, "/ready"), 3);
}

TEST_P(GangChange, WhatIsLostTogetherStartsTogetherAgain) {
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 2));
  for (const std::string& pod : cluster.live_pods()) {
    if (pod != "mnist-head" && !pod.starts_with("mnist-head-"))
      cluster.harm_pod(pod, Harm::kDelete);
  }
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running") << cluster.last().reason;
  EXPECT_EQ(group_of(cluster, worker(0, 1)), group_of(cluster, worker(1, 1)));
}

TEST_P(GangChange, AGroupStaysWhileItsPodsRunAndAllGoWithSuspension) {
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 2));
  EXPECT_NE(cluster.get("PodGroup", group(3)), nullptr);
  cluster.change_spec(cluster.job()["kind"] == "CorroJob"
                          ? patched(R"({"suspend": true})")
                          : patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.list("PodGroup"), IsEmpty());
}

TEST_P(GangChange, AGroupThatNoPodWaitsInGoes) {
  cluster.room = 1;
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(resize(cluster, 2));
  EXPECT_EQ(cluster.get("PodGroup", group(3)), nullptr);
  EXPECT_THAT(cluster.list("PodGroup"), SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, GangChange,
    ::testing::Values(
        Case{"Corro", sample_corro_job(3), 0}, Case{"Mpi", sample_mpi_job(3), 1},
        Case{"MpiV1", sample_mpi_job(3, "v1"), 1},
        Case{"MpiWaits",
             with(sample_mpi_job(3), R"({"launcherCreationPolicy": "WaitForWorkersReady"})"), 0}),
    [](const auto& test) { return std::string(test.param.name); });

/// An MPIJob whose launcher's pod was made in a group that waits for more than there are.
struct LateLauncher : ::testing::Test {
  LateLauncher() : cluster(sample_mpi_job(3), 1, native_gangs()) {
    EXPECT_TRUE(cluster.settle());
    EXPECT_TRUE(resize(cluster, 1));
    cluster.harm_pod("mnist-launcher-x", Harm::kVanish);
  }

  ClusterModel cluster;
};

TEST_F(LateLauncher, IsMadeAgainWithoutTheGang) {
  const Json old = (*cluster.get("Job", "mnist-launcher"))["metadata"]["uid"];
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(phase_of(cluster, "mnist-launcher-x"), "Running");
  EXPECT_EQ(group_of(cluster, "mnist-launcher-x"), "");
  EXPECT_NE((*cluster.get("Job", "mnist-launcher"))["metadata"]["uid"], old);
  EXPECT_EQ(cluster.state(), "Running");
}

TEST_F(LateLauncher, IsNotMadeAgainOnceItsJobMayBeDone) {
  while (cluster.run_controllers_once()) {
  }
  ASSERT_EQ(phase_of(cluster, "mnist-launcher-x"), "Pending");
  cluster.end_well("mnist-launcher-x");
  cluster.deliver_all();
  const Json old = (*cluster.get("Job", "mnist-launcher"))["metadata"]["uid"];
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("Job", "mnist-launcher"))["metadata"]["uid"], old);
}

TEST(NativeGang, ALauncherThatWaitsForWorkersIsInNoGroup) {
  ClusterModel cluster(
      with(sample_mpi_job(2), R"({"launcherCreationPolicy": "WaitForWorkersReady"})"), 1,
      native_gangs());
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(group_of(cluster, "mnist-launcher-x"), "");
  EXPECT_EQ(group_of(cluster, "mnist-worker-0"), "mnist-2");
}

}  // namespace
}  // namespace corro::kube
