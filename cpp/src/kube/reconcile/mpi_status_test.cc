// What users of the MPI Operator rely on, case by case: status, events and suspension. The lines
// `mpijob same:` and `mpijob different:` name rows of docs/mpijob.md (tools/mpijob_page.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

// ---- status ------------------------------------------------------------------------------------

// mpijob same: status.conditions
TEST(MpiJobStatus, AConditionKeepsTheTimeOfItsChange) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  const Json before = condition_of(cluster, "Created");
  EXPECT_EQ(before["lastUpdateTime"], before["lastTransitionTime"]);
  const Json running = condition_of(cluster, "Running");
  cluster.pass(seconds(30));
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(condition_of(cluster, "Created"), before);
  EXPECT_EQ(condition_of(cluster, "Running")["status"], "False");
  EXPECT_NE(condition_of(cluster, "Running")["lastTransitionTime"], running["lastTransitionTime"]);
  for (const char* type : {"Created", "Running", "Suspended"})
    EXPECT_EQ(condition_of(cluster, type)["type"], type);
}

// mpijob same: status.replicaStatuses; status.times
TEST(MpiJobStatus, PodsAreCountedByTheirPhases) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/replicaStatuses"),
            patched(R"({"Launcher": {"active": 1}, "Worker": {"active": 2}})"));
  EXPECT_TRUE(status_of(cluster, "/startTime").is_string());
  EXPECT_TRUE(status_of(cluster, "/completionTime").is_null());
  EXPECT_TRUE(status_of(cluster, "/lastReconcileTime").is_null());
  cluster.end_well("mnist-worker-1");
  cluster.finish_ranks();
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/replicaStatuses"),
            patched(R"({"Launcher": {"succeeded": 1}, "Worker": {"active": 1, "succeeded": 1}})"));
  EXPECT_TRUE(status_of(cluster, "/completionTime").is_string());
}

// mpijob same: status.v1alpha1
TEST(MpiJobStatus, TheOldestVersionHasTheStatusOfItsTime) {
  Json job = patched(R"({"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
      "metadata": {"name": "mnist"}, "spec": {"writtenAs": "v1alpha1", "replicas": 2}})");
  job["spec"]["template"] = sample_template();
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/launcherStatus"), "Active");
  EXPECT_EQ(status_of(cluster, "/workerReplicas"), 2);
  EXPECT_TRUE(status_of(cluster, "/replicaStatuses").is_null());
  cluster.finish_ranks();
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/launcherStatus"), "Succeeded");
}

// mpijob same: failed-launcher
TEST(MpiJobStatus, ALongMessageOfAFailedLauncherIsCut) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  Json pod = *cluster.get("Pod", "mnist-launcher-x");
  pod["status"] = Json::object({{"phase", "Failed"}, {"message", std::string(2000, 'm')}});
  cluster.put(pod);
  cluster.fail_launcher("BackoffLimitExceeded");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(message_of(cluster, "Failed").size(), 1024U);
}

TEST(MpiJobStatus, ALauncherPodThatIsNotOfTheJobsOwnLauncherCountsNothing) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  Json pod = *cluster.get("Pod", "mnist-launcher-x");
  pod["metadata"]["name"] = "mnist-launcher-y";
  pod["metadata"]["uid"] = "forged";
  for (const char* owners : {"[]", R"([{"uid": "another", "controller": true}])"}) {
    pod["metadata"]["ownerReferences"] = patched(owners);
    cluster.put(pod);
    cluster.pass(std::chrono::seconds(2));
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(status_of(cluster, "/replicaStatuses/Launcher/active"), 1) << owners;
  }
  pod["status"] = patched(R"({"phase": "Failed", "reason": "Forged"})");
  cluster.put(pod);
  cluster.fail_launcher("BackoffLimitExceeded");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "BackoffLimitExceeded");
}

// mpijob same: running; case.worker-ready
TEST(MpiJobStatus, WorkersAloneAreNotARunningJob) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  for (int i = 0; i < 3; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  Json worker = *cluster.get("Pod", "mnist-worker-0");
  worker["status"] =
      patched(R"({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})");
  cluster.put(worker);
  cluster.pass(seconds(2));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.state(), "Pending");
  EXPECT_EQ(message_of(cluster, "Pending"), "1 of 1 workers run, the launcher does not yet");
  EXPECT_EQ(status_of(cluster, "/replicaStatuses"),
            patched(R"({"Launcher": {}, "Worker": {"active": 1}})"));
}

// mpijob same: events
TEST(MpiJobStatus, EventsTellItsWay) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  for (const char* value : {"true", "false"}) {
    const std::string change = std::string(R"({"runPolicy": {"suspend": )") + value + "}}";
    cluster.change_spec(Json::parse(change));
    ASSERT_TRUE(cluster.settle());
  }
  cluster.finish_ranks();
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.events, ElementsAre("Normal MPIJobCreated", "Normal MPIJobRunning",
                                          "Normal MPIJobSuspended", "Normal MPIJobResumed",
                                          "Normal MPIJobRunning", "Normal MPIJobSucceeded"));
}

// mpijob different: status.restarting; events-more; evicted
TEST(MpiJobStatus, ALostWorkerIsToldByConditionAndEvent) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-1", ClusterModel::Harm::kEvict);
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(condition_of(cluster, "Restarting")["status"], "True");
  EXPECT_THAT(message_of(cluster, "Restarting"),
              HasSubstr("mnist-worker-1-g1 replaces it at once"));
  EXPECT_THAT(cluster.events, Contains("Warning MPIJobRestarting"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(condition_of(cluster, "Restarting")["status"], "False");
  EXPECT_THAT(cluster.events, Not(Contains(HasSubstr("MPIJobEvicted"))));
  EXPECT_EQ(cluster.state(), "Running");
}

// ---- suspension --------------------------------------------------------------------------------

// mpijob same: resume-directives; case.resume-with-launcher
TEST(MpiJobStatus, WhatAQueueChoseWhileSuspendedIsInAllPodsAfterwards) {
  const Json chosen = patched(R"({
      "metadata": {"labels": {"flavor": "a"}, "annotations": {"kueue.x-k8s.io/workload": "w"}},
      "spec": {"nodeSelector": {"pool": "a"}, "tolerations": [{"key": "gpu"}],
               "schedulingGates": [{"name": "kueue.x-k8s.io/topology"}]}})");
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  Json change = patched(R"({"runPolicy": {"suspend": false}})");
  for (const char* role : {"Launcher", "Worker"})
    change["mpiReplicaSpecs"][role]["template"] = chosen;
  cluster.change_spec(change);
  ASSERT_TRUE(cluster.settle());
  for (const Json& pod : {*cluster.get("Pod", "mnist-worker-0-g1"), launcher_template(cluster)}) {
    EXPECT_EQ(pod["metadata"]["labels"]["flavor"], "a");
    EXPECT_EQ(pod["metadata"]["annotations"]["kueue.x-k8s.io/workload"], "w");
    for (const char* field : {"nodeSelector", "schedulingGates"})
      EXPECT_EQ(pod["spec"][field], chosen["spec"][field]) << field;
    EXPECT_EQ(pod["spec"]["tolerations"][0], chosen["spec"]["tolerations"][0]);
  }
}

// mpijob same: start-time; case.resume-clears-start-time
TEST(MpiJobStatus, TheTimeOfAResumedJobBeginsAnew) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  const Json first = status_of(cluster, "/startTime");
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_TRUE(status_of(cluster, "/startTime").is_null());
  cluster.pass(seconds(100));
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": false}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_TRUE(status_of(cluster, "/startTime").is_string());
  EXPECT_NE(status_of(cluster, "/startTime"), first);
}

// mpijob same: case.created-suspended
// mpijob different: created-suspended
TEST(MpiJobStatus, OneThatIsMadeSuspendedShowsItAndHasNotEvenALauncher) {
  for (const char* implementation : {"OpenMPI", "Intel", "MPICH"}) {
    Json job = with(sample_mpi_job(2), R"({"runPolicy": {"suspend": true}})");
    job["spec"]["mpiImplementation"] = implementation;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(reason_of(cluster, "Suspended"), "MPIJobSuspended");
    EXPECT_EQ(message_of(cluster, "Suspended"), "MPIJob suspended");
    EXPECT_EQ(condition_of(cluster, "Running")["status"], "False");
    EXPECT_EQ(message_of(cluster, "Running"), "MPIJob default/mnist is suspended.");
    EXPECT_THAT(names_made(cluster), IsEmpty());
    EXPECT_THAT(cluster.events, IsSupersetOf({"Normal MPIJobCreated", "Normal MPIJobSuspended"}));
  }
}

}  // namespace
}  // namespace corro::kube
