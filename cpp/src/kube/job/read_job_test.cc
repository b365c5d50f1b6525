#include "kube/job/read_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "kube/job/names.h"

namespace corro::kube {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const Json kTemplate =
    Json::parse(R"({"spec": {"containers": [{"name": "main", "command": ["train"]}]}})");

Json named(const char* kind, Json spec) {
  Json job = Json::parse(R"({"metadata": {"name": "mnist", "namespace": "ml", "uid": "u-1"}})");
  job["kind"] = kind;
  job["spec"] = std::move(spec);
  return job;
}

Json corro_spec(const char* fields = "{}") {
  Json spec = Json::parse(fields);
  if (!spec["worker"].contains("target")) spec["worker"]["target"] = 2;
  if (!spec["worker"].contains("template")) spec["worker"]["template"] = kTemplate;
  return spec;
}

Json mpi_spec(const char* version, const char* fields = "{}") {
  Json spec = Json::parse(fields);
  spec["writtenAs"] = version;
  Json& roles = spec["mpiReplicaSpecs"];
  if (!roles.contains("Launcher")) roles["Launcher"] = {{"template", kTemplate}};
  if (!roles.contains("Worker")) roles["Worker"] = {{"replicas", 2}, {"template", kTemplate}};
  return spec;
}

ReadJob read(const char* kind, const Json& spec) { return read_job(named(kind, spec), {}); }

std::vector<std::string> texts(const Problems& problems) {
  std::vector<std::string> all;
  for (const Problem& problem : problems)
    all.push_back(fmt::format("{}: {}", problem.path, problem.what));
  return all;
}

TEST(ReadJob, CorroJobHasTheDefaultsOfItsPage) {
  const ReadJob job = read("CorroJob", corro_spec());
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.workers, 2);
  EXPECT_EQ(job.spec.least_workers, 2);
  EXPECT_EQ(job.spec.most_workers, 2);
  EXPECT_EQ(job.spec.slots, 1);
  EXPECT_EQ(job.spec.gang, Gang::kAuto);
  EXPECT_FALSE(job.spec.suspend);
  EXPECT_FALSE(job.spec.active_deadline);
  EXPECT_FALSE(job.spec.time_to_live);
  EXPECT_EQ(job.spec.restart_reset, seconds(600));
  const auto& user = job.spec.restart.at(static_cast<size_t>(Cause::kUserError));
  EXPECT_EQ(user.limit, 3);
  EXPECT_EQ(user.backoff, seconds(10));
  EXPECT_EQ(user.most_backoff, seconds(300));
  EXPECT_EQ(job.spec.restart.at(static_cast<size_t>(Cause::kLostPod)).limit, 1000);
  EXPECT_EQ(job.spec.restart.at(static_cast<size_t>(Cause::kOutOfMemory)).limit, 1);
}

TEST(ReadJob, CorroJobMountsItsClaims) {
  const ReadJob job = read("CorroJob", corro_spec(R"({
      "data": [{"claim": "sets", "mountPath": "/data"}],
      "checkpoint": {"claim": "state", "subPath": "run-1"}})"));
  EXPECT_THAT(texts(job.problems), IsEmpty());
  ASSERT_THAT(job.spec.claims, SizeIs(2));
  EXPECT_EQ(job.spec.claims[0].name, "data-0");
  EXPECT_TRUE(job.spec.claims[0].read_only);
  EXPECT_EQ(job.spec.claims[1].path, "/checkpoint");
  EXPECT_EQ(job.spec.claims[1].sub_path, "run-1");
  EXPECT_FALSE(job.spec.claims[1].read_only);
}

// mpijob different: v2.no-workers
TEST(ReadJob, ALauncherThatIsAHostNeedsNoWorkers) {
  for (const Json& replicas : {Json(0), Json()}) {
    Json spec = mpi_spec("v2beta1");
    spec["mpiReplicaSpecs"]["Worker"] = {{"replicas", replicas}, {"template", kTemplate}};
    EXPECT_THAT(texts(read("MPIJob", spec).problems),
                Contains(HasSubstr("Worker.replicas: must be an integer from 1")));
    spec["runLauncherAsWorker"] = true;
    const ReadJob job = read("MPIJob", spec);
    EXPECT_THAT(texts(job.problems), IsEmpty());
    EXPECT_EQ(job.spec.workers, 0);
    spec["mpiReplicaSpecs"]["Worker"]["replicas"] = -1;
    EXPECT_THAT(texts(read("MPIJob", spec).problems),
                Contains(HasSubstr("Worker.replicas: must be an integer from 0")));
  }
}

struct BadField {
  const char* kind;
  const char* version;  ///< Of an MPIJob.
  const char* fields;
  const char* problem;
};

class BadFields : public ::testing::TestWithParam<BadField> {};

// mpijob same: v1alpha1.gpus; v2.mpiReplicaSpecs; v2.replicas; v2.restartPolicy; case.validation
// mpijob different: v2.launcherCreationPolicy-enum; v1alpha1.notMultiple
TEST_P(BadFields, AreNamedWithTheirPath) {
  const BadField& bad = GetParam();
  const bool is_corro = std::string_view(bad.kind) == "CorroJob";
  const Json spec = is_corro ? corro_spec(bad.fields) : mpi_spec(bad.version, bad.fields);
  EXPECT_THAT(texts(read(bad.kind, spec).problems), Contains(HasSubstr(bad.problem)));
}

INSTANTIATE_TEST_SUITE_P(
    CorroJob, BadFields,
    ::testing::Values(
        BadField{"CorroJob", "", R"({"worker": {"target": 0}})",
                 "spec.worker.target: must be an integer from 1 to 10000"},
        BadField{"CorroJob", "", R"({"worker": {"target": 10001}})", "spec.worker.target"},
        BadField{"CorroJob", "", R"({"worker": {"target": 2.5}})", "spec.worker.target"},
        BadField{"CorroJob", "", R"({"worker": {"target": "2"}})", "spec.worker.target"},
        BadField{"CorroJob", "", R"({"worker": {"min": 3}})", "spec.worker.min: must be at most"},
        BadField{"CorroJob", "", R"({"worker": {"max": 1}})", "spec.worker.max: must be at least"},
        BadField{"CorroJob", "", R"({"worker": {"min": 1}})",
                 "spec.worker.max: is needed with min"},
        BadField{"CorroJob", "", R"({"worker": {"slots": 0}})", "spec.worker.slots"},
        BadField{"CorroJob", "", R"({"worker": {"template": 7}})", "spec.worker.template"},
        BadField{"CorroJob", "", R"({"worker": {"template": {"spec": {"containers": []}}}})",
                 "spec.worker.template.spec.containers: must be a list of at least one"},
        BadField{"CorroJob", "", R"({"worker": {"template": {"spec": {"containers": [7]}}}})",
                 "spec.worker.template.spec.containers[0]: must be an object"},
        BadField{"CorroJob", "",
                 R"({"worker": {"template": {"spec": {"containers":
                     [{"name": "a", "command": "train"}]}}}})",
                 "spec.worker.template.spec.containers[0].command: must be a list of texts"},
        BadField{"CorroJob", "",
                 R"({"worker": {"template": {"spec": {"containers": [{"name": "a"}]}}}})",
                 "spec.worker.template.spec.containers[0].command: is needed: the image's own"},
        BadField{"CorroJob", "",
                 R"({"worker": {"template": {"spec": {"containers":
                     [{"name": "a", "command": [""], "args": ["train"]}]}}}})",
                 "spec.worker.template.spec.containers[0].command: is needed"},
        BadField{"CorroJob", "",
                 R"({"worker": {"template": {"spec": {"restartPolicy": "Always", "containers":
                     [{"name": "a"}]}}}})",
                 "spec.worker.template.spec.restartPolicy: must be one of Never"},
        BadField{"CorroJob", "", R"({"server": {}})", "spec.server: is reserved"},
        BadField{"CorroJob", "", R"({"coordinator": {}})", "spec.coordinator: is reserved"},
        BadField{"CorroJob", "", R"({"data": 7})", "spec.data: must be a list"},
        BadField{"CorroJob", "", R"({"data": [{}]})", "spec.data[0].claim: is missing"},
        BadField{"CorroJob", "", R"({"data": [{"claim": "a", "mountPath": "x"}]})",
                 "spec.data[0].mountPath: must be absolute"},
        BadField{
            "CorroJob", "",
            R"({"data": [{"claim": "a", "mountPath": "/x"}, {"claim": "b", "mountPath": "/x"}]})",
            "spec.data: two volumes are mounted at /x"},
        BadField{"CorroJob", "", R"({"sync": "/workspace/.."})",
                 "spec.sync: must be /workspace/NAME"},
        BadField{"CorroJob", "", R"({"sync": "/home/me"})", "spec.sync: must be /workspace/NAME"},
        BadField{"CorroJob", "", R"({"checkpoint": {}})", "spec.checkpoint.claim: is missing"},
        BadField{"CorroJob", "", R"({"gang": "Yes"})", "spec.gang: must be one of Auto, Off"},
        BadField{"CorroJob", "", R"({"restart": {"userError": {"limit": -1}}})",
                 "spec.restart.userError.limit"},
        BadField{"CorroJob", "",
                 R"({"restart": {"lostPod": {"backoffSeconds": 9, "maxBackoffSeconds": 3}}})",
                 "spec.restart.lostPod.maxBackoffSeconds: must be at least"},
        BadField{"CorroJob", "", R"({"restart": []})", "spec.restart: must be an object"},
        BadField{"CorroJob", "", R"({"activeDeadlineSeconds": 0})", "spec.activeDeadlineSeconds"},
        BadField{"CorroJob", "", R"({"ttlSecondsAfterFinished": -1})",
                 "spec.ttlSecondsAfterFinished"},
        BadField{"CorroJob", "", R"({"suspend": "yes"})", "spec.suspend: must be true or false"},
        BadField{"CorroJob", "", R"({"managedBy": "me"})", "spec.managedBy: must be one of"},
        BadField{"CorroJob", "", R"({"queue": 4})", "spec.queue: must be text"}));

INSTANTIATE_TEST_SUITE_P(
    MpiJob, BadFields,
    ::testing::Values(
        BadField{"MPIJob", "v3", "{}", "spec.writtenAs: must be one of v1alpha1"},
        BadField{"MPIJob", "v2beta1", R"({"mpiReplicaSpecs": {"Launcher": {"replicas": 5}}})",
                 "spec.mpiReplicaSpecs.Launcher.replicas: must be 1"},
        BadField{"MPIJob", "v2beta1", R"({"mpiReplicaSpecs": {"Launcher": {"replicas": 1}}})",
                 "spec.mpiReplicaSpecs.Launcher.template: is missing"},
        BadField{"MPIJob", "v2beta1", R"({"mpiReplicaSpecs": {"Worker": {"replicas": 0}}})",
                 "spec.mpiReplicaSpecs.Worker.replicas: must be an integer from 1"},
        BadField{"MPIJob", "v2beta1", R"({"mpiReplicaSpecs": {"Worker": {}}})",
                 "spec.mpiReplicaSpecs.Worker.replicas"},
        BadField{"MPIJob", "v2beta1",
                 R"({"mpiReplicaSpecs": {"Worker": {"replicas": 1, "restartPolicy": "Always"}}})",
                 "spec.mpiReplicaSpecs.Worker.restartPolicy: must be one of Never, OnFailure"},
        BadField{"MPIJob", "v2beta1", R"({"slotsPerWorker": -1})", "spec.slotsPerWorker"},
        BadField{"MPIJob", "v2beta1", R"({"launcherCreationPolicy": "Whatever"})",
                 "spec.launcherCreationPolicy: must be one of AtStartup"},
        BadField{"MPIJob", "v2beta1", R"({"mpiImplementation": "LAM"})",
                 "spec.mpiImplementation: must be one of OpenMPI, Intel, MPICH"},
        BadField{"MPIJob", "v2beta1", R"({"sshAuthMountPath": ""})", "spec.sshAuthMountPath"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"cleanPodPolicy": "Bogus"}})",
                 "spec.runPolicy.cleanPodPolicy: must be one of None, Running, All"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"backoffLimit": -4}})",
                 "spec.runPolicy.backoffLimit"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"ttlSecondsAfterFinished": -1}})",
                 "spec.runPolicy.ttlSecondsAfterFinished"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"activeDeadlineSeconds": -1}})",
                 "spec.runPolicy.activeDeadlineSeconds"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"managedBy": "other"}})",
                 "spec.runPolicy.managedBy: must be one of kubeflow.org/mpi-operator"},
        BadField{"MPIJob", "v2beta1", R"({"runPolicy": {"schedulingPolicy": 7}})",
                 "spec.runPolicy.schedulingPolicy: must be an object"},
        BadField{"MPIJob", "v1alpha2", R"({"mpiDistribution": "Intel"})",
                 "spec.mpiDistribution: must be one of OpenMPI, IntelMPI, MPICH"},
        BadField{"MPIJob", "v1alpha1", R"({"gpus": 8, "processingUnits": 8})",
                 "spec.gpus: and processingUnits exclude each other"},
        BadField{"MPIJob", "v1alpha1", R"({"gpus": 6, "gpusPerNode": 4})",
                 "spec.gpus: must be a multiple of 4"},
        BadField{"MPIJob", "v1alpha1", R"({})", "spec.template: is missing"}));

// mpijob same: case.do-nothing
TEST(ReadJob, WhatIsNoJobIsAProblemAndNoCrash) {
  for (const char* text : {"null", "7", "[]", "{}", R"({"kind": "Pod"})", R"({"kind": "MPIJob"})",
                           R"({"kind": "MPIJob", "metadata": 7, "spec": []})",
                           R"({"kind": "CorroJob", "metadata": {"name": "a", "uid": "b"}})"}) {
    SCOPED_TRACE(text);
    EXPECT_FALSE(read_job(Json::parse(text), {}).problems.empty());
  }
}

// mpijob same: v2.slotsPerWorker; v2.cleanPodPolicy; v2.mpiImplementation; v2.restartPolicy
// mpijob same: v2.launcherCreationPolicy; case.defaults
// mpijob different: v2.sshAuthMountPath-default
TEST(ReadJob, MpiJobDefaultsAreTheOperators) {
  const ReadJob job = read("MPIJob", mpi_spec("v2beta1"));
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.slots, 1);
  EXPECT_EQ(job.spec.clean_pods, CleanPods::kNone);
  EXPECT_EQ(job.spec.implementation, MpiImplementation::kOpenMpi);
  EXPECT_EQ(job.spec.launcher->restart, RestartPolicy::kOnFailure);
  EXPECT_EQ(job.spec.worker.restart, RestartPolicy::kNever);
  EXPECT_FALSE(job.spec.backoff_limit);
  EXPECT_FALSE(job.spec.launcher_waits_for_workers);
  EXPECT_EQ(job.spec.ssh_mount_path, "");
}

// mpijob same: v1alpha2.flat
// mpijob different: versions
TEST(ReadJob, TheVersionIsWrittenAsAndNeverTheEndpoint) {
  Json job = named("MPIJob", mpi_spec("v1alpha2", R"({"backoffLimit": 3,
      "runPolicy": {"activeDeadlineSeconds": 60}, "cleanPodPolicy": "Running"})"));
  job["apiVersion"] = "kubeflow.org/v1";
  const ReadJob read = read_job(job, {});
  EXPECT_THAT(texts(read.problems), IsEmpty());
  EXPECT_EQ(read.spec.version, MpiVersion::kV1alpha2);
  EXPECT_EQ(read.spec.backoff_limit, 3);
  EXPECT_EQ(read.spec.active_deadline, seconds(60));
  EXPECT_EQ(read.spec.clean_pods, CleanPods::kRunning);
  job["spec"].erase("writtenAs");
  EXPECT_EQ(read_job(job, {}).spec.version, MpiVersion::kV2beta1);
}

// mpijob same: v1.restartPolicy; v1alpha2.restartPolicy
TEST(ReadJob, V1NeverRestartsItsLauncherByDefault) {
  EXPECT_EQ(read("MPIJob", mpi_spec("v1")).spec.launcher->restart, RestartPolicy::kNever);
  EXPECT_EQ(read("MPIJob", mpi_spec("v1alpha2")).spec.launcher->restart, RestartPolicy::kOnFailure);
}

// mpijob same: v1alpha1.gpus; v1alpha1.gpusPerNode; v1alpha1.processingResourceType
// mpijob same: v1alpha1.slotsPerWorker; v1alpha1.template; v1alpha1.limits
TEST(ReadJob, UnitsOfV1alpha1BecomeWorkersAndSlots) {
  Json spec = Json::parse(R"({"writtenAs": "v1alpha1", "gpus": 16, "gpusPerNode": 8})");
  spec["template"] = kTemplate;
  const ReadJob job = read("MPIJob", spec);
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.workers, 2);
  EXPECT_EQ(job.spec.slots, 8);
  EXPECT_EQ(job.spec.backoff_limit, 6);
  EXPECT_TRUE(job.spec.launcher_waits_for_workers);
  const Json::json_pointer limit("/spec/containers/0/resources/limits/nvidia.com~1gpu");
  EXPECT_EQ(job.spec.worker.pod_template[limit], 8);
  EXPECT_FALSE(job.spec.launcher->pod_template.contains(limit));
}

// mpijob same: v1alpha1.gpusPerNode
TEST(ReadJob, FewerUnitsThanANodeHasAreOneWorker) {
  Json spec = Json::parse(R"({"writtenAs": "v1alpha1", "gpus": 2, "gpusPerNode": 8})");
  spec["template"] = kTemplate;
  const ReadJob job = read("MPIJob", spec);
  EXPECT_EQ(job.spec.workers, 1);
  EXPECT_EQ(job.spec.slots, 2);
}

// mpijob same: v1alpha1.replicas; v1alpha1.slotsPerWorker
TEST(ReadJob, ReplicasOfV1alpha1TakeTheSlotsFromTheLimit) {
  Json spec = Json::parse(R"({"writtenAs": "v1alpha1", "replicas": 3})");
  spec["template"] = kTemplate;
  spec["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "4";
  const ReadJob job = read("MPIJob", spec);
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.workers, 3);
  EXPECT_EQ(job.spec.slots, 4);
}

// mpijob same: v1alpha1.gpusPerNode
TEST(ReadJob, UnitsOfV1alpha1FallBackToTheOperatorsFlag) {
  Json spec = Json::parse(R"({"writtenAs": "v1alpha1", "processingUnits": 8})");
  spec["template"] = kTemplate;
  ReadOptions options;
  EXPECT_EQ(read_job(named("MPIJob", spec), options).spec.workers, 8);
  options.units_per_node = 4;
  const ReadJob job = read_job(named("MPIJob", spec), options);
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.workers, 2);
  EXPECT_EQ(job.spec.slots, 4);
}

// mpijob same: v1alpha1.processingResourceType; v1alpha1.limits
TEST(ReadJob, ProcessingUnitsOfV1alpha1MayBeProcessors) {
  Json spec = Json::parse(R"({"writtenAs": "v1alpha1", "processingUnits": 4,
      "processingUnitsPerNode": 2, "processingResourceType": "cpu",
      "backoffLimit": 2, "activeDeadlineSeconds": 60})");
  spec["template"] = kTemplate;
  const ReadJob job = read("MPIJob", spec);
  EXPECT_THAT(texts(job.problems), IsEmpty());
  EXPECT_EQ(job.spec.workers, 2);
  const Json& container = job.spec.worker.pod_template["spec"]["containers"][0];
  EXPECT_EQ(container["resources"]["limits"]["cpu"], 2);
  EXPECT_EQ(job.spec.backoff_limit, 2);
  EXPECT_EQ(job.spec.active_deadline, seconds(60));
}

// mpijob same: v1alpha2.runPolicy
TEST(ReadJob, RunPolicyWinsOverTheFlatFields) {
  const JobSpec spec = read("MPIJob", mpi_spec("v1alpha2", R"({"cleanPodPolicy": "Running",
      "backoffLimit": 3, "activeDeadlineSeconds": 30, "runPolicy": {"cleanPodPolicy": "All",
      "backoffLimit": 1, "activeDeadlineSeconds": 60}})"))
                           .spec;
  EXPECT_EQ(spec.clean_pods, CleanPods::kAll);
  EXPECT_EQ(spec.backoff_limit, 1);
  EXPECT_EQ(spec.active_deadline, seconds(60));
}

// mpijob same: v1alpha2.mpiDistribution; case.defaults-overridden
TEST(ReadJob, EachVersionHasItsWordsForTheImplementation) {
  const auto implementation_of = [](const char* version, const char* fields) {
    return read("MPIJob", mpi_spec(version, fields)).spec.implementation;
  };
  EXPECT_EQ(implementation_of("v1alpha2", "{}"), MpiImplementation::kOpenMpi);
  EXPECT_EQ(implementation_of("v1alpha2", R"({"mpiDistribution": "IntelMPI"})"),
            MpiImplementation::kIntel);
  EXPECT_EQ(implementation_of("v1alpha2", R"({"mpiDistribution": "MPICH"})"),
            MpiImplementation::kMpich);
  EXPECT_EQ(implementation_of("v2beta1", R"({"mpiImplementation": "Intel"})"),
            MpiImplementation::kIntel);
  EXPECT_EQ(implementation_of("v2beta1", R"({"mpiImplementation": "MPICH"})"),
            MpiImplementation::kMpich);
}

// mpijob same: v1alpha2.restartPolicy; v1.restartPolicy
TEST(ReadJob, RestartPoliciesOfOlderVersionsBecomeThoseOfPods) {
  const auto launcher_of = [](const char* version, const char* policy) {
    Json spec = mpi_spec(version);
    spec["mpiReplicaSpecs"]["Launcher"]["restartPolicy"] = policy;
    return read("MPIJob", spec).spec.launcher->restart;
  };
  EXPECT_EQ(launcher_of("v1alpha2", "Never"), RestartPolicy::kNever);
  EXPECT_EQ(launcher_of("v1alpha2", "OnFailure"), RestartPolicy::kOnFailure);
  EXPECT_EQ(launcher_of("v1alpha2", "Always"), RestartPolicy::kOnFailure);
  EXPECT_EQ(launcher_of("v1", "ExitCode"), RestartPolicy::kNever);
  EXPECT_EQ(launcher_of("v1", "OnFailure"), RestartPolicy::kOnFailure);
  EXPECT_EQ(read("MPIJob", mpi_spec("v1")).spec.worker.restart, RestartPolicy::kNever);
}

// mpijob different: v2.sshAuthMountPath-default
TEST(ReadJob, AStoredRootSshPathIsTheUsersOnlyIfAFieldManagerSaysSo) {
  Json job = named("MPIJob", mpi_spec("v2beta1", R"({"sshAuthMountPath": "/root/.ssh"})"));
  EXPECT_EQ(read_job(job, {}).spec.ssh_mount_path, "");
  Json& managers = job["metadata"]["managedFields"];
  managers = Json::parse(
      R"([7, {"operation": "Apply", "fieldsV1": {"f:spec": {"f:sshAuthMountPath": {}}}}])");
  EXPECT_EQ(read_job(job, {}).spec.ssh_mount_path, "/root/.ssh");
  managers[1]["operation"] = "Update";  // The MPI Operator's default.
  EXPECT_EQ(read_job(job, {}).spec.ssh_mount_path, "");
  managers[1]["fieldsV1"]["f:spec"]["f:writtenAs"] = Json::object();
  EXPECT_EQ(read_job(job, {}).spec.ssh_mount_path, "/root/.ssh");
  job["metadata"].erase("managedFields");
  job["spec"]["sshAuthMountPath"] = "/home/mpi/.ssh";
  EXPECT_EQ(read_job(job, {}).spec.ssh_mount_path, "/home/mpi/.ssh");
}

// mpijob same: name-length; case.validation-name
TEST(ReadJob, TheLastWorkersHostNameHasToFit) {
  Json job = named("CorroJob", corro_spec(R"({"worker": {"target": 100}})"));
  job["metadata"]["name"] = std::string(53, 'a');  // 53 + "-worker-99" = 63
  EXPECT_THAT(texts(read_job(job, {}).problems), IsEmpty());
  job["metadata"]["name"] = std::string(54, 'a');
  EXPECT_THAT(texts(read_job(job, {}).problems), Contains(HasSubstr("metadata.name: aaa")));
  job["metadata"]["name"] = "1st";
  EXPECT_THAT(texts(read_job(job, {}).problems), Contains(HasSubstr("must be a host name")));
}

// mpijob same: worker-pods
// mpijob different: replacement-name
TEST(Names, OfPods) {
  const JobSpec mpi = read("MPIJob", mpi_spec("v2beta1")).spec;
  EXPECT_EQ(pod_name(mpi, Member::kWorker, 1, 0), "mnist-worker-1");
  EXPECT_EQ(pod_name(mpi, Member::kWorker, 1, 2), "mnist-worker-1-g2");
  EXPECT_EQ(pod_name(mpi, Member::kHead, 0, 0), "mnist-head");
  const JobSpec corro = read("CorroJob", corro_spec()).spec;
  EXPECT_EQ(pod_name(corro, Member::kWorker, 1, 0), "mnist-worker-1-g0");
  EXPECT_EQ(pod_name(corro, Member::kHead, 0, 1), "mnist-head-g1");
}

TEST(Names, SecretsHold256Workers) {
  const JobSpec spec = read("CorroJob", corro_spec()).spec;
  EXPECT_EQ(secret_name(spec, 0), "mnist-u-1");
  EXPECT_EQ(secret_name(spec, 255), "mnist-u-1");
  EXPECT_EQ(secret_name(spec, 256), "mnist-u-1-1");
}

}  // namespace
}  // namespace corro::kube
