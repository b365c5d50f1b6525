// Against a real API server, if CORRO_TEST_KUBERNETES names a kubeconfig, whose context's namespace is
// used. tests/kube/test_record_store.py starts these.
//
// KubernetesRights has CORRO_TEST_KUBERNETES_JOB=NAME beside it: the user may get and update the two
// objects of that name, which are there, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <stop_token>

#include "base/variables.h"
#include "coord/record_store_suite.h"
#include "coordinator/kubernetes_object.h"
#include "coordinator/leased_store_cases.h"
#include "coordinator/open_store.h"

namespace corro::coordinator {
namespace {

using coord::RecordStore;
using std::chrono::seconds;
using testing::HasSubstr;

std::string kubeconfig() { return value_of(read_variables(), "CORRO_TEST_KUBERNETES"); }

const char* const kNoServer =
    "no API server: CORRO_TEST_KUBERNETES=KUBECONFIG says where there is one";

std::unique_ptr<RecordStore> open_job(const std::string& job) {
  auto store = open_store("kubernetes:" + job, {{"KUBECONFIG", kubeconfig()}});
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(*store) : nullptr;
}

/// Every world has objects of its own.
std::string new_job() {
  static int worlds = 0;
  return fmt::format("job-{}-{}-{}", ::getpid(), monotonic_now().since_start.count(), ++worlds);
}

class RealKubernetesWorld final : public coord::RecordStoreWorld {
 public:
  [[nodiscard]] std::string missing() const override {
    return kubeconfig().empty() ? kNoServer : "";
  }
  [[nodiscard]] std::unique_ptr<RecordStore> open() override { return open_job(job_); }
  /// As an administrator may do it. That a lease ends by itself is a case of its own.
  void end_lead() override {
    const auto access = kube::load_kubeconfig(kubeconfig());
    ASSERT_TRUE(access.ok()) << access.status().to_string();
    const auto client = kube::Client::connect(*access, {});
    ASSERT_TRUE(client.ok()) << client.status().to_string();
    const auto done =
        (*client)->merge_patch(kube::kLeases, {access->space, job_ + "-head"},
                               {{"spec", {{"holderIdentity", ""}}}}, "", std::stop_token());
    ASSERT_TRUE(done.ok()) << done.status().to_string();
  }

 private:
  const std::string job_ = new_job();
};

std::unique_ptr<coord::RecordStoreWorld> make_real_kubernetes_world() {
  return std::make_unique<RealKubernetesWorld>();
}

class RealKubernetes : public testing::Test {
 protected:
  void SetUp() override {
    if (kubeconfig().empty()) GTEST_SKIP() << kNoServer;
  }
  RealKubernetesWorld world_;
};

TEST_F(RealKubernetes, ALeaseThatIsNotRenewedEndsForTheNextOne) {
  expect_that_a_lease_ends(world_);
}

TEST_F(RealKubernetes, OfTwoThatAskAtOnceOneLeads) { expect_that_one_of_two_leads(world_); }

TEST_F(RealKubernetes, AWriteOfTheSameBytesIsAnotherVersion) {
  // The store relies on that where a late write could follow.
  const auto access = kube::load_kubeconfig(kubeconfig());
  ASSERT_TRUE(access.ok()) << access.status().to_string();
  const auto client = kube::Client::connect(*access, {});
  ASSERT_TRUE(client.ok()) << client.status().to_string();
  const std::string job = new_job();
  KubernetesObject object(**client, kube::kConfigMaps, "ConfigMap",
                          {access->space, job + "-record"});
  const auto version = [&] {
    const auto read = object.get(monotonic_now() + seconds(5));
    return read.ok() ? kube::text_at(*read, {"metadata", "resourceVersion"}) : "";
  };
  const auto store = open_job(job);
  ASSERT_TRUE(lead(*store, "first"));
  ASSERT_TRUE(store->write("one").ok());
  const std::string before = version();
  EXPECT_NE(before, "");
  ASSERT_TRUE(store->write("one").ok());
  EXPECT_NE(version(), before);
}

TEST(KubernetesRights, GetAndUpdateOfTwoObjectsAreEnough) {
  const std::string job = value_of(read_variables(), "CORRO_TEST_KUBERNETES_JOB");
  if (job.empty()) GTEST_SKIP() << "no job with few rights: CORRO_TEST_KUBERNETES_JOB is not set";
  const auto store = open_job(job);
  const auto term = store->try_lead("first");
  ASSERT_TRUE(term.ok()) << term.status().to_string();
  ASSERT_TRUE(*term);
  const Status written = store->write("one");
  EXPECT_TRUE(written.ok()) << written.to_string();
  const Status renewed = store->renew();
  EXPECT_TRUE(renewed.ok()) << renewed.to_string();
  EXPECT_EQ(*store->read(), "one");
  store->resign();
  EXPECT_EQ(*store->leader(), "");
  const Status refused = open_job(job + "-other")->try_lead("first").status();
  EXPECT_EQ(refused.code(), Code::kPermissionDenied) << refused.to_string();
  EXPECT_THAT(refused.message(), HasSubstr("no right to get leases.coordination.k8s.io "));
  EXPECT_THAT(refused.message(), HasSubstr(job + "-other-head: 403 Forbidden: "));
}

}  // namespace
}  // namespace corro::coordinator

namespace corro::coord {
namespace {
INSTANTIATE_TEST_SUITE_P(RealKubernetes, RecordStoreSuite,
                         testing::Values(&coordinator::make_real_kubernetes_world));
}  // namespace
}  // namespace corro::coord
