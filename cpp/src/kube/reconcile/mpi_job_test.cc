// What users of the MPI Operator rely on, case by case: pods and objects. The
// lines `mpijob same:` and `mpijob different:` name rows of docs/mpijob.md (tools/mpijob_page.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

Json& role_of(Json& job, const char* role) {
  return job["spec"]["mpiReplicaSpecs"][role]["template"];
}

const Json* volume_of(const Json& pod_spec, const std::string& name) {
  for (const Json& volume : pod_spec["volumes"]) {
    if (volume["name"] == name) return &volume;
  }
  return nullptr;
}

std::string mount_of(const Json& pod_spec, const std::string& volume) {
  for (const Json& mount : pod_spec["containers"][0]["volumeMounts"]) {
    if (mount["name"] == volume) return mount["mountPath"];
  }
  return "";
}

// ---- pods --------------------------------------------------------------------------------------

// mpijob same: v2.template; case.launcher-overrides
TEST(MpiJob, OnlyTheFirstContainerIsTheOperators) {
  const Json side = patched(R"({"name": "side", "image": "proxy", "command": ["proxy"]})");
  Json job = sample_mpi_job(1);
  for (const char* role : {"Launcher", "Worker"}) {
    Json& spec = role_of(job, role)["spec"];
    spec["containers"].push_back(side);
    spec["containers"][0]["env"] = patched(R"([{"name": "MINE", "value": "1"}])");
    spec["nodeSelector"] = patched(R"({"pool": "a"})");
    role_of(job, role)["metadata"] = patched(R"({"labels": {"team": "a"}})");
  }
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  for (const Json& pod : {*cluster.get("Pod", "mnist-worker-0"), launcher_template(cluster)}) {
    ASSERT_EQ(pod["spec"]["containers"].size(), 2U);
    EXPECT_EQ(pod["spec"]["containers"][1], side);
    EXPECT_EQ(pod["spec"]["containers"][0]["image"], "user");
    EXPECT_THAT(variables_of(pod["spec"]["containers"][0]), Contains(Pair("MINE", "1")));
    EXPECT_EQ(pod["spec"]["nodeSelector"]["pool"], "a");
    EXPECT_EQ(pod["metadata"]["labels"]["team"], "a");
  }
}

// mpijob same: v2.restartPolicy-of-template; events
TEST(MpiJob, ARestartPolicyInATemplateIsOverriddenAndToldOnce) {
  Json job = sample_mpi_job(1);
  role_of(job, "Launcher")["spec"]["restartPolicy"] = "Always";
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(launcher_template(cluster)["spec"]["restartPolicy"], "OnFailure");
  EXPECT_EQ(std::count(cluster.events.begin(), cluster.events.end(),
                       "Warning SetPodTemplateRestartPolicy"),
            1);
}

// mpijob same: v2.mpiReplicaSpecs; case.config-map-without-workers
TEST(MpiJob, ALauncherAloneIsAJob) {
  Json job = sample_mpi_job(1);
  job["spec"]["mpiReplicaSpecs"].erase("Worker");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ(cluster.state(), "Running");
  EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-launcher-x"));
  EXPECT_EQ((*cluster.get("ConfigMap", "mnist-config"))["data"]["hostfile"], "");
}

// mpijob different: v2.no-workers
TEST(MpiJob, ALauncherThatIsTheOnlyHostIsAJob) {
  for (const char* replicas : {"0", "null"}) {
    Json job = with(sample_mpi_job(1), R"({"runLauncherAsWorker": true})");
    job["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] = patched(replicas);
    ClusterModel cluster(job, 1, native_gangs());
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.state(), "Running");
    EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-launcher-x"));
    EXPECT_EQ((*cluster.get("ConfigMap", "mnist-config"))["data"]["hostfile"],
              "mnist-launcher.mnist.default.svc slots=1\n");
    cluster.change_spec(workers_of(cluster, 2));
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(status_of(cluster, "/ready"), 2);
    cluster.change_spec(workers_of(cluster, 0));
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(cluster.live_pods(), UnorderedElementsAre("mnist-head", "mnist-launcher-x"));
    cluster.finish_ranks();
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.state(), "Succeeded");
    EXPECT_THAT(cluster.violations, IsEmpty());
  }
}

// mpijob same: v2.hostNetwork; case.e2e-host-network
TEST(MpiJob, PodsOfTheHostsNetworkAskTheClustersNames) {
  Json job = sample_mpi_job(1);
  role_of(job, "Worker")["spec"]["hostNetwork"] = true;
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  const Json& worker = (*cluster.get("Pod", "mnist-worker-0"))["spec"];
  EXPECT_EQ(worker["dnsPolicy"], "ClusterFirstWithHostNet");
  EXPECT_FALSE(launcher_template(cluster)["spec"].contains("dnsPolicy"));
}

// mpijob different: dns-search
TEST(MpiJob, WorkersSearchTheDomainThatTheOperatorWasTold) {
  const auto searches_of = [](const char* domain) {
    Options options;
    options.cluster_domain = domain;
    ClusterModel cluster(sample_mpi_job(1), 1, options);
    EXPECT_TRUE(cluster.settle());
    return Json((*cluster.get("Pod", "mnist-worker-0"))["spec"]["dnsConfig"]["searches"]);
  };
  EXPECT_THAT(searches_of(""), ElementsAre("mnist.default.svc.cluster.local"));
  EXPECT_THAT(searches_of("corp.example"), ElementsAre("mnist.default.svc.corp.example"));
}

// mpijob same: mounts
TEST(MpiJob, HostsAndKeysAreMountedWhereTheyWere) {
  Json job = with(sample_mpi_job(1), R"({"sshAuthMountPath": "/root/.ssh"})");
  job["metadata"]["managedFields"] =
      patched(R"([{"operation": "Apply", "fieldsV1": {"f:spec": {"f:sshAuthMountPath": {}}}}])");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  const Json& launcher = launcher_template(cluster)["spec"];
  const Json& worker = (*cluster.get("Pod", "mnist-worker-0"))["spec"];
  EXPECT_EQ(mount_of(launcher, "mpi-job-config"), "/etc/mpi");
  EXPECT_EQ(mount_of(worker, "mpi-job-config"), "");
  EXPECT_EQ((*volume_of(launcher, "mpi-job-config"))["configMap"]["items"],
            patched(R"([{"key": "hostfile", "path": "hostfile", "mode": 292},
                        {"key": "discover_hosts.sh", "path": "discover_hosts.sh", "mode": 365}])"));
  for (const Json* spec : {&launcher, &worker}) {
    EXPECT_EQ(mount_of(*spec, "ssh-auth"), "/root/.ssh");
    const Json& secret = (*volume_of(*spec, "ssh-auth"))["secret"];
    EXPECT_EQ(secret["defaultMode"], 0600);
    EXPECT_EQ(secret["items"], patched(R"([{"key": "ssh-privatekey", "path": "id_rsa"},
                          {"key": "ssh-publickey", "path": "id_rsa.pub"},
                          {"key": "ssh-publickey", "path": "authorized_keys"}])"));
  }
  ClusterModel other(with(sample_mpi_job(1), R"({"sshAuthMountPath": "/home/mpi/.ssh"})"), 1);
  ASSERT_TRUE(other.settle());
  const Json& spec = (*other.get("Pod", "mnist-worker-0"))["spec"];
  EXPECT_FALSE((*volume_of(spec, "ssh-auth"))["secret"].contains("defaultMode"));
}

// mpijob same: sshd-default
TEST(MpiJob, AWorkerWithoutCommandRunsSshdIfRealSshIsAskedFor) {
  Json job = with(sample_mpi_job(1), R"({"sshAuthMountPath": "/home/mpi/.ssh"})");
  role_of(job, "Worker")["spec"]["containers"][0].erase("command");
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  EXPECT_EQ((*cluster.get("Pod", "mnist-worker-0"))["spec"]["containers"][0]["command"],
            patched(R"(["/corro/bin/corro", "agent", "--pod", "--", "/usr/sbin/sshd", "-De"])"));
}

// mpijob different: v1alpha2.mainContainer
TEST(MpiJob, TheHostIsTheFirstContainerWhateverMainContainerSays) {
  Json job = with(sample_mpi_job(1, "v1alpha2"), R"({"mainContainer": "side"})");
  role_of(job, "Worker")["spec"]["containers"].push_back(
      patched(R"({"name": "side", "image": "proxy"})"));
  ClusterModel cluster(job, 1);
  ASSERT_TRUE(cluster.settle());
  const Json& containers = (*cluster.get("Pod", "mnist-worker-0"))["spec"]["containers"];
  EXPECT_EQ(containers[0]["command"][0], "/corro/bin/corro");
  EXPECT_FALSE(containers[1].contains("command"));
}

// ---- objects -----------------------------------------------------------------------------------

// mpijob same: service
TEST(MpiJob, TheHeadlessServiceChoosesThePodsByTheirLabels) {
  for (const bool launcher_works : {false, true}) {
    Json job = sample_mpi_job(1);
    job["spec"]["runLauncherAsWorker"] = launcher_works;
    ClusterModel cluster(job, 1);
    ASSERT_TRUE(cluster.settle());
    const Json& spec = (*cluster.get("Service", "mnist"))["spec"];
    EXPECT_EQ(spec["clusterIP"], "None");
    EXPECT_EQ(spec["selector"], patched(R"({"training.kubeflow.org/operator-name": "mpi-operator",
                          "training.kubeflow.org/job-name": "mnist"})"));
    EXPECT_EQ(spec.contains("publishNotReadyAddresses"), launcher_works);
  }
}

// mpijob same: launcher-job; v2.backoffLimit; v2.activeDeadlineSeconds
TEST(MpiJob, TheLaunchersJobHasTheLimitsOfTheRunPolicy) {
  ClusterModel cluster(with(sample_mpi_job(1), R"({"runPolicy": {"backoffLimit": 3,
      "activeDeadlineSeconds": 60, "ttlSecondsAfterFinished": 9}})"),
                       1);
  ASSERT_TRUE(cluster.settle());
  const Json& spec = cluster.bodies["Job/mnist-launcher"]["spec"];
  EXPECT_EQ(spec["backoffLimit"], 3);
  EXPECT_EQ(spec["activeDeadlineSeconds"], 60);
  EXPECT_EQ(spec["podReplacementPolicy"], "Failed");
  EXPECT_FALSE(spec.contains("completions"));
  EXPECT_FALSE(spec.contains("parallelism"));
  // The time to live is the job's, not its launcher's alone.
  EXPECT_FALSE(spec.contains("ttlSecondsAfterFinished"));
}

// mpijob different: v1alpha1.launcherOnMaster; disruption-budget; statefulset
TEST(MpiJob, TheOldestVersionGetsPodsOfTodayAndNoNodeOfTheControlPlane) {
  Json job = patched(R"({"apiVersion": "kubeflow.org/v1alpha1", "kind": "MPIJob",
      "metadata": {"name": "mnist"},
      "spec": {"writtenAs": "v1alpha1", "replicas": 1, "launcherOnMaster": true}})");
  job["spec"]["template"] = sample_template();
  Options options;
  options.gang_scheduler = "volcano";
  options.served.volcano = true;
  ClusterModel cluster(job, 1, options);
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(names_made(cluster),
              UnorderedElementsAre("ConfigMap/mnist-config", "Job/mnist-launcher", "Pod/mnist-head",
                                   "Pod/mnist-worker-0", "PodGroup/mnist",
                                   "Secret/mnist-11111111-2222-3333-4444-555555555555",
                                   "Service/mnist", "Service/mnist-head"));
  const Json& spec = launcher_template(cluster)["spec"];
  EXPECT_FALSE(spec.contains("nodeSelector"));
  for (const Json& each : spec["tolerations"])
    EXPECT_NE(each["key"], "node-role.kubernetes.io/control-plane");
}

}  // namespace
}  // namespace corro::kube
