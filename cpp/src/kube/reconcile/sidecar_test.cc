// Pods in which other containers run beside corro's own: what those do is not the job's end, nor
// its failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/own_container.h"
#include "kube/reconcile/sample_jobs.h"
#include "kube/reconcile/trimmed.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::StartsWith;

Json code(int value) { return Json::object({{"exitCode", value}}); }

Json out_of_memory() { return Json::object({{"exitCode", 137}, {"reason", "OOMKilled"}}); }

/// Until the next status may be written.
void settle(ClusterModel& cluster) {
  cluster.pass(std::chrono::seconds(2));
  ASSERT_TRUE(cluster.settle()) << cluster.last().reason;
  EXPECT_THAT(cluster.violations, IsEmpty());
}

Json running_policy(Json job) {
  const bool is_flat = job["spec"]["writtenAs"] != "v2beta1";
  return with(std::move(job), is_flat ? R"({"cleanPodPolicy": "Running"})"
                                      : R"({"runPolicy": {"cleanPodPolicy": "Running"}})");
}

std::string launcher_pod_of(const ClusterModel& cluster) {
  return cluster.get("Pod", "mnist-launcher") == nullptr ? "mnist-launcher-x" : "mnist-launcher";
}

// mpijob different: sidecars
TEST(Sidecars, ALauncherThatEndedWellEndsItsJobBesideAContainerWithoutEnd) {
  for (const char* version : {"v2beta1", "v1", "v1alpha2"}) {
    SCOPED_TRACE(version);
    ClusterModel cluster(running_policy(with_sidecars(sample_mpi_job(1, version))), 1);
    settle(cluster);
    const std::string launcher = launcher_pod_of(cluster);
    cluster.end_container(launcher, "main", code(0));
    settle(cluster);
    EXPECT_EQ(cluster.state(), "Succeeded");
    EXPECT_FALSE(cluster.live_pods().contains("mnist-worker-0"));
    EXPECT_FALSE(cluster.live_pods().contains("mnist-head"));
    ASSERT_NE(cluster.get("Pod", launcher), nullptr);  // Its log can be read.
  }
}

TEST(Sidecars, AConditionSaysWhatHoldsTheLaunchersPod) {
  ClusterModel cluster(with_sidecars(sample_mpi_job(1)), 1);
  settle(cluster);
  cluster.end_container("mnist-launcher-x", "main", code(0));
  settle(cluster);
  EXPECT_EQ(
      message_of(cluster, "Succeeded"),
      "MPIJob default/mnist successfully completed. mnist-launcher-x goes on with proxy until "
      "the job is deleted");
  // A Job would take a stopped pod for a failure, and start the launcher again.
  EXPECT_THAT(cluster.live_pods(), Contains("mnist-launcher-x"));
  EXPECT_NE(cluster.get("Job", "mnist-launcher"), nullptr);
}

TEST(Sidecars, V1sLauncherPodIsStoppedAndItsLogStays) {
  ClusterModel cluster(with_sidecars(sample_mpi_job(1, "v1")), 1);
  settle(cluster);
  cluster.end_container("mnist-launcher", "main", code(0));
  settle(cluster);
  EXPECT_EQ(cluster.state(), "Succeeded");
  EXPECT_EQ((*cluster.get("Pod", "mnist-launcher"))["spec"]["activeDeadlineSeconds"], 1);
  EXPECT_FALSE(cluster.live_pods().contains("mnist-launcher"));
}

TEST(Sidecars, V1sLauncherThatFailedFailsItsJob) {
  for (const bool of_memory : {false, true}) {
    ClusterModel cluster(with_sidecars(sample_mpi_job(1, "v1")), 1);
    settle(cluster);
    cluster.end_container("mnist-launcher", "main", of_memory ? out_of_memory() : code(3));
    settle(cluster);
    EXPECT_EQ(cluster.state(), "Failed");
    EXPECT_EQ(message_of(cluster, "Failed"),
              of_memory ? "mnist-launcher: out of memory" : "mnist-launcher: exit code 3");
  }
}

/// Then its Job counts the failure, and makes the next pod or fails.
TEST(Sidecars, TheFailedPodOfALaunchersJobIsStoppedAndItsEndIsTold) {
  Json job = with_sidecars(sample_mpi_job(1));
  job["spec"]["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = "Never";
  ClusterModel cluster(job, 1);
  settle(cluster);
  cluster.end_container("mnist-launcher-x", "main", code(3));
  settle(cluster);
  const Json& pod = *cluster.get("Pod", "mnist-launcher-x");
  EXPECT_EQ(pod["status"]["phase"], "Failed");
  EXPECT_EQ(status_of(cluster, "/replicaStatuses/Launcher/failed"), 1);
  EXPECT_NE(cluster.state(), "Failed");
  cluster.fail_launcher("BackoffLimitExceeded");
  settle(cluster);
  EXPECT_EQ(cluster.state(), "Failed");
  EXPECT_EQ(message_of(cluster, "Failed"), "it failed: exit code 3");
}

TEST(Sidecars, ALauncherThatItsKubeletStartsAgainHasNotEnded) {
  ClusterModel cluster(with_sidecars(sample_mpi_job(1)), 1);  // OnFailure.
  settle(cluster);
  cluster.end_container("mnist-launcher-x", "main", code(3));
  settle(cluster);
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_THAT(cluster.live_pods(), Contains("mnist-launcher-x"));
}

TEST(Sidecars, AFailedWorkerIsReplacedByWhatItsOwnContainerDid) {
  for (const Json& job : {sample_corro_job(2), sample_mpi_job(2), sample_mpi_job(2, "v1")}) {
    for (const bool of_memory : {false, true}) {
      ClusterModel cluster(with_sidecars(job), 1);
      settle(cluster);
      const bool is_mpi = job["kind"] == "MPIJob";
      const std::string worker = is_mpi ? "mnist-worker-1" : "mnist-worker-1-g0";
      cluster.end_container(worker, "main", of_memory ? out_of_memory() : code(1));
      settle(cluster);
      EXPECT_EQ(
          status_of(cluster, of_memory ? "/restartCounts/outOfMemory" : "/restartCounts/userError"),
          1);
      EXPECT_EQ(cluster.state(), "Running");
      EXPECT_THAT(cluster.live_pods(), Contains("mnist-worker-1-g1"));
      EXPECT_FALSE(cluster.live_pods().contains(worker));
      EXPECT_NE(cluster.get("Pod", worker), nullptr);  // Its log can be read.
    }
  }
}

TEST(Sidecars, AnotherContainerThatFailsOrRunsOutOfMemoryHarmsNothing) {
  for (const Json& job : {sample_corro_job(1), sample_mpi_job(1), sample_mpi_job(1, "v1")}) {
    for (const Json& end : {code(0), code(1), out_of_memory()}) {
      ClusterModel cluster(with_sidecars(job), 1);
      settle(cluster);
      for (const std::string& pod : cluster.live_pods()) {
        if (pod != "mnist-head") cluster.end_container(pod, "proxy", end);
      }
      settle(cluster);
      EXPECT_EQ(cluster.state(), "Running");
      EXPECT_EQ(status_of(cluster, "/restarts"), 0);
      EXPECT_EQ(status_of(cluster, "/ready"), 1);
    }
  }
}

/// The proxy takes the pod's phase to Failed, or out of memory.
TEST(Sidecars, AWorkerThatEndedWellIsDoneWhateverTheOthersDo) {
  ClusterModel cluster(with_sidecars(sample_corro_job(2)), 1);
  settle(cluster);
  cluster.end_container("mnist-worker-0-g0", "proxy", out_of_memory());
  cluster.end_container("mnist-worker-0-g0", "main", code(0));
  settle(cluster);
  EXPECT_EQ((*cluster.get("Pod", "mnist-worker-0-g0"))["status"]["phase"], "Failed");
  EXPECT_EQ(status_of(cluster, "/restarts"), 0);
  cluster.end_container("mnist-worker-1-g0", "main", code(0));
  settle(cluster);
  EXPECT_EQ(cluster.state(), "Succeeded");
  EXPECT_THAT(cluster.live_pods(), IsEmpty());
  for (const char* pod : {"mnist-worker-0-g0", "mnist-worker-1-g0"})
    EXPECT_NE(cluster.get("Pod", pod), nullptr);
}

TEST(Sidecars, WhatIsLeftOfAWorkerThatIsDoneMayBeEvicted) {
  ClusterModel cluster(with_sidecars(sample_corro_job(2)), 1);
  settle(cluster);
  cluster.end_container("mnist-worker-0-g0", "main", code(0));
  cluster.deliver_all();
  cluster.reconcile_once({});
  cluster.harm_pod("mnist-worker-0-g0", ClusterModel::Harm::kEvict);
  settle(cluster);
  EXPECT_EQ(status_of(cluster, "/restarts"), 0);
  cluster.end_container("mnist-worker-1-g0", "main", code(0));
  settle(cluster);
  EXPECT_EQ(cluster.state(), "Succeeded");
}

// ---- which container is corro's ----------------------------------------------------------------

/// A pod as a webhook leaves it: the proxy in front.
Json injected_pod() {
  return patched(R"({"kind": "Pod", "metadata": {"labels": {"training.corro.dev/role": "worker",
      "training.corro.dev/index": "0"}},
    "spec": {"restartPolicy": "Never", "containers": [
      {"name": "istio-proxy", "env": [{"name": "POD_NAME"}]},
      {"name": "main", "env": [{"name": "MINE"}, {"name": "CORRO_MEMBER", "value": "worker-0"}]}]},
    "status": {"phase": "Running", "containerStatuses": [
      {"name": "istio-proxy", "ready": true, "state": {"running": {}}},
      {"name": "main", "ready": false, "state": {"terminated": {"exitCode": 0}}}]}})");
}

TEST(OwnContainer, IsFoundBehindOneThatAWebhookPutInFront) {
  Json pod = injected_pod();
  for (const bool is_trimmed : {false, true}) {
    if (is_trimmed) trim(pod);
    EXPECT_EQ(view_of(pod)->phase, PodPhase::kSucceeded);
    EXPECT_EQ(view_of(pod)->others_that_run, "istio-proxy");
    EXPECT_FALSE(view_of(pod)->is_over);
  }
}

TEST(OwnContainer, HasEndedForGoodByItsPolicy) {
  const auto phase_of = [](const char* policy, int code, const char* own = "{}") {
    Json pod = injected_pod();
    pod["spec"]["restartPolicy"] = policy;
    pod["spec"]["containers"][1].merge_patch(patched(own));
    pod["status"]["containerStatuses"][1]["state"]["terminated"]["exitCode"] = code;
    trim(pod);
    return view_of(pod)->phase;
  };
  EXPECT_EQ(phase_of("Never", 1), PodPhase::kFailed);
  EXPECT_EQ(phase_of("OnFailure", 0), PodPhase::kSucceeded);
  EXPECT_EQ(phase_of("OnFailure", 1), PodPhase::kRunning);
  EXPECT_EQ(phase_of("Always", 0), PodPhase::kRunning);
  EXPECT_EQ(phase_of("OnFailure", 1, R"({"restartPolicy": "Never"})"), PodPhase::kFailed);
  constexpr const char* kRules = R"({"restartPolicy": "Never", "restartPolicyRules": [
      {"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]})";
  EXPECT_EQ(phase_of("Never", 42, kRules), PodPhase::kRunning);
  EXPECT_EQ(phase_of("Never", 0, kRules), PodPhase::kSucceeded);
}

/// Native sidecars are init containers that the kubelet ends after the others: with SIGTERM, whose
/// exit code says nothing.
TEST(OwnContainer, AloneIsBlamedBesideNativeSidecars) {
  Json pod = injected_pod();
  pod["status"] = patched(R"({"phase": "Failed",
      "containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 7}}}],
      "initContainerStatuses": [{"name": "proxy", "state": {"terminated": {
          "exitCode": 137, "reason": "OOMKilled"}}}]})");
  EXPECT_EQ(view_of(pod)->cause, Cause::kUserError);
  EXPECT_EQ(view_of(pod)->why, "exit code 7");
  pod["status"]["containerStatuses"][0]["state"] = patched(R"({"waiting": {}})");
  EXPECT_EQ(view_of(pod)->cause, Cause::kOutOfMemory);  // Before it, an init container failed.
}

TEST(OwnContainer, OfAPodThatItsNodeEndedDoesNotCount) {
  Json pod = injected_pod();
  pod["status"]["phase"] = "Failed";
  EXPECT_EQ(view_of(pod)->phase, PodPhase::kSucceeded);
  pod["status"]["reason"] = "Evicted";
  EXPECT_EQ(view_of(pod)->phase, PodPhase::kFailed);
  EXPECT_EQ(view_of(pod)->cause, Cause::kLostPod);
  pod["status"]["reason"] = "DeadlineExceeded";  // The template's own deadline.
  EXPECT_EQ(view_of(pod)->phase, PodPhase::kFailed);
  EXPECT_THAT(view_of(pod)->why, StartsWith("DeadlineExceeded"));
  pod["spec"]["activeDeadlineSeconds"] = 1;  // The operator's.
  EXPECT_EQ(view_of(pod)->phase, PodPhase::kSucceeded);
}

}  // namespace
}  // namespace corro::kube
