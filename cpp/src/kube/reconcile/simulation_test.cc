// Properties of reconcile() in a model of a cluster. Rules that were broken by hand, and what
// failed then:
//
//   a finished job is not looked up in its conditions
//       AFinishedJobNeverStartsAgain, of all kinds
//   the status is written after what rests on it
//       AFinishedJob..., LossesAndCrashes..., SpecChanges...
//   a replacement does not wait for its predecessor
//       SpecChangesInBetweenEndInTheWantedState
//   a pod, or the launcher Job, stays in an old gang; a gang is joined that stays short
//       AllPodsOfAJobThatChangesItsSizeRunInTheEnd, each of the three
//   a pod that was never seen counts as lost
//       tables: pods are given up as soon as they are made
//   suspend gives out no new generations
//       table: SuspendTakesThePodsAndResumeMakesNewOnes
//   the pod's phase counts, not what corro's own container did
//       WithSidecars/...: most
//   a new pod has the agent's image of the operator that makes it
//       all of LossesAndCrashes..., SpecChanges..., AllPodsOfAJobThatChangesItsSize...
//   each end of a round counts by itself
//       table: WhatEndsWithTheFirstLossIsOneRestart
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/sanitized.h"
#include "kube/reconcile/cluster_model.h"
#include "kube/reconcile/model_looks.h"
#include "kube/reconcile/pod_view.h"
#include "kube/reconcile/sample_jobs.h"
#include "kube/reconcile/status_draft.h"

namespace corro::kube {
namespace {

using ::testing::IsEmpty;
using Harm = ClusterModel::Harm;
using std::chrono::seconds;

constexpr uint64_t kSeeds = kSanitized ? 2 : 30;
constexpr ClusterModel::Faults kFaults{.crash = 0.05, .lost_answer = 0.1, .refused = 0.05};

Json suspend_of(const ClusterModel& cluster, bool suspend) {
  const Json value = Json::object({{"suspend", suspend}});
  return cluster.job()["kind"] == "CorroJob" ? value : Json::object({{"runPolicy", value}});
}

void harm_one(ClusterModel& cluster, std::mt19937_64& random) {
  constexpr std::array kHarms = {Harm::kExitCode, Harm::kOutOfMemory, Harm::kEvict, Harm::kDelete,
                                 Harm::kVanish};
  cluster.harm_random_pod(kHarms.at(random() % kHarms.size()));
}

struct Troubles {
  int harms = 6;
  int spec_changes = 0;
  bool suspends = true;  ///< Some of the changes; else all are of the size.
};

/// Steps in random order, with faults; the troubles come in between.
void run_wild(ClusterModel& cluster, std::mt19937_64& random, Troubles troubles) {
  bool suspended = false;
  for (int step = 0; step < 200; ++step) {
    const uint64_t dice = random() % 100;
    if (dice < 45) {
      cluster.deliver_one();
    } else if (dice < 75) {
      cluster.reconcile_once(kFaults);
    } else if (dice < 90) {
      cluster.run_controllers_once();
    } else if (dice < 94) {
      cluster.pass(seconds(1));
    } else if (dice < 98 && troubles.harms > 0) {
      --troubles.harms;
      if (random() % 3 == 0) cluster.upgrade_operator(fmt::format("corro-agent:{}", step));
      harm_one(cluster, random);
    } else if (troubles.spec_changes > 0) {
      --troubles.spec_changes;
      suspended = !suspended;
      cluster.change_spec(troubles.suspends && random() % 2 == 0
                              ? suspend_of(cluster, suspended)
                              : workers_of(cluster, 1 + static_cast<int>(random() % 4)));
    }
  }
}

/// One live pod for each worker and the head, of its current generation, and no other.
void expect_whole(const ClusterModel& cluster, int workers) {
  const ReadJob read = read_job(cluster.job(), {});
  const StatusDraft status(cluster.job(), cluster.now());
  std::set<std::string> wanted;
  const auto want = [&](Member member, int index) {
    const int generation = status.member(member_key(member, index)).generation;
    wanted.insert(pod_name(read.spec, member, index, generation));
  };
  want(Member::kHead, 0);
  for (int i = 0; i < workers; ++i) want(Member::kWorker, i);
  if (read.spec.launcher_is_pod()) want(Member::kLauncher, 0);
  if (read.spec.launcher && !read.spec.launcher_is_pod()) wanted.insert("mnist-launcher-x");
  EXPECT_EQ(cluster.live_pods(), wanted);
  EXPECT_EQ(cluster.state(), "Running") << cluster.last().reason;
  EXPECT_EQ(cluster.job()["status"]["ready"], workers);
}

class Simulation : public ::testing::TestWithParam<Json> {};

TEST_P(Simulation, LossesAndCrashesEndInTheSameState) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed);
    run_wild(cluster, random, {});
    ASSERT_TRUE(cluster.settle()) << cluster.last().reason;
    expect_whole(cluster, 3);
    ASSERT_THAT(cluster.violations, IsEmpty());
    if (HasFailure()) return;
  }
}

// mpijob same: case.resume-failure
TEST_P(Simulation, SpecChangesInBetweenEndInTheWantedState) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed);
    run_wild(cluster, random, {.harms = 3, .spec_changes = 6});
    cluster.change_spec(suspend_of(cluster, false));
    cluster.change_spec(workers_of(cluster, 2));
    ASSERT_TRUE(cluster.settle()) << cluster.last().reason;
    expect_whole(cluster, 2);
    // A change of the spec is seen late: a pod may be made before the operator hears of it.
    ASSERT_THAT(cluster.violations, IsEmpty());
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, NoLossIsCountedTwice) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed);
    run_wild(cluster, random, {});
    ASSERT_TRUE(cluster.settle());
    const StatusDraft status(cluster.job(), cluster.now());
    int total = 0;
    for (const auto& [member, harms] : cluster.harms) {
      total += harms;
      const bool is_mpi = cluster.job()["kind"] == "MPIJob";
      EXPECT_LE(status.member(member).generation, is_mpi ? harms : 100) << member;
    }
    EXPECT_LE(status.number("restarts"), total);
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, AFinishedJobNeverStartsAgain) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed);
    run_wild(cluster, random, {.harms = 2});
    ASSERT_TRUE(cluster.settle());
    cluster.finish_ranks();
    run_wild(cluster, random, {.harms = 0});
    ASSERT_TRUE(cluster.settle());
    ASSERT_EQ(cluster.state(), "Succeeded") << cluster.last().reason;
    const auto creates = cluster.creates;
    run_wild(cluster, random, {.harms = 4, .spec_changes = 8});
    ASSERT_TRUE(cluster.settle());
    EXPECT_EQ(cluster.creates, creates);
    EXPECT_EQ(cluster.state(), "Succeeded");
    ASSERT_THAT(cluster.violations, IsEmpty());
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, ADeletedJobLeavesNothing) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed);
    run_wild(cluster, random, {});
    cluster.delete_job();
    EXPECT_EQ(cluster.size(), 0U);
    if (HasFailure()) return;
  }
}

TEST_P(Simulation, WhenNothingHappensNothingIsDone) {
  ClusterModel cluster(GetParam(), 1);
  ASSERT_TRUE(cluster.settle());
  const auto performed = cluster.performed;
  cluster.pass(seconds(3600));
  cluster.reconcile_once({});
  EXPECT_EQ(cluster.performed, performed);
}

/// The head's pod goes before a watch has told of it, and the answers that told the operator of it
/// were lost. What the watches tell later is the story of a pod whose name was given again.
TEST_P(Simulation, APodMadeAgainBehindAWatchsBackGetsNoTwin) {
  for (const auto& [second_is_lost, fails_first] :
       {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    SCOPED_TRACE(fmt::format("second is lost: {}, fails first: {}", second_is_lost, fails_first));
    ClusterModel cluster(GetParam(), 1);
    const std::string head = "mnist-head";
    const auto lose_its_answer = [&] {
      for (int i = 0; i < 5 && !cluster.live_pods().contains(head); ++i)
        cluster.reconcile_once({.lost_answer = 1});
    };
    cluster.deliver_all();
    cluster.reconcile_once({});  // All but the pods.
    cluster.deliver_all();
    lose_its_answer();
    if (fails_first) {
      ASSERT_TRUE(cluster.harm_pod(head, Harm::kExitCode));
    }
    ASSERT_TRUE(cluster.harm_pod(head, Harm::kVanish));
    if (second_is_lost) lose_its_answer();
    cluster.reconcile_once({});
    cluster.pass(seconds(2));  // What is seen is written at once.
    while (cluster.deliver_one()) cluster.reconcile_once({});
    ASSERT_TRUE(cluster.settle());
    expect_whole(cluster, 3);
    EXPECT_TRUE(cluster.live_pods().contains(head));
    EXPECT_EQ(cluster.creates["Pod/" + head], 2);
    EXPECT_THAT(cluster.violations, IsEmpty());
  }
}

/// An elastic job's pods are let alone but for those that are lost, and those of too high numbers.
TEST(ElasticSimulation, NoLivePodIsTakenAway) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(sample_elastic_job(3), seed);
    ASSERT_TRUE(cluster.settle());
    for (int change = 0; change < 8; ++change) {
      const auto before = cluster.live_pods();
      const int workers = 1 + static_cast<int>(random() % 5);
      const std::string victim = fmt::format("mnist-worker-{}-g0", random() % 3);
      cluster.harm_pod(victim, random() % 2 == 0 ? Harm::kEvict : Harm::kVanish);
      cluster.change_spec(workers_of(cluster, workers));
      while (cluster.deliver_one()) cluster.reconcile_once(kFaults);
      ASSERT_TRUE(cluster.settle()) << cluster.last().reason;
      expect_whole(cluster, workers);
      const auto after = cluster.live_pods();
      for (const std::string& pod : before) {
        const auto view = view_of(cluster.bodies.at("Pod/" + pod));
        const bool is_surplus = view->member == Member::kWorker && view->index >= workers;
        EXPECT_TRUE(is_surplus || pod == victim || after.contains(pod)) << pod;
      }
    }
    EXPECT_EQ(status_of(cluster, "/round"), Json()) << "no round was begun";
    if (HasFailure()) return;
  }
}

/// Jobs in Kubernetes' own gangs.
class GangSimulation : public ::testing::TestWithParam<Json> {};

TEST_P(GangSimulation, AllPodsOfAJobThatChangesItsSizeRunInTheEnd) {
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    ClusterModel cluster(GetParam(), seed, native_gangs());
    run_wild(cluster, random, {.harms = 3, .spec_changes = 6});
    cluster.change_spec(suspend_of(cluster, false));
    for (const bool is_crowded : {true, false, true}) {
      cluster.room = is_crowded ? static_cast<int>(random() % 6) : 1000;
      run_wild(cluster, random, {.harms = 3, .spec_changes = 3, .suspends = false});
      cluster.harm_pod("mnist-launcher-x", Harm::kVanish);
    }
    const int workers = 1 + static_cast<int>(random() % 4);
    cluster.change_spec(workers_of(cluster, workers));
    cluster.room = 1000;
    ASSERT_TRUE(cluster.settle()) << cluster.last().reason;
    expect_whole(cluster, workers);
    ASSERT_THAT(cluster.violations, IsEmpty());
    if (HasFailure()) return;
  }
}

std::string kind_of_case(const ::testing::TestParamInfo<Json>& test) {
  const std::string kind = test.param["kind"];
  if (kind == "MPIJob") return kind + test.param["spec"]["writtenAs"].get<std::string>();
  return test.param["spec"]["worker"].contains("min") ? "ElasticJob" : kind;
}

INSTANTIATE_TEST_SUITE_P(Kinds, Simulation,
                         ::testing::Values(sample_corro_job(3), sample_elastic_job(3),
                                           sample_mpi_job(3), sample_mpi_job(3, "v1"),
                                           sample_mpi_job(3, "v1alpha2")),
                         kind_of_case);

INSTANTIATE_TEST_SUITE_P(WithSidecars, Simulation,
                         ::testing::Values(with_sidecars(sample_corro_job(3)),
                                           with_sidecars(sample_elastic_job(3)),
                                           with_sidecars(sample_mpi_job(3)),
                                           with_sidecars(sample_mpi_job(3, "v1")),
                                           with_sidecars(sample_mpi_job(3, "v1alpha2"))),
                         kind_of_case);

INSTANTIATE_TEST_SUITE_P(Kinds, GangSimulation,
                         ::testing::Values(sample_corro_job(3), sample_elastic_job(3),
                                           sample_mpi_job(3), sample_mpi_job(3, "v1"),
                                           sample_mpi_job(3, "v1alpha2")),
                         kind_of_case);

}  // namespace
}  // namespace corro::kube
