// Above 800 lines: one table of what reconcile() does, section by section; the sections share their
// helpers.
#include "kube/reconcile/reconcile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/members.h"
#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"
#include "kube/reconcile/status_draft.h"
#include "kube/reconcile/time_text.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;
using Harm = ClusterModel::Harm;
using std::chrono::seconds;

// ---- what is made ------------------------------------------------------------------------------

// mpijob same: case.all-resources
// mpijob different: head
TEST(Reconcile, AnMpiJobGetsItsObjectsUnderTheirNames) {
  for (const char* implementation : {"OpenMPI", "Intel", "MPICH"}) {
    Json job = sample_mpi_job(2);
    job["spec"]["mpiImplementation"] = implementation;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(names_made(cluster),
                UnorderedElementsAre("ConfigMap/mnist-config", "Job/mnist-launcher",
                                     "Pod/mnist-head", "Pod/mnist-worker-0", "Pod/mnist-worker-1",
                                     "Secret/mnist-11111111-2222-3333-4444-555555555555",
                                     "Service/mnist", "Service/mnist-head"));
    EXPECT_EQ(cluster.state(), "Running");
  }
}

TEST(Reconcile, ACorroJobGetsItsObjectsUnderTheirNames) {
  ClusterModel cluster(sample_corro_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(names_made(cluster),
              UnorderedElementsAre("NetworkPolicy/mnist", "Pod/mnist-head", "Pod/mnist-worker-0-g0",
                                   "Pod/mnist-worker-1-g0",
                                   "Secret/mnist-11111111-2222-3333-4444-555555555555",
                                   "Service/mnist", "Service/mnist-head"));
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_THAT(cluster.fills, Contains("mnist-11111111-2222-3333-4444-555555555555"));
}

TEST(Reconcile, NoPodIsMadeBeforeTheHeadHasAnAddress) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_THAT(cluster.list("Pod"), IsEmpty());
  EXPECT_EQ(reason_of(cluster, "Pending"), "HeadAddressPending");
  cluster.deliver_all();
  cluster.reconcile_once({});
  const Json& pod = *cluster.get("Pod", "mnist-worker-0");
  EXPECT_EQ(variables_of(pod["spec"]["containers"][0])["CORRO_HEAD"], "10.96.0.7:7077");
}

TEST(Reconcile, AMemberSeesItsOwnKeyAndTheHeadThatOfEachPart) {
  ClusterModel cluster(with(sample_corro_job(257), R"({"worker": {"max": 300}})"), 1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_EQ(cluster.list("Pod").size(), 258U);
  const std::string secret = "mnist-11111111-2222-3333-4444-555555555555";
  const auto volume_of = [&](const char* pod) {
    for (const Json& volume : (*cluster.get("Pod", pod))["spec"]["volumes"])
      if (volume["name"] == "corro-token") return volume;
    return Json();
  };
  const Json own = volume_of("mnist-worker-256-g0")["secret"];
  EXPECT_EQ(own["secretName"], secret + "-1");
  EXPECT_EQ(own["items"], patched(R"([{"key": "worker-256", "path": "key"}])"));
  const Json parts = volume_of("mnist-head")["projected"]["sources"];
  ASSERT_EQ(parts.size(), 2U);
  EXPECT_EQ(parts[0]["secret"]["name"], secret);
  EXPECT_EQ(parts[0]["secret"]["items"], patched(R"([{"key": "head", "path": "key"}])"));
  EXPECT_EQ(parts[1]["secret"]["name"], secret + "-1");
  EXPECT_EQ(parts[1]["secret"]["items"], patched(R"([{"key": "head", "path": "key-1"}])"));
  const Json& last = (*cluster.get("Pod", "mnist-worker-256-g0"))["spec"]["containers"][0];
  EXPECT_EQ(variables_of(last)["CORRO_PART"], "1");
  const Json& first = (*cluster.get("Pod", "mnist-worker-255-g0"))["spec"]["containers"][0];
  EXPECT_FALSE(variables_of(first).contains("CORRO_PART"));
}

TEST(Reconcile, AnMpiJobThatGrowsBeyondItsSecretsGetsAHeadThatKnowsTheNewOne) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  const char* resize = R"({"mpiReplicaSpecs": {"Worker": {"replicas": 3}}})";
  cluster.change_spec(patched(resize));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(names_made(cluster), Not(Contains("Pod/mnist-head-g1")));
  resize = R"({"mpiReplicaSpecs": {"Worker": {"replicas": 257}}})";
  cluster.change_spec(patched(resize));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(names_made(cluster), Contains("Pod/mnist-head-g1"));
  EXPECT_EQ(cluster.get("Pod", "mnist-head"), nullptr);
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(Reconcile, AWorkersCommandBecomesTheAgentsChild) {
  ClusterModel cluster(sample_corro_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  const Json& spec = (*cluster.get("Pod", "mnist-worker-0-g0"))["spec"];
  EXPECT_EQ(spec["containers"][0]["command"],
            patched(R"(["/corro/bin/corro", "agent", "--pod", "--", "train"])"));
  EXPECT_EQ(spec["initContainers"][0]["name"], "corro-agent");
  EXPECT_EQ(spec["hostname"], "mnist-worker-0");
  EXPECT_EQ(spec["subdomain"], "mnist");
  EXPECT_EQ(spec["restartPolicy"], "Never");
}

// mpijob different: no-sshd
TEST(Reconcile, AnSshdOrNoCommandLeavesTheAgentAlone) {
  for (const char* command : {R"([])", R"([""])", R"(["/usr/sbin/sshd", "-De"])"}) {
    Json job = sample_mpi_job(1);
    job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]["command"] =
        patched(command);
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ((*cluster.get("Pod", "mnist-worker-0"))["spec"]["containers"][0]["command"],
              patched(R"(["/corro/bin/corro", "agent", "--pod"])"));
  }
}

TEST(Reconcile, ALauncherWithoutCommandKeepsItsEntrypointAndSaysWhatIsLost) {
  Json job = sample_mpi_job(1);
  job["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0].erase("command");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  const Json& pod = (*cluster.get("Job", "mnist-launcher"))["spec"]["template"];
  EXPECT_FALSE(pod["spec"]["containers"][0].contains("command"));
  EXPECT_EQ(variables_of(pod["spec"]["containers"][0])["OMPI_MCA_plm_rsh_agent"], "/corro/bin/ssh");
  EXPECT_THAT(message_of(cluster, "Running"), HasSubstr("launcher has no command"));
}

// mpijob different: ssh-secret-always; env-shell
TEST(Reconcile, RealSshIsThereOnlyIfTheUserAsksForIt) {
  ClusterModel cluster(with(sample_mpi_job(1), R"({"sshAuthMountPath": "/home/mpi/.ssh"})"), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.fills, Contains("mnist-ssh-11111111-2222-3333-4444-555555555555"));
  const Json& spec = (*cluster.get("Pod", "mnist-worker-0"))["spec"];
  EXPECT_THAT(spec.dump(), HasSubstr("/home/mpi/.ssh"));
  const Json& launcher = (*cluster.get("Job", "mnist-launcher"))["spec"]["template"]["spec"];
  EXPECT_THAT(variables_of(launcher["containers"][0]),
              Not(Contains(Key("OMPI_MCA_plm_rsh_agent"))));
}

TEST(Reconcile, ACorroJobsPodsHaveItsClaimsPriorityAndQueue) {
  ClusterModel cluster(with(sample_corro_job(1), R"({"priorityClass": "high", "queue": "team",
      "checkpoint": {"claim": "state"}, "data": [{"claim": "sets", "mountPath": "/data"}]})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  const Json& pod = *cluster.get("Pod", "mnist-worker-0-g0");
  EXPECT_EQ(pod["spec"]["priorityClassName"], "high");
  EXPECT_EQ(pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"], "team");
  EXPECT_THAT(pod["spec"]["containers"][0]["volumeMounts"],
              IsSupersetOf({patched(R"({"name": "corro-checkpoint", "mountPath": "/checkpoint",
                                         "readOnly": false})"),
                            patched(R"({"name": "corro-data-0", "mountPath": "/data",
                                         "readOnly": true})")}));
}

TEST(Reconcile, OnlyPodsOfTheJobReachItsPods) {
  ClusterModel cluster(sample_corro_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  const Json own = patched(R"({"matchLabels": {
      "training.corro.dev/job-uid": "11111111-2222-3333-4444-555555555555"}})");
  const Json& policy = (*cluster.get("NetworkPolicy", "mnist"))["spec"];
  EXPECT_EQ(policy["podSelector"], own);
  EXPECT_EQ(policy["ingress"][0]["from"][0]["podSelector"], own);
}

TEST(Reconcile, EverythingIsOwnedByTheJob) {
  for (const Json& job : {sample_mpi_job(2), sample_corro_job(2), sample_mpi_job(1, "v1")}) {
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    for (const char* kind : {"Secret", "Service", "ConfigMap", "NetworkPolicy", "Job"}) {
      for (const Json* object : cluster.list(kind)) {
        EXPECT_TRUE(is_controlled_by(*object, "11111111-2222-3333-4444-555555555555"));
        EXPECT_EQ((*object)["metadata"]["ownerReferences"][0]["kind"], job["kind"]);
      }
    }
  }
}

/// Golden objects: a change of what is made shows in a diff of golden_objects.json. After a change
/// that is meant, take the file that the failure names.
// mpijob same: case.launcher-and-worker
TEST(Reconcile, MakesTheGoldenObjects) {
  Json all = Json::object();
  Json v2 = sample_mpi_job(1);
  v2["spec"]["runLauncherAsWorker"] = true;
  v2["spec"]["sshAuthMountPath"] = "/home/mpi/.ssh";
  Options options;
  options.served.volcano = true;
  options.gang_scheduler = "volcano";
  const std::map<std::string, Json> jobs = {{"CorroJob", sample_corro_job(1)},
                                            {"MPIJob v2beta1", v2},
                                            {"MPIJob v1", sample_mpi_job(1, "v1")},
                                            {"MPIJob v1alpha2, of Horovod", sample_horovod_job()}};
  for (const auto& [name, job] : jobs) {
    ClusterModel cluster(job, 1, name == "MPIJob v1" ? Options{} : options);
    ASSERT_TRUE(cluster.settle());
    all[name] = cluster.bodies;
  }
  std::ifstream file(CORRO_KUBE_SOURCES "/golden_objects.json");
  const Json golden = Json::parse(file, nullptr, false);
  if (golden == all) return;
  const std::string made = ::testing::TempDir() + "golden_objects.json";
  std::ofstream(made) << all.dump(1) << "\n";
  FAIL() << "not as in golden_objects.json: " << made << "\n"
         << merge_patch_between(golden.is_object() ? golden : Json::object(), all).dump(1);
}

TEST(Reconcile, PodsLeaveANodeThatDoesNotAnswerUnlessTheirTemplateSaysHowLongTheyStay) {
  Json job = sample_corro_job(1);
  Json& spec = job["spec"]["worker"]["template"]["spec"];
  spec["tolerations"] = patched(R"([{"key": "node.kubernetes.io/not-ready", "operator": "Exists",
                                     "effect": "NoExecute", "tolerationSeconds": 600}])");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  const auto stays = [&](const std::string& pod) {
    std::map<std::string, int> stay;
    for (const Json& each : (*cluster.get("Pod", pod))["spec"]["tolerations"])
      stay[each["key"]] = each["tolerationSeconds"];
    return stay;
  };
  EXPECT_THAT(stays("mnist-worker-0-g0"),
              UnorderedElementsAre(Pair("node.kubernetes.io/not-ready", 600),
                                   Pair("node.kubernetes.io/unreachable", 30)));
  // The head goes where the workers may.
  EXPECT_EQ(stays("mnist-head"), stays("mnist-worker-0-g0"));
}

TEST(Reconcile, TheHeadHasTheWorkersPriorityAndPullSecrets) {
  for (const bool has_own : {false, true}) {
    Json job = sample_corro_job(1);
    Json& spec = job["spec"]["worker"]["template"]["spec"];
    spec["imagePullSecrets"] = patched(R"([{"name": "registry"}])");
    spec["priorityClassName"] = "low";
    if (has_own) job["spec"]["priorityClass"] = "high";
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    const Json& head = (*cluster.get("Pod", "mnist-head"))["spec"];
    EXPECT_EQ(head["imagePullSecrets"], spec["imagePullSecrets"]);
    EXPECT_EQ(head["priorityClassName"], has_own ? "high" : "low");
  }
}

TEST(Reconcile, AgentsThatLostTheHeadOrNeverReachedItAreNoErrorOfTheUser) {
  for (const std::string why :
       {"was lost and did not come back", "was never reached for 10 min: it does not answer"}) {
    ClusterModel cluster(with(sample_corro_job(1), R"({"restart": {"userError": {"limit": 0}}})"),
                         1);
    ASSERT_TRUE(cluster.settle());
    Json lost = *cluster.get("Pod", "mnist-worker-0-g0");
    lost["status"]["phase"] = "Failed";
    lost["status"]["containerStatuses"] =
        patched(R"([{"name": "main", "state": {"terminated": {"exitCode": 75}}}])");
    lost["status"]["containerStatuses"][0]["state"]["terminated"]["message"] =
        "corro: the head at 10.96.0.7:7077 " + why;
    cluster.put(lost);
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.state(), "Running");
    EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"lostPod": 1})"));
  }
}

// ---- gangs -------------------------------------------------------------------------------------

struct GangCase {
  const char* name;
  Served served;
  const char* gang;
  const char* api_version;
  const char* pod_field;  ///< JSON pointer of what makes the pod one of the gang.
  const char* group = "mnist";
};

class CorroGang : public ::testing::TestWithParam<GangCase> {};

TEST_P(CorroGang, HasAPodGroupWithTheLeastNumberOfWorkers) {
  Options options;
  options.served = GetParam().served;
  ClusterModel cluster(with(sample_elastic_job(3), GetParam().gang), 1, options);
  ASSERT_TRUE(cluster.settle());
  const Json* group = cluster.get("PodGroup", GetParam().group);
  ASSERT_NE(group, nullptr);
  EXPECT_EQ((*group)["apiVersion"], GetParam().api_version);
  EXPECT_THAT((*group)["spec"].dump(), HasSubstr(":1"));
  const Json& worker = *cluster.get("Pod", "mnist-worker-0-g0");
  EXPECT_EQ(worker[Json::json_pointer(GetParam().pod_field)], GetParam().group);
  EXPECT_FALSE(
      cluster.get("Pod", "mnist-head")->contains(Json::json_pointer(GetParam().pod_field)));
}

INSTANTIATE_TEST_SUITE_P(
    Apis, CorroGang,
    ::testing::Values(GangCase{"native",
                               {"v1alpha2", true, true},
                               "{}",
                               "scheduling.k8s.io/v1alpha2",
                               "/spec/schedulingGroup/podGroupName",
                               "mnist-1"},
                      GangCase{"volcano",
                               {"", true, true},
                               "{}",
                               "scheduling.volcano.sh/v1beta1",
                               "/metadata/annotations/scheduling.k8s.io~1group-name"},
                      GangCase{"plugins",
                               {"", false, true},
                               "{}",
                               "scheduling.x-k8s.io/v1alpha1",
                               "/metadata/labels/scheduling.x-k8s.io~1pod-group"},
                      GangCase{"named",
                               {"v1alpha2", true, true},
                               R"({"gang": "Volcano"})",
                               "scheduling.volcano.sh/v1beta1",
                               "/metadata/annotations/scheduling.k8s.io~1group-name"}),
    [](const auto& test) { return std::string(test.param.name); });

TEST(Reconcile, WhatReplacesAPodOfASmallerJobWaitsForNoGangOfALargerOne) {
  Options options;
  options.served.native_gang = "v1alpha2";
  ClusterModel cluster(with(sample_corro_job(3), R"({"worker": {"min": 3}})"), 1, options);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"worker": {"min": 1, "target": 1}})"));
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0-g0", Harm::kEvict);
  ASSERT_TRUE(cluster.settle());
  const Json* alone = cluster.get("Pod", "mnist-worker-0-g1");
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ((*alone)["spec"]["schedulingGroup"]["podGroupName"], "mnist-1");
  EXPECT_EQ((*alone)["status"]["phase"], "Running");
  // What is added starts together: there are enough of them for a group of three.
  cluster.change_spec(patched(R"({"worker": {"min": 3, "target": 4}})"));
  ASSERT_TRUE(cluster.settle());
  const Json& added = *cluster.get("Pod", "mnist-worker-3-g0");
  EXPECT_EQ(added["spec"]["schedulingGroup"]["podGroupName"], "mnist-3");
}

TEST(Reconcile, AGangThatIsNotServedBlocksTheJob) {
  ClusterModel cluster(with(sample_corro_job(1), R"({"gang": "Volcano"})"), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.list("Pod"), IsEmpty());
  EXPECT_EQ(reason_of(cluster, "Pending"), "GangNotServed");
  EXPECT_THAT(cluster.events, Contains("Warning GangNotServed"));
}

// mpijob different: gang-waiting-launcher
TEST(Reconcile, AWaitingLauncherIsNotCountedByItsGang) {
  Options options;
  options.gang_scheduler = "volcano";
  options.served.volcano = true;
  ClusterModel at_once(sample_mpi_job(2), 1, options);
  ASSERT_TRUE(at_once.settle());
  EXPECT_EQ((*at_once.get("PodGroup", "mnist"))["spec"]["minMember"], 3);
  Json job = with(sample_mpi_job(2), R"({"launcherCreationPolicy": "WaitForWorkersReady",
      "runPolicy": {"schedulingPolicy": {"minAvailable": 3, "queue": "team"}}})");
  ClusterModel waits(job, 1, options);
  ASSERT_TRUE(waits.settle());
  EXPECT_EQ((*waits.get("PodGroup", "mnist"))["spec"]["minMember"], 2);
  EXPECT_EQ((*waits.get("PodGroup", "mnist"))["spec"]["queue"], "team");
  EXPECT_EQ(waits.state(), "Running");
}

// mpijob same: gang-follows
TEST(Reconcile, APodGroupFollowsTheSpec) {
  Options options;
  options.gang_scheduler = "scheduler-plugins-scheduler";
  options.served.scheduler_plugins = true;
  ClusterModel cluster(sample_mpi_job(2), 1, options);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"mpiReplicaSpecs": {"Worker": {"replicas": 4}}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("PodGroup", "mnist"))["spec"]["minMember"], 5);
}

// mpijob same: v2.minResources; min-resources; case.min-resources
TEST(Reconcile, AGangsResourcesAreComputedUnlessTheUserSaysThem) {
  Options options;
  options.gang_scheduler = "volcano";
  options.served.volcano = true;
  Json job = with(sample_mpi_job(2), R"({"runPolicy": {"schedulingPolicy": {
      "minResources": {"cpu": "1000"}}}})");
  for (const char* role : {"Launcher", "Worker"})
    job["spec"]["mpiReplicaSpecs"][role]["template"]["spec"]["containers"][0]["resources"] =
        patched(R"({"requests": {"memory": "1Gi"}})");
  ClusterModel cluster(job, 1, options);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("PodGroup", "mnist"))["spec"]["minResources"],
            patched(R"({"cpu": "1000"})"));
  cluster.change_spec(patched(R"({"runPolicy": {"schedulingPolicy": null}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("PodGroup", "mnist"))["spec"]["minResources"],
            patched(R"({"memory": "3221225472"})"));
}

// ---- whose job it is ---------------------------------------------------------------------------

// mpijob same: events
// mpijob different: validation-event; case.invalid
TEST(Reconcile, AnInvalidSpecShowsAConditionAndMakesNothing) {
  ClusterModel cluster(with(sample_mpi_job(1), R"({"runPolicy": {"cleanPodPolicy": "Bogus"}})"), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(names_made(cluster), IsEmpty());
  EXPECT_EQ(reason_of(cluster, "Pending"), "ValidationError");
  EXPECT_THAT(message_of(cluster, "Pending"), HasSubstr("spec.runPolicy.cleanPodPolicy: must be"));
  EXPECT_THAT(cluster.events, Contains("Warning ValidationError"));
  EXPECT_EQ(cluster.state(), "Pending");
  cluster.change_spec(patched(R"({"runPolicy": {"cleanPodPolicy": "All"}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
}

// mpijob same: managed-elsewhere; v2.managedBy; case.managed
TEST(Reconcile, AJobOfAnotherManagerIsLeftAlone) {
  const Json corro = with(sample_corro_job(1), R"({"managedBy": "kueue.x-k8s.io/multikueue"})");
  const Json mpi =
      with(sample_mpi_job(1), R"({"runPolicy": {"managedBy": "kueue.x-k8s.io/multikueue"}})");
  Json begun = sample_mpi_job(1);
  begun["status"]["conditions"] = patched(R"([{"type": "Created", "status": "True"}])");
  for (const Json& job : {corro, mpi, begun}) {
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(cluster.performed, IsEmpty()) << cluster.last().reason;
  }
}

TEST(Reconcile, AJobWhoseStatusAnotherSchemaHasPrunedIsStillOurs) {
  Json begun = sample_mpi_job(1);
  begun["status"]["conditions"] = patched(R"([
      {"type": "Created", "status": "True", "reason": "MPIJobCreated"},
      {"type": "Pending", "status": "True", "reason": "HeadAddressPending"}])");
  ClusterModel cluster(begun, 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
}

// mpijob different: v2.managedBy-fixed
TEST(Reconcile, OnlyManagedMpiJobsAreOursIfTheFlagSaysSo) {
  Options options;
  options.only_managed = true;
  ClusterModel plain(sample_mpi_job(1), 1, options);
  ASSERT_TRUE(plain.settle());
  EXPECT_THAT(plain.performed, IsEmpty());
  ClusterModel ours(
      with(sample_mpi_job(1), R"({"runPolicy": {"managedBy": "training.corro.dev/operator"}})"), 1,
      options);
  ASSERT_TRUE(ours.settle());
  EXPECT_EQ(ours.state(), "Running");
}

class Foreign : public ::testing::TestWithParam<ObjectName> {};

// mpijob same: foreign-objects; events; case.not-controlled
// mpijob different: foreign-condition
TEST_P(Foreign, ObjectOfTheSameNameIsNeitherUsedNorTouched) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  Json object = Json::object({{"kind", GetParam().kind}});
  object["metadata"]["name"] = GetParam().name;
  object["metadata"]["uid"] = "theirs";
  cluster.put(object);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Pending"), "ErrResourceExists");
  EXPECT_THAT(message_of(cluster, "Pending"),
              HasSubstr(fmt::format("Resource \"{}\" of Kind \"{}\" already exists and is not "
                                    "managed by MPIJob",
                                    GetParam().name, GetParam().kind)));
  EXPECT_THAT(cluster.events, Contains("Warning ErrResourceExists"));
  const Json* left = cluster.get(GetParam().kind, GetParam().name);
  ASSERT_NE(left, nullptr);
  EXPECT_EQ((*left)["metadata"]["uid"], "theirs");
  EXPECT_NE(cluster.state(), "Running");
}

INSTANTIATE_TEST_SUITE_P(Kinds, Foreign,
                         ::testing::Values(ObjectName{"Service", "mnist"},
                                           ObjectName{"Service", "mnist-head"},
                                           ObjectName{"ConfigMap", "mnist-config"},
                                           ObjectName{"Job", "mnist-launcher"},
                                           ObjectName{"Pod", "mnist-worker-0"}));

// ---- ends --------------------------------------------------------------------------------------

// mpijob same: ends; case.launcher-succeeded; case.integration-success
TEST(Reconcile, ASucceededLauncherEndsTheJob) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.finish_ranks();
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Succeeded"), "MPIJobSucceeded");
  EXPECT_EQ(message_of(cluster, "Succeeded"), "MPIJob default/mnist successfully completed.");
  EXPECT_EQ(condition_of(cluster, "Running")["status"], "False");
  EXPECT_TRUE(cluster.job()["status"].contains("completionTime"));
  EXPECT_EQ(status_of(cluster, "/replicaStatuses/Launcher/succeeded"), 1);
  EXPECT_THAT(cluster.events, Contains("Normal MPIJobSucceeded"));
}

// mpijob same: ends; failed-launcher; events; case.launcher-failed; case.integration-failure
TEST(Reconcile, AFailedLauncherEndsTheJobWithItsReason) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  Json pod = *cluster.get("Pod", "mnist-launcher-x");
  pod["status"] = patched(R"({"phase": "Failed", "reason": "FailedReason1",
                              "message": "first message"})");
  cluster.put(pod);
  cluster.fail_launcher("BackoffLimitExceeded");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "BackoffLimitExceeded/FailedReason1");
  EXPECT_EQ(message_of(cluster, "Failed"), "it failed: first message");
  EXPECT_THAT(cluster.events, Contains("Warning BackoffLimitExceeded/FailedReason1"));
}

// mpijob same: clean-pods; v2.cleanPodPolicy; case.launcher-succeeded; case.shutdown-worker
TEST(Reconcile, OfAFinishedMpiJobGoesWhatCleanPodPolicySays) {
  for (const char* policy : {"None", "Running", "All"}) {
    SCOPED_TRACE(policy);
    Json job = sample_mpi_job(2);
    job["spec"]["runPolicy"]["cleanPodPolicy"] = policy;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    cluster.end_well("mnist-worker-1");
    cluster.finish_ranks();
    ASSERT_TRUE(cluster.settle());
    const bool is_none = std::string_view(policy) == "None";
    EXPECT_EQ(cluster.get("Pod", "mnist-worker-0") != nullptr, is_none);
    EXPECT_EQ(cluster.get("Pod", "mnist-worker-1") != nullptr, std::string_view(policy) != "All");
    // What goes on needs its head.
    EXPECT_EQ(cluster.get("Pod", "mnist-head") != nullptr, is_none);
  }
}

// mpijob different: v2.ttlSecondsAfterFinished
TEST(Reconcile, TimeToLiveTakesEverything) {
  for (Json job : {sample_mpi_job(1), sample_corro_job(1)}) {
    Json& policy = job["kind"] == "MPIJob" ? job["spec"]["runPolicy"] : job["spec"];
    policy["ttlSecondsAfterFinished"] = 7200;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    cluster.finish_ranks();
    ASSERT_TRUE(cluster.settle());
    ASSERT_TRUE(cluster.last().look_again);
    EXPECT_TRUE(cluster.has_job());
    cluster.pass(seconds(7200));
    cluster.reconcile_once({});
    EXPECT_EQ(cluster.size(), 0U);
  }
}

TEST(Reconcile, ADeadlineEndsTheJobAndItsPods) {
  ClusterModel cluster(with(sample_corro_job(2), R"({"activeDeadlineSeconds": 7200})"), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.pass(seconds(7200));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "DeadlineExceeded");
  EXPECT_THAT(cluster.live_pods(), IsEmpty());
}

// mpijob same: v2.activeDeadlineSeconds
TEST(Reconcile, ADeadlineEndsAnMpiJobsLauncherToo) {
  ClusterModel cluster(with(sample_mpi_job(1), R"({"runPolicy": {"activeDeadlineSeconds": 7200}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("Job", "mnist-launcher"))["spec"]["activeDeadlineSeconds"], 7200);
  cluster.pass(seconds(7200));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "DeadlineExceeded");
  EXPECT_EQ(cluster.get("Job", "mnist-launcher"), nullptr);
}

// mpijob same: v1-launcher
TEST(Reconcile, V1sFailedLauncherPodEndsTheJob) {
  ClusterModel cluster(sample_mpi_job(1, "v1"), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-launcher", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "MPIJobFailed");
}

TEST(Reconcile, V1sLostLauncherPodIsReplaced) {
  ClusterModel cluster(sample_mpi_job(1, "v1"), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-launcher", Harm::kEvict);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), Contains("mnist-launcher-g1"));
  EXPECT_EQ(cluster.state(), "Running");
}

// ---- losses ------------------------------------------------------------------------------------

// mpijob different: evicted; replacement-name
TEST(Reconcile, AnEvictedWorkerIsReplacedAndTheJobGoesOn) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.pass(seconds(120));
  cluster.harm_pod("mnist-worker-1", Harm::kEvict);
  cluster.deliver_all();
  cluster.performed.clear();
  cluster.reconcile_once({});
  // One status, one new pod, the old one away, one event; the ConfigMap's running hosts.
  EXPECT_EQ(cluster.performed[ActionKind::kStatus], 1);
  EXPECT_EQ(cluster.performed[ActionKind::kCreate], 1);
  EXPECT_EQ(cluster.performed[ActionKind::kDelete], 1);
  const Json& pod = *cluster.get("Pod", "mnist-worker-1-g1");
  EXPECT_EQ(pod["spec"]["hostname"], "mnist-worker-1");
  EXPECT_EQ(pod["metadata"]["labels"]["training.kubeflow.org/replica-index"], "1");
  EXPECT_EQ(condition_of(cluster, "Restarting")["status"], "True");
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_EQ(condition_of(cluster, "Failed"), Json::object());
  EXPECT_EQ(status_of(cluster, "/restartCounts/lostPod"), 1);
  EXPECT_EQ(cluster.creates["Job/mnist-launcher"], 1);
}

// mpijob different: failed-worker
TEST(Reconcile, QuickFailuresOfAWorkerBackOff) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  const KubeTime before = cluster.now();
  cluster.harm_pod("mnist-worker-0-g1", Harm::kExitCode);
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.get("Pod", "mnist-worker-0-g2"), nullptr);
  EXPECT_EQ(reason_of(cluster, "Pending"), "BackOff");
  EXPECT_EQ(message_of(cluster, "Pending"),
            fmt::format("mnist-worker-0-g2 is made at {}", time_text(before + seconds(1))));
  EXPECT_EQ(cluster.last().look_again, before + seconds(1));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
}

// mpijob different: failed-worker
TEST(Reconcile, TheLastPodThatFailedByItselfStaysForItsLogs) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_NE(cluster.get("Pod", "mnist-worker-0"), nullptr);
  cluster.harm_pod("mnist-worker-0-g1", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.get("Pod", "mnist-worker-0"), nullptr);
  EXPECT_NE(cluster.get("Pod", "mnist-worker-0-g1"), nullptr);
}

TEST(Reconcile, APodThatIsStuckIsNotWaitedForAndForcedAwayLater) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0", Harm::kDelete);
  for (int i = 0; i < 3; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  ASSERT_NE(cluster.get("Pod", "mnist-worker-0"), nullptr);
  Json next = *cluster.get("Pod", "mnist-worker-0-g1");
  next["status"]["phase"] = "Running";
  cluster.put(next);
  cluster.deliver_all();
  cluster.reconcile_once({});
  cluster.pass(seconds(2));
  cluster.reconcile_once({});
  // No watch tells that its time is over.
  ASSERT_TRUE(cluster.last().look_again);
  cluster.pass(*cluster.last().look_again - cluster.now());
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.get("Pod", "mnist-worker-0"), nullptr);
}

/// What is seen of a CorroJob with one worker, whose head has its address and nothing else is made.
struct OneWorker {
  OneWorker() {
    job["metadata"]["uid"] = "u-1";
    observed.job = &job;
    observed.objects = {&service};
    observed.options = &options;
  }

  Json job = sample_corro_job(1);
  Json service = patched(R"({"kind": "Service", "metadata": {"name": "mnist-head",
      "ownerReferences": [{"uid": "u-1", "controller": true}]},
      "spec": {"clusterIP": "10.0.0.1"}})");
  Options options;
  Observed observed;
  KubeTime now = std::chrono::sys_days(std::chrono::year(2026) / 11 / 24);

  [[nodiscard]] Decision decide() const { return reconcile(read_job(job, {}), observed, now); }
};

TEST(Reconcile, APodThatNoWatchHasShownYetIsWaitedFor) {
  OneWorker one;
  // It was made, and the job suspended and resumed before the watch told of it.
  one.job["status"]["members"]["worker-0"]["generation"] = 1;
  const auto is_made = [&](const Decision& decision) {
    return std::ranges::any_of(decision.actions, [](const Action& action) {
      return action.kind == ActionKind::kCreate && action.object.name == "mnist-worker-0-g1";
    });
  };
  EXPECT_TRUE(is_made(one.decide()));
  one.observed.expected.ask("v1", {"Pod", "mnist-worker-0-g0"}, "");
  one.observed.expected.answer("uid-1");
  const Decision decision = one.decide();
  EXPECT_FALSE(is_made(decision));
  EXPECT_THAT(decision.reason, HasSubstr("once mnist-worker-0-g0 is deleted"));
}

TEST(Reconcile, ALostHeadIsReplacedAndCounted) {
  for (const Json& job : {sample_mpi_job(1), sample_corro_job(1)}) {
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    cluster.harm_pod("mnist-head", Harm::kVanish);
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(cluster.live_pods(), Contains("mnist-head-g1"));
    EXPECT_EQ(status_of(cluster, "/restarts"), 1);
  }
}

TEST(Reconcile, ACorroJobRestartsByCauseUntilItsLimit) {
  ClusterModel cluster(with(sample_corro_job(2), R"({"restart": {"userError": {
      "limit": 2, "backoffSeconds": 8, "maxBackoffSeconds": 60}}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  for (int i = 0; i < 2; ++i) {
    const KubeTime before = cluster.now();
    cluster.harm_pod(fmt::format("mnist-worker-1-g{}", i), Harm::kExitCode);
    cluster.deliver_all();
    cluster.reconcile_once({});
    EXPECT_EQ(cluster.last().look_again, before + seconds(i == 0 ? 8 : 16));
    EXPECT_EQ(cluster.state(), "Restarting");
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.state(), "Running");
  }
  cluster.harm_pod("mnist-worker-1-g2", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(reason_of(cluster, "Failed"), "RestartLimitReached");
  EXPECT_EQ(message_of(cluster, "Failed"),
            "mnist-worker-1-g2: exit code 1; restart.userError.limit is 2");
  EXPECT_THAT(cluster.live_pods(), IsEmpty());
}

TEST(Reconcile, TheHeadOfAFinishedCorroJobEndsAndStaysForItsLog) {
  ClusterModel cluster(sample_corro_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.finish_ranks();
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Succeeded");
  EXPECT_THAT(cluster.live_pods(), IsEmpty());
  const Json* head = cluster.get("Pod", "mnist-head");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ((*head)["status"]["reason"], "DeadlineExceeded");
  EXPECT_EQ(cluster.performed[ActionKind::kPatch], 1);
}

TEST(Reconcile, AHeadThatNeverRanGoesWithItsJob) {
  ClusterModel cluster(with(sample_corro_job(1), R"({"activeDeadlineSeconds": 5})"), 1);
  ASSERT_TRUE(cluster.settle());
  Json waits = *cluster.get("Pod", "mnist-head");
  waits["status"] = {{"phase", "Pending"}};
  cluster.put(waits);
  cluster.pass(seconds(6));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Failed");
  EXPECT_EQ(cluster.get("Pod", "mnist-head"), nullptr);
}

TEST(Reconcile, CountsAgainstTheLimitBeginAnewAfterALongRun) {
  ClusterModel cluster(with(sample_corro_job(1), R"({"restart": {"outOfMemory": {"limit": 1}}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  for (int i = 0; i < 3; ++i) {
    cluster.pass(seconds(600));
    cluster.harm_pod(fmt::format("mnist-worker-0-g{}", i), Harm::kOutOfMemory);
    ASSERT_TRUE(cluster.settle());
    ASSERT_EQ(cluster.state(), "Running") << i;
  }
  EXPECT_EQ(status_of(cluster, "/restartCounts/outOfMemory"), 3);
}

TEST(Reconcile, WhatEndsWithTheFirstLossIsOneRestart) {
  ClusterModel cluster(sample_corro_job(3), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0-g0", Harm::kOutOfMemory);
  cluster.deliver_all();
  cluster.reconcile_once({});
  cluster.harm_pod("mnist-worker-1-g0", Harm::kExitCode);
  cluster.harm_pod("mnist-worker-2-g0", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/restarts"), 1);
  EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"outOfMemory": 1})"));
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-worker-0-g1",
                                                        "mnist-worker-1-g1", "mnist-worker-2-g1"));
}

TEST(Reconcile, OutOfMemoryIsBlamedBeforeAnExitCodeAndThatBeforeALoss) {
  ClusterModel cluster(sample_corro_job(3), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0-g0", Harm::kEvict);
  cluster.harm_pod("mnist-worker-1-g0", Harm::kExitCode);
  cluster.harm_pod("mnist-worker-2-g0", Harm::kOutOfMemory);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/restartCounts"), patched(R"({"outOfMemory": 1})"));
}

TEST(Reconcile, AWorkerThatEndedWellStartsAgainWithTheOthers) {
  ClusterModel cluster(sample_corro_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.end_well("mnist-worker-0-g0");
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-1-g0", Harm::kExitCode);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head", "mnist-worker-0-g1", "mnist-worker-1-g1"));
}

// ---- suspend, resume, scale --------------------------------------------------------------------

// mpijob different: created-suspended
TEST(Reconcile, AJobThatIsMadeSuspendedHasNoPods) {
  for (Json job : {sample_mpi_job(1), sample_corro_job(1)}) {
    Json& policy = job["kind"] == "MPIJob" ? job["spec"]["runPolicy"] : job["spec"];
    policy["suspend"] = true;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(names_made(cluster), IsEmpty());
    EXPECT_EQ(cluster.state(), "Suspended");
    EXPECT_FALSE(cluster.job()["status"].contains("startTime"));
  }
}

// mpijob same: v2.suspend; suspend; case.suspend-running; case.resume
TEST(Reconcile, SuspendTakesThePodsAndResumeMakesNewOnes) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.list("Pod"), IsEmpty());
  EXPECT_EQ((*cluster.get("Job", "mnist-launcher"))["spec"]["suspend"], true);
  EXPECT_EQ(reason_of(cluster, "Running"), "MPIJobSuspended");
  EXPECT_EQ(reason_of(cluster, "Suspended"), "MPIJobSuspended");
  cluster.pass(seconds(100));
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": false}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("Job", "mnist-launcher"))["spec"]["suspend"], false);
  EXPECT_EQ(reason_of(cluster, "Suspended"), "MPIJobResumed");
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_EQ(cluster.creates["Job/mnist-launcher"], 1);
  EXPECT_EQ(status_of(cluster, "/restarts"), 0);
  EXPECT_THAT(cluster.events, IsSupersetOf({"Normal MPIJobSuspended", "Normal MPIJobResumed"}));
}

// mpijob different: resume-rights
TEST(Reconcile, ALauncherWhoseTemplateChangedWhileSuspendedIsMadeAnew) {
  ClusterModel cluster(sample_mpi_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": false}, "mpiReplicaSpecs": {"Launcher":
      {"template": {"spec": {"nodeSelector": {"pool": "a"}}}}}})"));
  ASSERT_TRUE(cluster.settle());
  const Json& job = *cluster.get("Job", "mnist-launcher");
  EXPECT_EQ(job["spec"]["template"]["spec"]["nodeSelector"]["pool"], "a");
  EXPECT_EQ(cluster.state(), "Running");
}

// mpijob same: v2.launcherCreationPolicy; case.integration-wait
// mpijob different: created-suspended
TEST(Reconcile, AWaitingLauncherWaitsAfterResumeToo) {
  ClusterModel cluster(with(sample_mpi_job(1), R"({"runPolicy": {"suspend": true},
      "launcherCreationPolicy": "WaitForWorkersReady"})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": false}})"));
  for (int i = 0; i < 3; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  EXPECT_NE(cluster.get("Pod", "mnist-worker-0"), nullptr);
  EXPECT_EQ(cluster.get("Job", "mnist-launcher"), nullptr);
  ASSERT_TRUE(cluster.settle());
  EXPECT_NE(cluster.get("Job", "mnist-launcher"), nullptr);
}

// mpijob same: running; case.launcher-active
TEST(Reconcile, ALauncherAloneIsNotARunningJob) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  for (int i = 0; i < 3; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  const Json& job = *cluster.get("Job", "mnist-launcher");
  Json launcher = job["spec"]["template"];
  launcher["kind"] = "Pod";
  launcher["metadata"]["name"] = "mnist-launcher-x";
  launcher["metadata"]["ownerReferences"] = patched(R"([{"controller": true}])");
  launcher["metadata"]["ownerReferences"][0]["uid"] = job["metadata"]["uid"];
  launcher["status"]["phase"] = "Running";
  cluster.put(launcher);
  cluster.pass(seconds(2));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.state(), "Pending");
  EXPECT_EQ(message_of(cluster, "Pending"), "0 of 2 workers run");
}

// mpijob same: scale-up
// mpijob different: scale-down
TEST(Reconcile, ScalingAnMpiJobKeepsTheOthers) {
  Json job = with(sample_mpi_job(2), R"({"runLauncherAsWorker": true})");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"mpiReplicaSpecs": {"Worker": {"replicas": 3}}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head", "mnist-launcher-x", "mnist-worker-0",
                                   "mnist-worker-1", "mnist-worker-2"));
  EXPECT_THAT((*cluster.get("ConfigMap", "mnist-config"))["data"]["hostfile"].get<std::string>(),
              HasSubstr("mnist-worker-2.mnist.default.svc slots=1"));
  cluster.change_spec(patched(R"({"mpiReplicaSpecs": {"Worker": {"replicas": 1}}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(),
              UnorderedElementsAre("mnist-head", "mnist-launcher-x", "mnist-worker-0"));
  EXPECT_EQ(status_of(cluster, "/restarts"), 0);
}

TEST(Reconcile, ResizingACorroJobStartsARoundWithANewHead) {
  ClusterModel cluster(sample_corro_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"worker": {"target": 3}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head-g1", "mnist-worker-0-g0",
                                                        "mnist-worker-1-g0", "mnist-worker-2-g0"));
  const Json& head = *cluster.get("Pod", "mnist-head-g1");
  EXPECT_EQ(variables_of(head["spec"]["containers"][0])["CORRO_WORKERS"], "3");
  EXPECT_EQ(status_of(cluster, "/round"), 1);
  EXPECT_EQ(status_of(cluster, "/restarts"), 0);
}

// ---- status ------------------------------------------------------------------------------------

// mpijob different: status.observedGeneration
TEST(Reconcile, TheStatusSaysWhichGenerationItIsOf) {
  ClusterModel cluster(sample_corro_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/observedGeneration"), 1);
  cluster.change_spec(patched(R"({"ttlSecondsAfterFinished": 9})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(status_of(cluster, "/observedGeneration"), 2);
}

TEST(Reconcile, WordsOfTheClusterComeIntoTheCondition) {
  ClusterModel cluster(sample_corro_job(1), 1);
  for (int i = 0; i < 2; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  Json pod = *cluster.get("Pod", "mnist-worker-0-g0");
  pod["status"]["conditions"] = patched(R"([{"type": "PodScheduled", "status": "False",
      "reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient cpu."}])");
  cluster.put(pod);
  cluster.pass(seconds(2));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_EQ(message_of(cluster, "Pending"),
            "0 of 1 workers run; mnist-worker-0-g0: Unschedulable: 0/3 nodes are available: 3 "
            "Insufficient cpu.");
}

TEST(Reconcile, AClaimThatAnotherNodeHasIsSuspected) {
  ClusterModel cluster(with(sample_corro_job(2), R"({"checkpoint": {"claim": "state"}})"), 1);
  for (int i = 0; i < 2; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  const auto put_on = [&cluster](const char* name, const char* node, const char* begun) {
    Json pod = *cluster.get("Pod", name);
    pod["spec"]["nodeName"] = node;
    pod["status"]["phase"] = "Pending";
    pod["status"]["conditions"] =
        Json::array({{{"type", "PodReadyToStartContainers"}, {"status", begun}}});
    cluster.put(pod);
  };
  const auto waits_for = [&cluster] {
    cluster.pass(seconds(2));
    cluster.deliver_all();
    cluster.reconcile_once({});
    return message_of(cluster, "Pending");
  };
  put_on("mnist-worker-0-g0", "a", "True");
  put_on("mnist-worker-1-g0", "a", "False");
  EXPECT_EQ(waits_for(), "0 of 2 workers run");
  put_on("mnist-worker-1-g0", "b", "False");
  EXPECT_EQ(waits_for(),
            "0 of 2 workers run; mnist-worker-1-g0: waits on node b for its volumes: is claim "
            "state ReadWriteOnce? One node at a time mounts such a claim, and mnist-worker-0-g0 is "
            "on a");
}

TEST(Reconcile, AClaimOfTheTemplateIsSuspectedToo) {
  ClusterModel cluster(with(sample_corro_job(2), R"({"worker": {"template": {"spec": {"volumes": [
      {"name": "tmp", "emptyDir": {}},
      {"name": "data", "persistentVolumeClaim": {"claimName": "pictures"}}]}}}})"),
                       1);
  for (int i = 0; i < 2; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  for (const auto& [name, node] :
       {std::pair("mnist-worker-0-g0", "a"), {"mnist-worker-1-g0", "b"}}) {
    Json pod = *cluster.get("Pod", name);
    pod["spec"]["nodeName"] = node;
    pod["status"]["phase"] = node[0] == 'a' ? "Running" : "Pending";
    pod["status"]["conditions"] =
        Json::array({{{"type", "PodReadyToStartContainers"}, {"status", "False"}}});
    cluster.put(pod);
  }
  cluster.pass(seconds(2));
  cluster.deliver_all();
  cluster.reconcile_once({});
  EXPECT_THAT(message_of(cluster, "Pending"), HasSubstr("is claim pictures ReadWriteOnce?"));
}

TEST(Reconcile, APodWhoseNodePreparesItSaysSo) {
  ClusterModel cluster(sample_corro_job(2), 1);
  for (int i = 0; i < 2; ++i) {
    cluster.deliver_all();
    cluster.reconcile_once({});
  }
  const auto put = [&cluster](const char* name, const char* status) {
    Json pod = *cluster.get("Pod", name);
    pod["spec"]["nodeName"] = "a";
    pod["status"] = patched(status);
    cluster.put(pod);
    cluster.pass(seconds(2));
    cluster.deliver_all();
    cluster.reconcile_once({});
    return message_of(cluster, "Pending");
  };
  constexpr const char* kCreating = R"({"phase": "Pending", "containerStatuses": [
      {"name": "main", "state": {"waiting": {"reason": "ContainerCreating"}}}]})";
  constexpr const char* kPulling = R"({"phase": "Pending",
      "conditions": [{"type": "PodReadyToStartContainers", "status": "True"}], "containerStatuses": [
      {"name": "main", "state": {"waiting": {"reason": "PodInitializing"}}}]})";
  constexpr const char* kRefused = R"({"phase": "Pending", "containerStatuses": [
      {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]})";
  EXPECT_EQ(put("mnist-worker-0-g0", kCreating),
            "0 of 2 workers run; mnist-worker-0-g0: its image is pulled or its volumes are mounted "
            "on node a");
  EXPECT_EQ(put("mnist-worker-0-g0", kPulling),
            "0 of 2 workers run; mnist-worker-0-g0: its image is pulled on node a");
  EXPECT_EQ(put("mnist-worker-1-g0", kRefused),
            "0 of 2 workers run; mnist-worker-1-g0: ImagePullBackOff");
}

TEST(Reconcile, CountsAreWrittenAtMostOnceASecond) {
  ClusterModel cluster(sample_mpi_job(2), 1);
  ASSERT_TRUE(cluster.settle());
  ASSERT_EQ(cluster.state(), "Running");
  cluster.change_spec(patched(R"({"mpiReplicaSpecs": {"Worker": {"replicas": 3}}})"));
  cluster.deliver_all();
  cluster.reconcile_once({});
  Json pod = *cluster.get("Pod", "mnist-worker-2");
  cluster.deliver_all();
  cluster.performed.clear();
  cluster.reconcile_once({});  // Only "seen" of worker 2 is new.
  EXPECT_EQ(cluster.performed[ActionKind::kStatus], 0);
  EXPECT_EQ(cluster.last().look_again, cluster.now() + seconds(1));
  cluster.pass(seconds(1));
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.performed[ActionKind::kStatus], 1);
}

TEST(Reconcile, ARefusedPodIsTheConditionAndTriedAgain) {
  OneWorker one;
  one.observed.refused[{"Pod", "mnist-worker-0-g0"}] = {"spec.containers[0].image: Required value",
                                                        one.now};
  const Decision decision = one.decide();
  EXPECT_THAT(decision.reason, HasSubstr("CreateRefused: Pod mnist-worker-0-g0: "
                                         "spec.containers[0].image: Required value"));
  EXPECT_EQ(decision.look_again, one.now + seconds(10));
  one.now += seconds(10);
  EXPECT_THAT(one.decide().reason, Not(HasSubstr("CreateRefused")));
}

TEST(Reconcile, APodThatIsWrongIsNotMadeAgainBeforeTheManifestChanges) {
  OneWorker one;
  one.job["metadata"]["generation"] = 3;
  one.observed.refused[{"Pod", "mnist-worker-0-g0"}] = {"422 Invalid: quantities must match",
                                                        one.now, 3};
  one.now += seconds(299);
  const Decision decision = one.decide();
  EXPECT_THAT(decision.reason, HasSubstr("CreateInvalid: Pod mnist-worker-0-g0: 422 Invalid"));
  EXPECT_EQ(decision.look_again, one.now + seconds(1));
  one.job["metadata"]["generation"] = 4;
  EXPECT_THAT(one.decide().reason, Not(HasSubstr("CreateInvalid")));
}

TEST(Reconcile, ARefusedPatchIsTheConditionAndHoldsNothingElseUp) {
  Json job = sample_mpi_job(1);
  job["metadata"]["uid"] = "u-1";
  const auto ours = [](const char* text) {
    Json object = patched(text);
    object["metadata"]["ownerReferences"] = patched(R"([{"uid": "u-1", "controller": true}])");
    return object;
  };
  const Json service = ours(R"({"kind": "Service", "metadata": {"name": "mnist-head"},
                                "spec": {"clusterIP": "10.0.0.1"}})");
  const Json config = ours(R"({"kind": "ConfigMap", "metadata": {"name": "mnist-config"},
                               "data": {"hostfile": "of before"}})");
  const Options options;
  Observed observed;
  observed.job = &job;
  observed.objects = {&service, &config};
  observed.options = &options;
  const KubeTime now = std::chrono::sys_days(std::chrono::year(2026) / 11 / 24);
  const ObjectName name{"ConfigMap", "mnist-config"};
  const auto is_patched = [&](const Decision& decision) {
    return std::ranges::any_of(decision.actions, [&](const Action& action) {
      return action.kind == ActionKind::kPatch && action.object == name;
    });
  };
  EXPECT_TRUE(is_patched(reconcile(read_job(job, {}), observed, now)));
  observed.refused[name] = {"immutable", now};
  const Decision decision = reconcile(read_job(job, {}), observed, now);
  EXPECT_FALSE(is_patched(decision));
  EXPECT_THAT(decision.reason, HasSubstr("ConfigMap mnist-config: immutable"));
  EXPECT_TRUE(std::ranges::any_of(decision.actions, [](const Action& action) {
    return action.kind == ActionKind::kCreate && action.object.kind == "Pod";
  }));
  EXPECT_TRUE(is_patched(reconcile(read_job(job, {}), observed, now + seconds(10))));
}

TEST(Reconcile, AJobWhosePodsMayNotBeDeletedIsNotSaidToBeSuspended) {
  for (const Json& job : {sample_corro_job(2), sample_elastic_job(2), sample_mpi_job(2, "v1")}) {
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    cluster.may_delete_pods = false;
    const Json suspend = {{"suspend", true}};
    cluster.change_spec(job["kind"] == "CorroJob" ? suspend : Json{{"runPolicy", suspend}});
    for (int look = 0; look < 20; ++look) {
      cluster.deliver_all();
      cluster.reconcile_once({});
      EXPECT_EQ(cluster.state(), "Running");
    }
    cluster.pass(seconds(1));
    cluster.reconcile_once({});
    EXPECT_THAT(message_of(cluster, "Suspended"),
                HasSubstr(R"(403 Forbidden: cannot delete resource "pods"; tried again at)"));
    const auto performed = cluster.performed;
    cluster.reconcile_once({});
    EXPECT_EQ(cluster.performed, performed) << "nothing is tried again at once";
    cluster.may_delete_pods = true;
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.state(), "Suspended");
    EXPECT_THAT(cluster.live_pods(), IsEmpty());
    EXPECT_THAT(message_of(cluster, "Suspended"), Not(HasSubstr("delete")));
  }
}

TEST(Reconcile, AStatusThatWasTakenAwayIsFoundAgainInThePods) {
  ClusterModel cluster(sample_corro_job(1), 1);
  ASSERT_TRUE(cluster.settle());
  cluster.harm_pod("mnist-worker-0-g0", Harm::kDelete);
  ASSERT_TRUE(cluster.settle());
  Json job = cluster.job();
  job.erase("status");
  cluster.put(job);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-worker-0-g1"));
  EXPECT_EQ(cluster.state(), "Running");
}

TEST(TimeText, IsReadAgain) {
  const KubeTime time = std::chrono::sys_days(std::chrono::year(2024) / 2 / 29) +
                        std::chrono::hours(23) + std::chrono::minutes(59) + seconds(58);
  EXPECT_EQ(time_text(time), "2024-02-29T23:59:58Z");
  EXPECT_EQ(parse_time("2024-02-29T23:59:58Z"), time);
  EXPECT_EQ(parse_time("2024-02-29T23:59:58.123456Z"), time);
  for (const char* bad : {"", "2024-02-30T00:00:00Z", "2024-02-29 23:59:58Z", "2024-02-29T23:59:58",
                          "2024-02-29T24:00:00Z", "2024-xx-29T23:59:58Z"})
    EXPECT_FALSE(parse_time(bad)) << bad;
}

TEST(Backoff, DoublesUpToItsMost) {
  EXPECT_THAT(
      (std::vector{backoff_of(1, seconds(2), seconds(9)), backoff_of(2, seconds(2), seconds(9)),
                   backoff_of(3, seconds(2), seconds(9)), backoff_of(4, seconds(2), seconds(9)),
                   backoff_of(5000000000, seconds(2), seconds(9))}),
      ElementsAre(seconds(0), seconds(2), seconds(4), seconds(8), seconds(9)));
}

}  // namespace
}  // namespace corro::kube
