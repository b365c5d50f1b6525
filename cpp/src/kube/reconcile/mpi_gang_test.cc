// PodGroups of MPIJobs, for Volcano and scheduler-plugins, as the MPI Operator makes them. The
// lines `mpijob same:` and `mpijob different:` name rows of docs/mpijob.md (tools/mpijob_page.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using ::testing::Contains;
using ::testing::IsEmpty;
using ::testing::Not;

Options gang_of(const char* scheduler) {
  Options options;
  options.gang_scheduler = scheduler;
  options.served.volcano = true;
  options.served.scheduler_plugins = true;
  return options;
}

/// The PodGroup of a job once it runs.
Json group_of(const Json& job, const char* scheduler) {
  ClusterModel cluster(job, 1, gang_of(scheduler));
  EXPECT_TRUE(cluster.settle());
  const Json* group = cluster.get("PodGroup", "mnist");
  return group == nullptr ? Json() : *group;
}

Json with_priorities(const char* launcher, const char* worker) {
  Json job = sample_mpi_job(1);
  Json& roles = job["spec"]["mpiReplicaSpecs"];
  roles["Launcher"]["template"]["spec"]["priorityClassName"] = launcher;
  roles["Worker"]["template"]["spec"]["priorityClassName"] = worker;
  return job;
}

// mpijob same: gang; case.gang-scheduler-name
TEST(MpiGang, EachSchedulersPodsSayTheirGroupInItsWay) {
  ClusterModel volcano(sample_mpi_job(1), 1, gang_of("volcano"));
  ASSERT_TRUE(volcano.settle());
  EXPECT_EQ((*volcano.get("PodGroup", "mnist"))["apiVersion"], "scheduling.volcano.sh/v1beta1");
  for (const Json& pod : {*volcano.get("Pod", "mnist-worker-0"), launcher_template(volcano)}) {
    EXPECT_EQ(pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"], "mnist");
    EXPECT_EQ(pod["spec"]["schedulerName"], "volcano");
  }
  ClusterModel plugins(sample_mpi_job(1), 1, gang_of("my-scheduler"));
  ASSERT_TRUE(plugins.settle());
  EXPECT_EQ((*plugins.get("PodGroup", "mnist"))["apiVersion"], "scheduling.x-k8s.io/v1alpha1");
  for (const Json& pod : {*plugins.get("Pod", "mnist-worker-0"), launcher_template(plugins)}) {
    EXPECT_EQ(pod["metadata"]["labels"]["scheduling.x-k8s.io/pod-group"], "mnist");
    EXPECT_EQ(pod["spec"]["schedulerName"], "my-scheduler");
  }
}

// mpijob same: gang-flag
TEST(MpiGang, ThereIsNoneUnlessTheOperatorIsToldSo) {
  EXPECT_TRUE(group_of(sample_mpi_job(1), "").is_null());
  EXPECT_FALSE(group_of(sample_mpi_job(1), "volcano").is_null());
}

// mpijob same: v2.minAvailable; v2.minResources; v2.priorityClass; case.new-pod-group
TEST(MpiGang, HasWhatItsPolicySays) {
  const Json job = with(sample_mpi_job(4), R"({"runPolicy": {"schedulingPolicy": {
      "minAvailable": 2, "queue": "team", "priorityClass": "high",
      "minResources": {"cpu": "100"}, "scheduleTimeoutSeconds": 30}}})");
  EXPECT_EQ(group_of(job, "volcano")["spec"],
            patched(R"({"minMember": 2, "queue": "team", "priorityClassName": "high",
                        "minResources": {"cpu": "100"}})"));
  EXPECT_EQ(group_of(job, "my-scheduler")["spec"],
            patched(R"({"minMember": 2, "scheduleTimeoutSeconds": 30,
                        "minResources": {"cpu": "100"}})"));
}

// mpijob same: v2.minAvailable; v2.scheduleTimeoutSeconds; case.new-pod-group; case.min-available
TEST(MpiGang, WithoutAPolicyIsTheWholeJob) {
  EXPECT_EQ(group_of(sample_mpi_job(4), "volcano")["spec"], patched(R"({"minMember": 5})"));
  EXPECT_EQ(group_of(sample_mpi_job(4), "my-scheduler")["spec"],
            patched(R"({"minMember": 5, "scheduleTimeoutSeconds": 0})"));
  Json alone = sample_mpi_job(1);
  alone["spec"]["mpiReplicaSpecs"].erase("Worker");
  EXPECT_EQ(group_of(alone, "volcano")["spec"]["minMember"], 1);
}

// mpijob same: v2.queue
TEST(MpiGang, TheQueueIsThePolicysOrThatOfVolcanosAnnotation) {
  Json job = sample_mpi_job(1);
  job["metadata"]["annotations"]["scheduling.volcano.sh/queue-name"] = "by-annotation";
  EXPECT_EQ(group_of(job, "volcano")["spec"]["queue"], "by-annotation");
  EXPECT_FALSE(group_of(job, "my-scheduler")["spec"].contains("queue"));
  job["spec"]["runPolicy"]["schedulingPolicy"]["queue"] = "by-policy";
  EXPECT_EQ(group_of(job, "volcano")["spec"]["queue"], "by-policy");
}

// mpijob same: v2.priorityClass; case.priority-class
TEST(MpiGang, ThePriorityIsThePolicysTheLaunchersOrTheWorkers) {
  const auto priority_of = [](const Json& job) {
    return group_of(job, "volcano")["spec"].value("priorityClassName", "none");
  };
  EXPECT_EQ(priority_of(with(with_priorities("launcher", "worker"),
                             R"({"runPolicy": {"schedulingPolicy": {"priorityClass": "job"}}})")),
            "job");
  EXPECT_EQ(priority_of(with_priorities("launcher", "worker")), "launcher");
  EXPECT_EQ(priority_of(with_priorities("", "worker")), "worker");
  EXPECT_EQ(priority_of(sample_mpi_job(1)), "none");
}

// mpijob same: min-resources; case.add-resources
TEST(MpiGang, ItsResourcesAreRequestsElseLimitsOfContainersThatStay) {
  Json job = sample_mpi_job(2);
  Json& worker = job["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"];
  worker["containers"][0]["resources"] =
      patched(R"({"requests": {"cpu": "2"}, "limits": {"cpu": "9", "nvidia.com/gpu": 4}})");
  worker["initContainers"] =
      patched(R"([{"name": "first", "resources": {"requests": {"cpu": "50"}}}])");
  EXPECT_EQ(group_of(job, "volcano")["spec"]["minResources"],
            patched(R"({"cpu": "4", "nvidia.com/gpu": "8"})"));
}

// mpijob different: min-resources-order
TEST(MpiGang, TheLaunchersResourcesComeFirstWhateverThePriorities) {
  Json job = with_priorities("low", "high");
  job["spec"]["runPolicy"]["schedulingPolicy"]["minAvailable"] = 1;
  Json& roles = job["spec"]["mpiReplicaSpecs"];
  for (const auto& [role, cpu] : {std::pair("Launcher", "1"), std::pair("Worker", "8")})
    roles[role]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = cpu;
  EXPECT_EQ(group_of(job, "volcano")["spec"]["minResources"], patched(R"({"cpu": "1"})"));
}

// mpijob different: gang-end
TEST(MpiGang, TheGroupGoesWithTheJobsEndAndItsSuspension) {
  for (const char* policy : {"None", "Running", "All"}) {
    Json job = sample_mpi_job(1);
    job["spec"]["runPolicy"]["cleanPodPolicy"] = policy;
    ClusterModel cluster(job, 1, gang_of("volcano"));
    ASSERT_TRUE(cluster.settle());
    cluster.finish_ranks();
    ASSERT_TRUE(cluster.settle());
    EXPECT_THAT(cluster.list("PodGroup"), IsEmpty()) << policy;
  }
  ClusterModel cluster(sample_mpi_job(1), 1, gang_of("volcano"));
  ASSERT_TRUE(cluster.settle());
  cluster.change_spec(patched(R"({"runPolicy": {"suspend": true}})"));
  ASSERT_TRUE(cluster.settle());
  EXPECT_THAT(cluster.list("PodGroup"), IsEmpty());
}

}  // namespace
}  // namespace corro::kube
