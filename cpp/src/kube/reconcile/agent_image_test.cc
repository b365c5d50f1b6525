#include "kube/reconcile/agent_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using ::testing::IsEmpty;
using Harm = ClusterModel::Harm;

constexpr const char* kOld = "corro-agent:1";
constexpr const char* kNew = "corro-agent:2";

Options of_version_one() {
  Options options;
  options.agent_image = kOld;
  return options;
}

/// The image that the agent of a pod comes from; of a head its own.
std::string image_of(const ClusterModel& cluster, const std::string& pod) {
  const auto made = cluster.bodies.find("Pod/" + pod);
  if (made == cluster.bodies.end()) return "not made";
  const Json& spec = made->second["spec"];
  return (spec.contains("initContainers") ? spec["initContainers"] : spec["containers"])
      .back()["image"];
}

void suspend_and_resume(ClusterModel& cluster) {
  for (const bool suspend : {true, false}) {
    const Json value = {{"suspend", suspend}};
    cluster.change_spec(cluster.job()["kind"] == "CorroJob" ? value : Json{{"runPolicy", value}});
    ASSERT_TRUE(cluster.settle());
  }
}

/// A job that runs, and whose operator was replaced by one of another version.
class AgentImage : public ::testing::Test {
 protected:
  void begin(const Json& job) {
    cluster_.emplace(job, 1, of_version_one());
    ASSERT_TRUE(cluster_->settle());
    cluster_->upgrade_operator(kNew);
    ASSERT_TRUE(cluster_->settle());
  }
  void lose(const std::string& pod, Harm harm = Harm::kEvict) {
    ASSERT_TRUE(cluster_->harm_pod(pod, harm));
    ASSERT_TRUE(cluster_->settle());
    EXPECT_EQ(cluster_->state(), "Running");
    EXPECT_THAT(cluster_->violations, IsEmpty());
  }
  std::string image(const std::string& pod) const { return image_of(*cluster_, pod); }

  std::optional<ClusterModel> cluster_;
};

TEST_F(AgentImage, OfAnElasticJobStaysWhenHeadOrWorkersAreLost) {
  begin(sample_elastic_job(2));
  lose("mnist-worker-1-g0");
  EXPECT_EQ(image("mnist-worker-1-g1"), kOld);
  lose("mnist-head");
  EXPECT_EQ(image("mnist-head-g1"), kOld);
  cluster_->change_spec(workers_of(*cluster_, 3));
  ASSERT_TRUE(cluster_->settle());
  EXPECT_EQ(image("mnist-worker-2-g0"), kOld);
  EXPECT_EQ(status_of(*cluster_, "/agentImage"), Json(kOld));
}

TEST_F(AgentImage, OfAnElasticJobWhoseRanksAllBeginAnewIsTheOperatorsOwn) {
  begin(sample_elastic_job(2));
  lose("mnist-head", Harm::kExitCode);
  for (const char* pod : {"mnist-head-g1", "mnist-worker-0-g1", "mnist-worker-1-g1"})
    EXPECT_EQ(image(pod), kNew) << pod;
}

TEST_F(AgentImage, OfACorroJobStaysInARestartThatKeepsItsHead) {
  begin(sample_corro_job(2));
  lose("mnist-worker-0-g0", Harm::kExitCode);
  EXPECT_EQ(image("mnist-worker-0-g1"), kOld);
  EXPECT_EQ(image("mnist-head-g1"), "not made");
}

TEST_F(AgentImage, OfAnMpiJobStaysWhenAWorkerIsLost) {
  for (const char* version : {"v2beta1", "v1"}) {
    begin(sample_mpi_job(2, version));
    lose("mnist-worker-0");
    EXPECT_EQ(image("mnist-worker-0-g1"), kOld) << version;
  }
}

TEST_F(AgentImage, OfALauncherThatRunsIsThatOfAllOtherPodsThatAreMadeAgain) {
  begin(sample_mpi_job(1));
  for (const char* pod : {"mnist-head", "mnist-worker-0"})
    ASSERT_TRUE(cluster_->harm_pod(pod, Harm::kEvict));
  ASSERT_TRUE(cluster_->settle());
  EXPECT_EQ(image("mnist-head-g1"), kOld);
}

TEST_F(AgentImage, IsTheOperatorsOwnOnceTheJobWasSuspended) {
  for (const Json& job :
       {sample_elastic_job(1), sample_corro_job(1), sample_mpi_job(1), sample_mpi_job(1, "v1")}) {
    begin(job);
    suspend_and_resume(*cluster_);
    EXPECT_EQ(cluster_->state(), "Running");
    EXPECT_EQ(image("mnist-head-g1"), kNew);
    EXPECT_EQ(image("mnist-worker-0-g1"), kNew);
    EXPECT_EQ(status_of(*cluster_, "/agentImage"), Json(kNew));
    if (cluster_->get("Job", "mnist-launcher") == nullptr) continue;
    EXPECT_EQ(launcher_template(*cluster_)["spec"]["initContainers"][0]["image"], kNew);
  }
}

TEST_F(AgentImage, IsThatOfAPodWhichNoWatchHasShownYet) {
  begin(sample_elastic_job(1));
  ASSERT_TRUE(cluster_->harm_pod("mnist-worker-0-g0", Harm::kVanish));
  cluster_->deliver_all();
  cluster_->reconcile_once({});
  ASSERT_EQ(image("mnist-worker-0-g1"), kOld);
  ASSERT_TRUE(cluster_->harm_pod("mnist-head", Harm::kVanish));
  ASSERT_TRUE(cluster_->settle());
  EXPECT_EQ(image("mnist-head-g1"), kOld);
  EXPECT_THAT(cluster_->violations, IsEmpty());
}

}  // namespace
}  // namespace corro::kube
