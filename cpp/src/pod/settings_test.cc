#include "pod/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::pod {
namespace {

using ::testing::HasSubstr;
using ::testing::Optional;

/// As kube/reconcile/injection.cc writes them.
Variables of_worker() {
  return {{"CORRO_JOB", "mnist"},
          {"CORRO_JOB_UID", "11111111-2222-3333-4444-555555555555"},
          {"CORRO_MEMBER", "worker-300"},
          {"CORRO_MEMBER_GENERATION", "2"},
          {"CORRO_PART", "1"},
          {"CORRO_KIND", "CorroJob"},
          {"CORRO_HEAD", "10.96.0.7:7077"}};
}

TEST(PodSettingsTest, AWorkersVariablesAreRead) {
  const auto settings = read_settings(of_worker()).value();
  EXPECT_EQ(settings.job, "mnist");
  EXPECT_EQ(settings.identity,
            (secure::PodIdentity{"11111111-2222-3333-4444-555555555555", "worker-300", 2, 1}));
  EXPECT_EQ(settings.head, "10.96.0.7:7077");
  EXPECT_TRUE(settings.runs_ranks);
  EXPECT_FALSE(settings.is_launcher());
  EXPECT_EQ(settings.token, "/corro/token");
  EXPECT_EQ(settings.termination_log, "/dev/termination-log");
  EXPECT_EQ(settings.hostfile, "");
  EXPECT_EQ(settings.head_patience, std::chrono::minutes(10));
}

TEST(PodSettingsTest, ALauncherHasAHostfile) {
  Variables environment = of_worker();
  environment["CORRO_MEMBER"] = "launcher";
  EXPECT_EQ(read_settings(environment).value().hostfile, "/etc/mpi/hostfile");
  environment["CORRO_HOSTFILE"] = "/tmp/hosts";
  EXPECT_EQ(read_settings(environment).value().hostfile, "/tmp/hosts");
}

TEST(PodSettingsTest, TheHeadsVariablesAreRead) {
  Variables environment = of_worker();
  environment["CORRO_MEMBER"] = "head";
  environment.erase("CORRO_HEAD");
  environment["CORRO_SLOTS"] = "4";
  environment["CORRO_WORKERS"] = "7";
  const auto settings = read_settings(environment).value();
  EXPECT_EQ(settings.slots, 4);
  EXPECT_EQ(settings.workers, 7);
  EXPECT_EQ(settings.head, "");
}

TEST(PodSettingsTest, WhatIsWrongIsNamed) {
  const std::vector<std::pair<std::string, std::string>> all = {{"CORRO_JOB", ""},
                                                                {"CORRO_JOB_UID", ""},
                                                                {"CORRO_MEMBER", ""},
                                                                {"CORRO_MEMBER", "w 1"},
                                                                {"CORRO_HEAD", "mnist:1"},
                                                                {"CORRO_MEMBER_GENERATION", "-1"},
                                                                {"CORRO_HEAD_PATIENCE", "long"},
                                                                {"CORRO_SLOTS", "many"},
                                                                {"CORRO_WORKERS", "-2"},
                                                                {"CORRO_PART", "1x"}};
  for (const auto& [name, value] : all) {
    Variables environment = of_worker();
    environment[name] = value;
    const Status status = read_settings(environment).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument) << name;
    EXPECT_THAT(status.message(), HasSubstr(name));
  }
}

TEST(PodSettingsTest, HostsOfTheJobMeanMembers) {
  EXPECT_THAT(member_of_host("mnist", "mnist-worker-3"), Optional(std::string("worker-3")));
  EXPECT_THAT(member_of_host("mnist", "root@mnist-worker-12.mnist.ns.svc"),
              Optional(std::string("worker-12")));
  EXPECT_THAT(member_of_host("mnist", "mnist-launcher"), Optional(std::string("launcher")));
  for (const char* host : {"", "mnist", "mnist-", "mnist-worker-", "mnist-worker-x", "mnist-head",
                           "other-worker-1", "mnist-worker-01", "mnistx-worker-1", "localhost"})
    EXPECT_EQ(member_of_host("mnist", host), std::nullopt) << host;
  EXPECT_EQ(host_of_member("mnist", "worker-3"), "mnist-worker-3");
}

}  // namespace
}  // namespace corro::pod
