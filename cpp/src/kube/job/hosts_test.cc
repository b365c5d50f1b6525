#include "kube/job/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/job/mpi_environment.h"
#include "kube/job/names.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;

JobSpec mpi_of(MpiVersion version, MpiImplementation implementation = MpiImplementation::kOpenMpi) {
  JobSpec spec;
  spec.version = version;
  spec.implementation = implementation;
  spec.name = "foo";
  spec.space = "bar";
  spec.uid = "u-1";
  spec.workers = 2;
  spec.slots = 4;
  spec.launcher = Role{};
  return spec;
}

// mpijob same: hostfile; case.config-map
TEST(Hostfile, HasAFormatForEachImplementation) {
  EXPECT_EQ(hostfile_text(mpi_of(MpiVersion::kV2beta1), ""),
            "foo-worker-0.foo.bar.svc slots=4\nfoo-worker-1.foo.bar.svc slots=4\n");
  for (const auto colon : {MpiImplementation::kIntel, MpiImplementation::kMpich}) {
    EXPECT_EQ(hostfile_text(mpi_of(MpiVersion::kV2beta1, colon), ""),
              "foo-worker-0.foo.bar.svc:4\nfoo-worker-1.foo.bar.svc:4\n");
  }
}

// mpijob same: hostfile; v2.runLauncherAsWorker; case.config-map; case.e2e-domain
TEST(Hostfile, HasTheClusterDomainAndTheLauncherThatWorks) {
  JobSpec spec = mpi_of(MpiVersion::kV2beta1);
  spec.workers = 1;
  spec.launcher_is_worker = true;
  EXPECT_EQ(hostfile_text(spec, "corp.example"),
            "foo-launcher.foo.bar.svc.corp.example slots=4\n"
            "foo-worker-0.foo.bar.svc.corp.example slots=4\n");
  spec.workers = 0;
  EXPECT_EQ(hostfile_text(spec, ""), "foo-launcher.foo.bar.svc slots=4\n");
}

// mpijob same: hostfile-old
TEST(Hostfile, OfOlderVersionsHasBareNames) {
  for (const auto version : {MpiVersion::kV1alpha1, MpiVersion::kV1alpha2, MpiVersion::kV1})
    EXPECT_EQ(hostfile_text(mpi_of(version), ""), "foo-worker-0 slots=4\nfoo-worker-1 slots=4\n");
  EXPECT_EQ(hostfile_text(mpi_of(MpiVersion::kV1alpha2, MpiImplementation::kIntel), ""),
            "foo-worker-0:4\nfoo-worker-1:4\n");
}

TEST(Hostfile, OfV1HasALauncherWithGpus) {
  JobSpec spec = mpi_of(MpiVersion::kV1);
  spec.launcher->pod_template = Json::parse(
      R"({"spec": {"containers": [{"name": "a", "resources": {"limits": {"amd.com/gpu": 1}}}]}})");
  EXPECT_EQ(hostfile_text(spec, ""),
            "foo-launcher slots=4\nfoo-worker-0 slots=4\nfoo-worker-1 slots=4\n");
}

// mpijob same: discover-hosts; case.discover-hosts
TEST(DiscoverHosts, PrintsWhatRunsInTheOrderOfNames) {
  JobSpec spec = mpi_of(MpiVersion::kV2beta1);
  EXPECT_EQ(discover_hosts_text(spec, {}, ""), "#!/bin/sh\n");
  EXPECT_EQ(discover_hosts_text(spec, {1, 0}, ""),
            "#!/bin/sh\necho foo-worker-0.foo.bar.svc\necho foo-worker-1.foo.bar.svc\n");
  EXPECT_EQ(discover_hosts_text(spec, {10, 9}, "c.d"),
            "#!/bin/sh\necho foo-worker-10.foo.bar.svc.c.d\necho foo-worker-9.foo.bar.svc.c.d\n");
  spec.launcher_is_worker = true;
  EXPECT_EQ(discover_hosts_text(spec, {0}, ""),
            "#!/bin/sh\necho foo-launcher.foo.bar.svc\necho foo-worker-0.foo.bar.svc\n");
}

// mpijob same: discover-hosts
TEST(DiscoverHosts, OfV1HasSlots) {
  EXPECT_EQ(discover_hosts_text(mpi_of(MpiVersion::kV1), {0}, ""),
            "#!/bin/sh\necho foo-worker-0:4\n");
}

// mpijob same: env-open-mpi; env-role; env-gpus
// mpijob different: env-open-mpi-5; env-shell
TEST(LauncherVariables, NameOpenMpi4And5) {
  const Variables variables = launcher_variables(mpi_of(MpiVersion::kV2beta1), "/rsh");
  EXPECT_THAT(variables, Contains(Pair("K_MPI_JOB_ROLE", "launcher")));
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_orte_default_hostfile", "/etc/mpi/hostfile")));
  EXPECT_THAT(variables, Contains(Pair("PRTE_MCA_prte_default_hostfile", "/etc/mpi/hostfile")));
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_orte_keep_fqdn_hostnames", "true")));
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10")));
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_orte_set_default_slots", "4")));
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_plm_rsh_agent", "/rsh")));
  EXPECT_THAT(variables, Contains(Pair("PRTE_MCA_plm_ssh_agent", "/rsh")));
  EXPECT_THAT(variables, Contains(Pair("NVIDIA_VISIBLE_DEVICES", "")));
  EXPECT_THAT(variables, Contains(Pair("NVIDIA_DRIVER_CAPABILITIES", "")));
  EXPECT_THAT(worker_variables(mpi_of(MpiVersion::kV2beta1)),
              ElementsAre(Pair("K_MPI_JOB_ROLE", "worker")));
}

// mpijob same: env-intel; env-mpich
// mpijob different: env-shell
TEST(LauncherVariables, OfIntelAndMpich) {
  const auto intel =
      launcher_variables(mpi_of(MpiVersion::kV2beta1, MpiImplementation::kIntel), "/rsh");
  EXPECT_THAT(intel, Contains(Pair("I_MPI_HYDRA_HOST_FILE", "/etc/mpi/hostfile")));
  EXPECT_THAT(intel, Contains(Pair("I_MPI_PERHOST", "4")));
  EXPECT_THAT(intel,
              Contains(Pair("I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS", "-o ConnectionAttempts=10")));
  EXPECT_THAT(intel, Contains(Pair("I_MPI_HYDRA_BOOTSTRAP_EXEC", "/rsh")));
  EXPECT_THAT(intel, Not(Contains(Key("OMPI_MCA_plm_rsh_agent"))));
  const auto mpich =
      launcher_variables(mpi_of(MpiVersion::kV2beta1, MpiImplementation::kMpich), "/rsh");
  EXPECT_THAT(mpich, Contains(Pair("HYDRA_HOST_FILE", "/etc/mpi/hostfile")));
  EXPECT_THAT(mpich, Contains(Pair("HYDRA_LAUNCH_EXTRA_ARGS", "-o ConnectionAttempts=10")));
  EXPECT_THAT(mpich, Contains(Pair("HYDRA_LAUNCHER_EXEC", "/rsh")));
}

TEST(LauncherVariables, WithRealSshNameNoRemoteShell) {
  const auto variables = launcher_variables(mpi_of(MpiVersion::kV2beta1), "");
  EXPECT_THAT(variables, Not(Contains(Key("OMPI_MCA_plm_rsh_agent"))));
}

// mpijob different: kubexec
TEST(LauncherVariables, OfOlderVersionsCallKubexec) {
  const auto variables = launcher_variables(mpi_of(MpiVersion::kV1alpha2), "/rsh");
  EXPECT_THAT(variables, Contains(Pair("OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh")));
  EXPECT_THAT(variables, Not(Contains(Key("K_MPI_JOB_ROLE"))));
  EXPECT_EQ(kubexec_text("/rsh"), "#!/bin/sh\nexec /rsh \"$@\"\n");
}

// mpijob same: env-gpus
TEST(LauncherVariables, LeaveTheGpusToALauncherThatWorks) {
  JobSpec spec = mpi_of(MpiVersion::kV2beta1);
  spec.launcher_is_worker = true;
  EXPECT_THAT(launcher_variables(spec, "/rsh"), Not(Contains(Key("NVIDIA_VISIBLE_DEVICES"))));
}

// mpijob same: labels; labels-old
TEST(Labels, AreThoseOfEachVersion) {
  const Labels v2 = pod_labels(mpi_of(MpiVersion::kV2beta1), Member::kWorker, 1, 0);
  EXPECT_THAT(v2, Contains(Pair("training.kubeflow.org/operator-name", "mpi-operator")));
  EXPECT_THAT(v2, Contains(Pair("training.kubeflow.org/job-name", "foo")));
  EXPECT_THAT(v2, Contains(Pair("training.kubeflow.org/job-role", "worker")));
  EXPECT_THAT(v2, Contains(Pair("training.kubeflow.org/replica-index", "1")));
  const Labels v1 = pod_labels(mpi_of(MpiVersion::kV1), Member::kLauncher, 0, 0);
  EXPECT_THAT(v1, Contains(Pair("mpi-job-role", "launcher")));
  const Labels old = pod_labels(mpi_of(MpiVersion::kV1alpha1), Member::kWorker, 0, 0);
  EXPECT_THAT(old, Contains(Pair("mpi_role_type", "worker")));
}

// mpijob same: replica-index; v2.runLauncherAsWorker
TEST(Labels, CountTheLauncherFirstIfItWorks) {
  JobSpec spec = mpi_of(MpiVersion::kV2beta1);
  spec.launcher_is_worker = true;
  constexpr const char* kIndex = "training.kubeflow.org/replica-index";
  EXPECT_THAT(pod_labels(spec, Member::kLauncher, 0, 0), Contains(Pair(kIndex, "0")));
  EXPECT_THAT(pod_labels(spec, Member::kWorker, 0, 0), Contains(Pair(kIndex, "1")));
  EXPECT_THAT(pod_labels(spec, Member::kWorker, 0, 0),
              Contains(Pair(std::string(kIndexLabel), "0")));
}

}  // namespace
}  // namespace corro::kube
