#include "kube/operator/job_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kube/job/names.h"
#include "kube/reconcile/sample_jobs.h"

namespace corro::kube {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> kKinds = kinds_of({"", true, true});
  return kKinds;
}

const Kind& kind_named(std::string_view api_version, std::string_view name) {
  return *find_kind(kinds(), api_version, name);
}

const Kind& pods() { return kind_named("v1", "Pod"); }

Json job_of(const std::string& uid, int version, const std::string& name = "mnist") {
  Json job = sample_corro_job(2);
  job["metadata"] = {{"name", name},
                     {"namespace", "n"},
                     {"uid", uid},
                     {"resourceVersion", std::to_string(version)}};
  return job;
}

Json object_of(const std::string& uid, const std::string& name, const char* space = "n") {
  Json object = {{"metadata", {{"name", name}, {"namespace", space}, {"uid", "uid-" + name}}}};
  object["metadata"]["labels"][std::string(kUidLabel)] = uid;
  return object;
}

std::vector<std::string> names_in(const JobTable& table, const std::string& key) {
  std::vector<std::string> names;
  const GuardedJob job = table.find(key);
  if (job == nullptr) return names;
  for (const auto& [name, object] : job->lock()->objects) names.push_back(name.name);
  return names;
}

TEST(JobTable, AJobAndItsObjectsAreFoundByItsUid) {
  JobTable table;
  EXPECT_THAT(table.changed(pods(), object_of("u1", "a")), ElementsAre("n/u1"));
  EXPECT_THAT(table.changed(kCorroJobKind, job_of("u1", 1)), ElementsAre("n/u1"));
  EXPECT_THAT(table.changed(pods(), object_of("u2", "b")), ElementsAre("n/u2"));
  EXPECT_THAT(names_in(table, "n/u1"), ElementsAre("a"));
  EXPECT_EQ(table.find("n/u1")->lock()->job["kind"], "CorroJob");
  EXPECT_EQ(table.find("n/u3"), nullptr);
  Json foreign = {{"metadata", {{"name", "x"}}}};
  EXPECT_THAT(table.changed(pods(), foreign), IsEmpty());
}

TEST(JobTable, AnObjectOfAnotherNamespaceIsNotTheJobsWhateverItsLabelSays) {
  JobTable table;
  table.changed(kCorroJobKind, job_of("u1", 1));
  table.changed(pods(), object_of("u1", "a"));
  table.changed(pods(), object_of("u1", "b", "other"));
  EXPECT_THAT(names_in(table, "n/u1"), ElementsAre("a"));
  table.gone(pods(), object_of("u1", "a", "other"));
  EXPECT_THAT(names_in(table, "n/u1"), ElementsAre("a"));
}

// mpijob same: case.do-nothing
TEST(JobTable, AJobIsForgottenWithItsLastObject) {
  JobTable table;
  table.changed(kCorroJobKind, job_of("u1", 1));
  table.changed(pods(), object_of("u1", "a"));
  EXPECT_THAT(table.gone(kCorroJobKind, job_of("u1", 2)), ElementsAre("n/u1"));
  ASSERT_NE(table.find("n/u1"), nullptr);
  EXPECT_TRUE(table.find("n/u1")->lock()->job.is_null());
  table.gone(pods(), object_of("u1", "a"));
  EXPECT_EQ(table.find("n/u1"), nullptr);
  EXPECT_THAT(table.gone(pods(), object_of("u1", "a")), IsEmpty());
}

TEST(JobTable, AManifestDoesNotGoBackInTime) {
  JobTable table;
  table.changed(kCorroJobKind, job_of("u1", 9));
  {
    const GuardedJob job = table.find("n/u1");
    auto record = job->lock();
    put_job(*record, job_of("u1", 100));
  }
  table.changed(kCorroJobKind, job_of("u1", 99));
  EXPECT_EQ(table.find("n/u1")->lock()->job["metadata"]["resourceVersion"], "100");
  table.resynced(kCorroJobKind, {job_of("u1", 98)});
  EXPECT_EQ(table.find("n/u1")->lock()->job["metadata"]["resourceVersion"], "100");
  table.changed(kCorroJobKind, job_of("u1", 101));
  EXPECT_EQ(table.find("n/u1")->lock()->job["metadata"]["resourceVersion"], "101");
}

TEST(JobTable, AResyncDropsWhatIsGoneAndNothingOfOtherKinds) {
  JobTable table;
  table.changed(kCorroJobKind, job_of("u1", 1));
  table.changed(kMpiJobKind, job_of("u2", 1));
  for (const char* name : {"a", "b"}) table.changed(pods(), object_of("u1", name));
  table.changed(kind_named("v1", "Service"), object_of("u1", "s"));
  EXPECT_THAT(table.resynced(pods(), {object_of("u1", "b"), object_of("u1", "c")}),
              UnorderedElementsAre("n/u1", "n/u2"));
  EXPECT_THAT(names_in(table, "n/u1"), ElementsAre("b", "c", "s"));
  table.resynced(kCorroJobKind, {});
  EXPECT_TRUE(table.find("n/u1")->lock()->job.is_null());
  EXPECT_FALSE(table.find("n/u2")->lock()->job.is_null());
}

TEST(JobTable, AResyncOfOneApisPodGroupsLeavesAnothers) {
  JobTable table;
  Json group = object_of("u1", "g");
  group["apiVersion"] = "scheduling.volcano.sh/v1beta1";
  table.changed(kind_named("scheduling.volcano.sh/v1beta1", "PodGroup"), group);
  table.resynced(kind_named("scheduling.x-k8s.io/v1alpha1", "PodGroup"), {});
  EXPECT_THAT(names_in(table, "n/u1"), ElementsAre("g"));
  table.resynced(kind_named("scheduling.volcano.sh/v1beta1", "PodGroup"), {});
  EXPECT_THAT(names_in(table, "n/u1"), IsEmpty());
}

TEST(JobTable, ExpectationsEndWithWhatAWatchTells) {
  JobTable table;
  table.changed(kCorroJobKind, job_of("u1", 1));
  const GuardedJob job = table.find("n/u1");
  const auto expect = [&](const std::string& kind, const std::string& name) {
    job->lock()->expected.ask("v1", {kind, name}, "");
    job->lock()->expected.answer("uid-" + name);
  };
  const auto is_expected = [&](const std::string& kind, const std::string& name) {
    return job->lock()->expected.is_created({kind, name});
  };
  expect("Pod", "a");
  table.changed(pods(), object_of("u1", "a"));
  EXPECT_FALSE(is_expected("Pod", "a"));
  // Made and gone before anybody looked.
  expect("Pod", "b");
  table.gone(pods(), object_of("u1", "b"));
  EXPECT_FALSE(is_expected("Pod", "b"));
  // Made and gone while the watch was cut.
  expect("Pod", "c");
  expect("Secret", "s");
  table.resynced(pods(), {});
  EXPECT_FALSE(is_expected("Pod", "c"));
  EXPECT_TRUE(is_expected("Secret", "s"));
  table.changed(pods(), object_of("u1", "d"));
  job->lock()->expected.deleted.insert("uid-d");
  table.gone(pods(), object_of("u1", "d"));
  EXPECT_TRUE(job->lock()->expected.deleted.empty());
}

TEST(JobTable, ANameThatWasTakenIsTriedAgainAfterTenSeconds) {
  JobRecord record;
  record.job = job_of("u1", 1);
  const KubeTime noon(std::chrono::hours(12));
  record.foreign[{"Service", "mnist"}] = noon;
  const Options options;
  EXPECT_EQ(record.observe(options, noon + std::chrono::seconds(9)).foreign.size(), 1U);
  EXPECT_EQ(record.observe(options, noon + std::chrono::seconds(10)).foreign.size(), 0U);
}

TEST(Kinds, AGangIsServedWhereItsGroupHasItsVersionAndPodGroups) {
  const Json groups = Json::parse(R"({"groups": [
      {"name": "scheduling.k8s.io", "versions": [{"version": "v1"}, {"version": "v1alpha2"}]},
      {"name": "scheduling.volcano.sh", "versions": [{"version": "v1"}]}, {"name": 7}, 8]})");
  ASSERT_EQ(gang_kinds().size(), 3U);
  const Kind& native = gang_kinds()[0];
  EXPECT_TRUE(has_group(groups, native));
  EXPECT_FALSE(has_group(groups, gang_kinds()[1]));  // Another version.
  EXPECT_FALSE(has_group(groups, gang_kinds()[2]));
  EXPECT_FALSE(has_group(Json(), native));
  EXPECT_TRUE(has_resource(
      Json::parse(R"({"resources": [7, {"name": "workloads"}, {"name": "podgroups"}]})"), native));
  EXPECT_FALSE(has_resource(Json::parse(R"({"resources": [{"name": "elasticquotas"}]})"), native));
  EXPECT_FALSE(has_resource(Json(), native));
  Served served;
  add_gang(native, served);
  EXPECT_EQ(served.native_gang, "v1alpha2");
  EXPECT_FALSE(served.volcano || served.scheduler_plugins);
  add_gang(gang_kinds()[1], served);
  EXPECT_TRUE(served.volcano && !served.scheduler_plugins);
}

TEST(Kinds, AnyVersionOfMpiJobIsTheStoredOne) {
  for (const char* version : {"v1alpha1", "v1alpha2", "v1", "v2beta1"}) {
    const Kind* kind = find_kind(kinds(), std::string("kubeflow.org/") + version, "MPIJob");
    ASSERT_NE(kind, nullptr) << version;
    EXPECT_EQ(kind->type.version, "v2beta1");
  }
  EXPECT_EQ(find_kind(kinds(), "batch/v1", "CronJob"), nullptr);
  EXPECT_EQ(find_kind(kinds(), "apps/v1", "Pod"), nullptr);
}

}  // namespace
}  // namespace corro::kube
