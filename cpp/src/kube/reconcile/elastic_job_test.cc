#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/sample_jobs.h"
#include "kube/reconcile/trimmed.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Harm = ClusterModel::Harm;
using std::chrono::seconds;

constexpr const char* kRights = "mnist-11111111-2222-3333-4444-555555555555";

std::map<std::string, std::string> variables_in(const ClusterModel& cluster,
                                                const std::string& pod) {
  return variables_of((*cluster.get("Pod", pod))["spec"]["containers"][0]);
}

TEST(ElasticJob, HeadAndWorkersKnowHowManyThereMayBeAndTheHeadHasRightsOfItsOwn) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"worker": {"slots": 4}})"), 1);
  ASSERT_TRUE(cluster.settle());
  for (const char* pod : {"mnist-head", "mnist-worker-0-g0"}) {
    auto variables = variables_in(cluster, pod);
    EXPECT_EQ(variables["CORRO_SLOTS"], "4");
    EXPECT_EQ(variables["CORRO_MIN_WORKERS"], "1");
    EXPECT_EQ(variables["CORRO_MAX_WORKERS"], "8");
    EXPECT_FALSE(variables.contains("CORRO_WORKERS"));
  }
  EXPECT_EQ(variables_in(cluster, "mnist-head")["CORRO_STORE"],
            std::string("kubernetes:default/") + kRights);
  EXPECT_EQ(variables_in(cluster, "mnist-head")["CORRO_ROUND"], "0");
  const std::string name = kRights;
  EXPECT_THAT(names_made(cluster),
              IsSupersetOf({"ServiceAccount/" + name, "Role/" + name, "RoleBinding/" + name,
                            "Lease/" + name + "-head", "ConfigMap/" + name + "-record",
                            "ConfigMap/" + name + "-progress"}));
  const Json& head = (*cluster.get("Pod", "mnist-head"))["spec"];
  EXPECT_EQ(head["serviceAccountName"], kRights);
  EXPECT_EQ(head["automountServiceAccountToken"], true);
  for (const Json& rule : cluster.bodies.at("Role/" + name)["rules"])
    for (const Json& object : rule["resourceNames"])
      EXPECT_TRUE(object.get<std::string>().starts_with(kRights)) << rule;
}

TEST(ElasticJob, AFolderHasAVolumeInHeadAndWorkersAndTheHeadKnowsWhich) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"sync": "/workspace/project"})"), 1);
  ASSERT_TRUE(cluster.settle());
  const Json mount = {
      {"name", "corro-workspace"}, {"mountPath", "/workspace"}, {"readOnly", false}};
  for (const char* pod : {"mnist-head", "mnist-worker-0-g0"}) {
    const Json& spec = (*cluster.get("Pod", pod))["spec"];
    EXPECT_THAT(spec["containers"][0]["volumeMounts"], Contains(mount)) << pod;
    const Json volume = {{"name", "corro-workspace"}, {"emptyDir", Json::object()}};
    EXPECT_THAT(spec["volumes"], Contains(volume)) << pod;
  }
  EXPECT_EQ(variables_in(cluster, "mnist-head")["CORRO_SYNC"], "/workspace/project");
  EXPECT_FALSE(variables_in(cluster, "mnist-worker-0-g0").contains("CORRO_SYNC"));
}

TEST(ElasticJob, AHeadHasTheKeysOfAllWorkersThatMayCome) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"worker": {"max": 600}})"), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.fills.size(), 3U);
  cluster.change_spec(workers_of(cluster, 300));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), Contains("mnist-head"));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(ElasticJob, ALostWorkerIsReplacedAloneAndTheJobGoesOnRunning) {
  ClusterModel cluster(sample_elastic_job(3), 1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(cluster.harm_pod("mnist-worker-1-g0", Harm::kEvict));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_FALSE(cluster.is_true("Restarting"));
  EXPECT_THAT(message_of(cluster, "Running"), HasSubstr("2 of 3 workers run"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-worker-0-g0",
                                                        "mnist-worker-1-g1", "mnist-worker-2-g0"));
  EXPECT_THAT(cluster.events, Contains("Normal CorroJobReplacing"));
  EXPECT_EQ(status_of(cluster, "/restartCounts/lostPod"), Json(1));
  EXPECT_EQ(message_of(cluster, "Running"), "CorroJob default/mnist is running.");
}

TEST(ElasticJob, AWorkerThatLeftWellIsReplacedWhileTheJobRuns) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.end_well("mnist-worker-0-g0");
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_THAT(names_made(cluster), Not(Contains("Pod/mnist-worker-0-g1")))
      << "the job may be about to end";
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), Contains("mnist-worker-0-g1"));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(ElasticJob, AnotherSizeTouchesNoOtherPod) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/selector"),
            Json("training.corro.dev/job-uid=11111111-2222-3333-4444-555555555555,"
                 "training.corro.dev/role=worker"));
  cluster.change_spec(workers_of(cluster, 4));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head", "mnist-worker-0-g0", "mnist-worker-1-g0",
                                   "mnist-worker-2-g0", "mnist-worker-3-g0"));
  cluster.change_spec(workers_of(cluster, 1));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-worker-0-g0"));
  EXPECT_EQ(status_of(cluster, "/restarts"), Json(0));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(ElasticJob, RunsWithWhatItGotAndSaysWhatIsMissingAndWhy) {
  ClusterModel cluster(sample_elastic_job(3), 1);
  cluster.room = 3;  // The head and two workers.
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_THAT(message_of(cluster, "Running"), HasSubstr("2 of 3 workers run"));
}

TEST(ElasticJob, DoesNotRunWithFewerWorkersThanItNeeds) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.room = 1;  // The head.
  ASSERT_TRUE(cluster.harm_pod("mnist-worker-0-g0", Harm::kEvict));
  ASSERT_TRUE(cluster.harm_pod("mnist-worker-1-g0", Harm::kEvict));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Pending");
  EXPECT_FALSE(cluster.is_true("Running"));
  EXPECT_THAT(message_of(cluster, "Pending"), HasSubstr("0 of 2 workers run"));
  cluster.room = 1000;
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_FALSE(cluster.is_true("Pending"));
  EXPECT_EQ(status_of(cluster, "/restartCounts/lostPod"), Json(2));
}

TEST(ElasticJob, KueueAdmitsItsPodsOneByOne) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"queue": "team-a"})"), 1);
  ASSERT_TRUE(cluster.settle());
  const Json& metadata = (*cluster.get("Pod", "mnist-worker-0-g0"))["metadata"];
  EXPECT_EQ(metadata["labels"]["kueue.x-k8s.io/queue-name"], "team-a");
  EXPECT_FALSE(metadata["labels"].contains("kueue.x-k8s.io/pod-group-name"));
}

TEST(ElasticJob, SaysWhichQueueOfKueueItsWorkersWaitIn) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"queue": "team-a"})"), 1);
  ASSERT_TRUE(cluster.settle());
  Json pod = *cluster.get("Pod", "mnist-worker-1-g0");
  pod["spec"].erase("nodeName");
  pod["spec"]["schedulingGates"] = patched(R"([{"name": "kueue.x-k8s.io/admission"}])");
  pod["status"] = patched(R"({"phase": "Pending", "conditions": [
      {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
       "message": "Scheduling is blocked due to non-empty scheduling gates"}]})");
  trim(pod);
  cluster.put(pod);
  cluster.pass(seconds(2));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_THAT(message_of(cluster, "Running"),
              HasSubstr("1 of 2 workers run; mnist-worker-1-g0: waits in queue team-a of Kueue"));
}

TEST(ElasticJob, SaysWhyKueueEndedItsWorker) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  Json pod = *cluster.get("Pod", "mnist-worker-1-g0");
  pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  pod["status"]["conditions"] = patched(R"([{"type": "TerminationTarget", "status": "True",
      "reason": "WorkloadEvictedDueToClusterQueueStopped",
      "message": "The ClusterQueue is stopped"}])");
  trim(pod);
  EXPECT_EQ(view_of(pod)->cause, Cause::kLostPod);
  EXPECT_EQ(view_of(pod)->why,
            "WorkloadEvictedDueToClusterQueueStopped: The ClusterQueue is stopped");
}

TEST(ElasticJob, HasSucceededWhenItsHeadHas) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.end_well("mnist-worker-1-g0");
  cluster.end_well("mnist-head");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Succeeded");
  EXPECT_THAT(names_made(cluster), Not(Contains("Pod/mnist-worker-1-g1")));
}

TEST(ElasticJob, BeginsAnewWithNewPodsWhenItsRanksHaveFailed) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(cluster.harm_pod("mnist-head", Harm::kExitCode));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head-g1", "mnist-worker-0-g1", "mnist-worker-1-g1"));
  EXPECT_EQ(variables_in(cluster, "mnist-head-g1")["CORRO_ROUND"], "1");
  EXPECT_EQ(status_of(cluster, "/restartCounts/userError"), Json(1));
  EXPECT_EQ(cluster.state(), "Running");
}

/// Its head ends so.
void end_head(ClusterModel& cluster, int code, const std::string& message) {
  cluster.end_container("mnist-head", "head", {{"exitCode", code}, {"message", message}});
}

TEST(ElasticJob, BeginsAnewWithNoFailureOfTheUsersWhenTooFewWorkersAreLeft) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"restart": {"userError": {"limit": 0}}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  end_head(cluster, 75, "corro: too few workers are left: all ranks have left");
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head-g1", "mnist-worker-0-g1", "mnist-worker-1-g1"));
  EXPECT_EQ(variables_in(cluster, "mnist-head-g1")["CORRO_ROUND"], "1");
  EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"lostPod": 1})"));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(ElasticJob, AHeadThatHasNotLedTheJobToItsEndIsReplacedAlone) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"restart": {"userError": {"limit": 0},
                            "outOfMemory": {"limit": 0}}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  end_head(cluster, 137, "");
  ASSERT_TRUE(cluster.settle());
  cluster.end_container("mnist-head-g1", "head", {{"exitCode", 2}, {"message", "corro: no right"}});
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(cluster.harm_pod("mnist-head-g2", Harm::kOutOfMemory));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head-g3", "mnist-worker-0-g0", "mnist-worker-1-g0"));
  EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"lostPod": 3})"));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(ElasticJob, ARankThatTheKernelKilledForItsMemoryIsCountedSo) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  end_head(cluster, 137,
           "corro: the job has failed: out of memory: cgroup limit 1 GiB (rank 0 on worker-0)");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"outOfMemory": 1})"));
}

TEST(ElasticJob, HasFailedWhenItsRanksHaveOnceTooOften) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"restart": {"userError": {"limit": 0}}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(cluster.harm_pod("mnist-head", Harm::kExitCode));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Failed");
}

/// The job's head says this of its progress.
void tell(ClusterModel& cluster, const char* progress) {
  Json map = *cluster.get("ConfigMap", std::string(kRights) + "-progress");
  map["data"]["progress"] = progress;
  cluster.put(std::move(map));
}

TEST(ElasticJob, WhatItsHeadTellsIsInTheStatusAndEachChangeIsAnEventOnce) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  tell(cluster, R"({"epoch": 1, "ranks": 3, "step": 40, "stepsPerSecond": 2.5, "changes": [
      {"time": "2026-11-28T10:00:00.000000Z", "text": "2 ranks go on"},
      {"time": "2026-11-28T10:00:01.000000Z", "text": "3 ranks go on"}]})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/progress"),
            patched(R"({"epoch": 1, "ranks": 3, "step": 40, "stepsPerSecond": 2.5,
                        "lastChange": "3 ranks go on",
                        "lastChangeTime": "2026-11-28T10:00:01.000000Z"})"));
  const auto told = [&cluster] {
    return std::ranges::count(cluster.events, "Normal CorroJobMembersChanged");
  };
  EXPECT_EQ(told(), 2);
  cluster.restart_operator();
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(told(), 2);
}

TEST(ElasticJob, WhatAHeadTellsWhoseClockIsLateIsNotLost) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  const auto told = [&cluster] {
    return std::ranges::count(cluster.events, "Normal CorroJobMembersChanged");
  };
  tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 40, "changes": [
      {"time": "2026-11-28T10:00:00.000000Z", "text": "2 ranks go on"}]})");
  ASSERT_TRUE(cluster.settle());
  ASSERT_EQ(told(), 1);
  // The next head is an hour late, and tells of its own changes alone.
  tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 41, "changes": []})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/progress/lastChange"), "2 ranks go on");
  tell(cluster, R"({"epoch": 2, "ranks": 1, "step": 42, "changes": [
      {"time": "2026-11-28T09:00:00.000000Z", "text": "1 rank goes on"}]})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(told(), 2);
  EXPECT_EQ(status_of(cluster, "/progress/lastChange"), "1 rank goes on");
  EXPECT_EQ(status_of(cluster, "/progress/lastChangeTime"), "2026-11-28T09:00:00.000000Z");
  tell(cluster, R"({"epoch": 3, "ranks": 2, "step": 43, "changes": [
      {"time": "2026-11-28T09:00:00.000000Z", "text": "1 rank goes on"},
      {"time": "2026-11-28T09:00:01.000000Z", "text": "2 ranks go on"}]})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(told(), 3);
}

TEST(ElasticJob, TheLastCheckpointStaysInTheStatusWhenAHeadTellsOfNone) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 45, "changes": [], "lastCheckpoint": {
      "step": 40, "time": "2026-11-28T10:00:00.000000Z", "path": "/checkpoint/run/step-40"}})");
  ASSERT_TRUE(cluster.settle());
  const Json first = patched(R"({"step": 40, "time": "2026-11-28T10:00:00.000000Z",
                                 "path": "/checkpoint/run/step-40"})");
  EXPECT_EQ(status_of(cluster, "/progress/lastCheckpoint"), first);
  tell(cluster, R"({"epoch": 2, "ranks": 2, "step": 46, "changes": []})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/progress/step"), Json(46));
  EXPECT_EQ(status_of(cluster, "/progress/lastCheckpoint"), first);
  tell(cluster, R"({"step": 60, "lastCheckpoint": {"step": 50,
                    "time": "2026-11-28T10:00:10.000000Z"}})");
  ASSERT_TRUE(cluster.settle());
  Json endless = patched(R"({"lastCheckpoint": {"step": 60,
                             "time": "2026-11-28T10:00:20.000000Z"}})");
  endless["lastCheckpoint"]["path"] = std::string(4097, 'p');
  tell(cluster, endless.dump().c_str());
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/progress/lastCheckpoint"),
            patched(R"({"step": 50, "time": "2026-11-28T10:00:10.000000Z"})"))
      << "the path is not that of another one";
}

TEST(ElasticJob, ANewRoundKeepsOfItsProgressTheLastCheckpointAlone) {
  const char* told = R"({"epoch": 3, "ranks": 2, "step": 45, "stepsPerSecond": 49.3, "round": "0",
      "changes": [{"time": "2026-11-28T10:00:00.000000Z", "text": "2 ranks go on"}],
      "lastCheckpoint": {"step": 40, "time": "2026-11-28T10:00:00.000000Z"}})";
  const Json kept =
      patched(R"({"lastCheckpoint": {"step": 40, "time": "2026-11-28T10:00:00.000000Z"}})");
  for (const bool is_suspended : {false, true}) {
    ClusterModel cluster(sample_elastic_job(2), 1);
    ASSERT_TRUE(cluster.settle());
    tell(cluster, told);
    ASSERT_TRUE(cluster.settle());
    ASSERT_EQ(status_of(cluster, "/progress/ranks"), Json(2));
    if (is_suspended) {
      cluster.change_spec(patched(R"({"suspend": true})"));
    } else {
      ASSERT_TRUE(cluster.harm_pod("mnist-head", Harm::kExitCode));
    }
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(status_of(cluster, "/progress"), kept) << "what the old head has said still stands";
    tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 0, "round": "1"})");
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(status_of(cluster, "/progress/step"), Json(0));
    EXPECT_EQ(status_of(cluster, "/progress/ranks"), Json(2));
  }
}

TEST(ElasticJob, ANewHeadThatHasHeardOfNoStepAndRateSaysNothingOfTheStep) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 40172, "stepsPerSecond": 49.3, "round": "0"})");
  ASSERT_TRUE(cluster.settle());
  tell(cluster, R"({"epoch": 1, "ranks": 2, "step": 0, "round": "0"})");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/progress"), patched(R"({"epoch": 1, "ranks": 2, "step": 40172})"));
}

TEST(ElasticJob, IsNotPendingBetweenTheEndsOfItsWorkersAndOfItsHead) {
  ClusterModel cluster(with(sample_elastic_job(2), R"({"worker": {"min": 2}})"), 1);
  ASSERT_TRUE(cluster.settle());
  for (const char* pod : {"mnist-worker-0-g0", "mnist-worker-1-g0"}) {
    cluster.end_well(pod);
    cluster.deliver_all();
    cluster.reconcile_once({});
    EXPECT_EQ(cluster.state(), "Running");
    EXPECT_FALSE(cluster.is_true("Pending"));
  }
  cluster.end_well("mnist-head");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Succeeded");
}

TEST(ElasticJob, ThePlanStaysInTheStatusUntilAHeadTellsOfAnother) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  const auto plan_after = [&cluster](const Json& told) {
    tell(cluster, told.dump().c_str());
    EXPECT_TRUE(cluster.settle());
    return status_of(cluster, "/progress/plan");
  };
  EXPECT_EQ(plan_after({{"step", 1}, {"plan", "two stages"}}), Json("two stages"));
  EXPECT_EQ(plan_after({{"step", 2}}), Json("two stages"));
  EXPECT_EQ(plan_after({{"step", 3}, {"plan", std::string(64, 'p')}}), Json("two stages"));
  EXPECT_EQ(plan_after({{"step", 4}, {"plan", std::string(63, 'p')}}), Json(std::string(63, 'p')));
  EXPECT_EQ(status_of(cluster, "/progress/step"), Json(4));
}

TEST(ElasticJob, NonsenseOfItsHeadIsLeftOut) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  for (const char* nonsense :
       {"", "[]", "{", R"({"epoch": -1, "ranks": "3", "step": 1e30, "changes": [1, {"time": 2}]})",
        R"({"epoch": 99999999999, "stepsPerSecond": "x", "changes": {"a": []}})", R"({"plan": 7})",
        R"({"plan": ""})", R"({"lastCheckpoint": 7})",
        R"({"lastCheckpoint": {"step": 7, "time": "noon"}})",
        R"({"lastCheckpoint": {"step": -7, "time": "2026-11-28T10:00:00Z"}})"}) {
    tell(cluster, nonsense);
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(status_of(cluster, "/progress/lastChange"), Json()) << nonsense;
    EXPECT_EQ(cluster.state(), "Running");
  }
  EXPECT_THAT(status_of(cluster, "/progress").dump(), "{}");
}

TEST(ElasticJob, ALostHeadIsReplacedAndTheRanksGoOn) {
  ClusterModel cluster(sample_elastic_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_TRUE(cluster.harm_pod("mnist-head", Harm::kEvict));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head-g1", "mnist-worker-0-g0", "mnist-worker-1-g0"));
  EXPECT_EQ(variables_in(cluster, "mnist-head-g1")["CORRO_ROUND"], "0");
}

}  // namespace
}  // namespace corro::kube
