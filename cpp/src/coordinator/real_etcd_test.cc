// Against a real etcd, if CORRO_TEST_ETCD=HOST:PORT says where there is one.
//
// The cases of EtcdFaults print "leads", and then wait for what is done to that etcd from outside,
// by python/tests/test_etcd_store.py. They run with CORRO_TEST_ETCD_FAULTS=1 alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <iostream>

#include "base/stop.h"
#include "base/variables.h"
#include "coord/record_store_suite.h"
#include "coordinator/etcd_store.h"
#include "coordinator/leased_store_cases.h"
#include "coordinator/open_store.h"
#include "kube/client/https_transport.h"
#include "kube/client/kubeconfig.h"

namespace corro::coordinator {
namespace {

using coord::RecordStore;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::string etcd_address() { return value_of(read_variables(), "CORRO_TEST_ETCD"); }

const char* const kNoEtcd = "no etcd: CORRO_TEST_ETCD=HOST:PORT says where there is one";

/// Every world has keys of its own.
std::string new_prefix() {
  static int worlds = 0;
  return fmt::format("/corro-test/{}-{}-{}", ::getpid(), monotonic_now().since_start.count(),
                     ++worlds);
}

class EtcdWorld final : public coord::RecordStoreWorld {
 public:
  [[nodiscard]] std::string missing() const override {
    return etcd_address().empty() ? kNoEtcd : "";
  }
  [[nodiscard]] std::unique_ptr<RecordStore> open() override {
    auto store = open_store("etcd://" + etcd_address() + prefix_, read_variables());
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(*store) : nullptr;
  }
  /// As an administrator may do it. That a lease ends by itself is a case of its own.
  void end_lead() override {
    kube::KubeCluster place;
    ASSERT_TRUE(kube::read_server_url("https://" + etcd_address(), place).ok());
    auto transport = kube::make_loopback_transport(place.host, place.port, {});
    ASSERT_TRUE(transport.ok()) << transport.status().to_string();
    std::vector<std::unique_ptr<kube::Transport>> endpoints;
    endpoints.push_back(std::move(*transport));
    EtcdClient client(std::move(endpoints));
    const auto done =
        client.call("kv/deleterange", {{"key", kube::encode_base64(prefix_ + "/leader")}},
                    monotonic_now() + seconds(5));
    EXPECT_TRUE(done.ok()) << done.status().to_string();
  }

 private:
  const std::string prefix_ = new_prefix();
};

std::unique_ptr<coord::RecordStoreWorld> make_etcd_world() { return std::make_unique<EtcdWorld>(); }

void wait(Duration time) { (void)wait_for_stop({}, time); }

class RealEtcd : public testing::Test {
 protected:
  void SetUp() override {
    if (etcd_address().empty()) GTEST_SKIP() << kNoEtcd;
  }
  EtcdWorld world_;
};

TEST_F(RealEtcd, ALeaseThatIsNotRenewedEndsForTheNextOne) { expect_that_a_lease_ends(world_); }

TEST_F(RealEtcd, OfTwoThatAskAtOnceOneLeads) { expect_that_one_of_two_leads(world_); }

class EtcdFaults : public RealEtcd {
 protected:
  void SetUp() override {
    RealEtcd::SetUp();
    if (IsSkipped()) return;
    if (value_of(read_variables(), "CORRO_TEST_ETCD_FAULTS").empty()) {
      GTEST_SKIP() << "nobody does anything to etcd: CORRO_TEST_ETCD_FAULTS is not set";
    }
  }
  /// Renews each second until it is told a code that is not `code`, or for half a minute.
  static Status renew_while(RecordStore& store, Code code) {
    Status renewed;
    for (int i = 0; i < 30; ++i) {
      renewed = store.renew();
      const Code got =
          renewed.code() == Code::kDeadlineExceeded ? Code::kUnavailable : renewed.code();
      if (got != code) break;
      wait(milliseconds(500));
    }
    return renewed;
  }
};

TEST_F(EtcdFaults, ALeadIsLostWhileEtcdIsStopped) {
  const auto first = world_.open();
  const auto term = lead(*first, "first");
  ASSERT_TRUE(term);
  ASSERT_TRUE(first->write("old").ok());
  std::cout << "leads" << std::endl;
  const Status silent = renew_while(*first, Code::kOk);
  EXPECT_FALSE(silent.ok());
  EXPECT_NE(silent.code(), Code::kAborted) << silent.to_string();
  const Time until = first->leads_until();
  const Status lost = renew_while(*first, Code::kUnavailable);
  EXPECT_EQ(lost.code(), Code::kAborted) << lost.to_string();
  EXPECT_GT(monotonic_now(), until);
  EXPECT_EQ(first->write("late").code(), Code::kAborted);
  const auto second = world_.open();
  const auto next = lead(*second, "second");
  ASSERT_TRUE(next);
  EXPECT_GT(*next, *term);
  EXPECT_EQ(*second->read(), "old");
}

TEST_F(EtcdFaults, LeadAndRecordOutliveAKilledEtcd) {
  const auto first = world_.open();
  const auto second = world_.open();
  const auto term = lead(*first, "first");
  ASSERT_TRUE(term);
  ASSERT_TRUE(first->write("old").ok());
  std::cout << "leads" << std::endl;
  const Status silent = renew_while(*first, Code::kOk);
  EXPECT_EQ(silent.code(), Code::kUnavailable) << silent.to_string();
  const Status again = renew_while(*first, Code::kUnavailable);
  EXPECT_TRUE(again.ok()) << again.to_string();
  EXPECT_FALSE(lead(*second, "second"));
  EXPECT_EQ(lead(*first, "first"), term);
  EXPECT_EQ(*second->read(), "old");
  EXPECT_TRUE(first->write("new").ok());
}

}  // namespace
}  // namespace corro::coordinator

namespace corro::coord {
namespace {
INSTANTIATE_TEST_SUITE_P(Etcd, RecordStoreSuite, testing::Values(&coordinator::make_etcd_world));
}  // namespace
}  // namespace corro::coord
