// Real programs that print hosts, fail, hang, and print what are none.
#include "launch/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string_view>
#include <thread>

#include "agent/processes.h"

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

sigset_t mask() {
  sigset_t mask{};
  sigemptyset(&mask);
  return mask;
}

/// The next answer; `forwarded`: time passes faster from then on.
HostDiscovery::Answer answer_of(HostDiscovery& discovery, Duration forwarded = {}) {
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (auto answer = discovery.poll(monotonic_now() + forwarded)) return std::move(*answer);
  }
}

Status failure_of(const std::string& command) {
  HostDiscovery discovery(command, "here", mask());
  return answer_of(discovery).status();
}

TEST(HostDiscovery, ReadsWhatTheProgramPrints) {
  HostDiscovery discovery("echo node1:2; echo '# none'; echo; echo node2", "here", mask());
  const auto answer = answer_of(discovery);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  ASSERT_EQ(answer->size(), 2U);
  EXPECT_EQ((*answer)[0].name, "node1");
  EXPECT_EQ((*answer)[0].slots, 2);
  EXPECT_EQ((*answer)[1].slots, 1);
}

TEST(HostDiscovery, HasThisHostOnceWhateverItsNames) {
  HostDiscovery discovery(
      "echo node2:1; echo node1:2; echo localhost:3; echo node3:1; echo "
      "127.0.0.1:4",
      "node1.example.org", mask());
  const auto answer = answer_of(discovery);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  std::vector<std::string> hosts;
  for (const HostSlots& host : *answer) hosts.push_back(host.name + std::to_string(host.slots));
  EXPECT_THAT(hosts, ElementsAre("node21", "node19", "node31"));
}

TEST(HostDiscovery, AsksAgainAfterASecond) {
  HostDiscovery discovery("echo node1", "here", mask());
  ASSERT_TRUE(answer_of(discovery).ok());
  const Time now = monotonic_now();
  EXPECT_GT(discovery.due(), now);
  EXPECT_LE(discovery.due(), now + kDiscoveryPause);
  EXPECT_FALSE(discovery.poll(now).has_value());
  EXPECT_TRUE(answer_of(discovery, kDiscoveryPause).ok());
}

TEST(HostDiscovery, AFailureNamesCommandAndCause) {
  EXPECT_EQ(failure_of("echo 'no route' >&2; exit 3").message(),
            "--host-discovery echo 'no route' >&2; exit 3: it ended with status 3: no route");
  EXPECT_THAT(failure_of("kill -9 $$").message(), HasSubstr("it ended with signal 9"));
  EXPECT_THAT(failure_of("/no/such/program").message(), HasSubstr("status 127: "));
}

TEST(HostDiscovery, WhatAreNoHostsIsAFailure) {
  EXPECT_THAT(failure_of("true").message(), HasSubstr("--host-discovery true: has no host"));
  EXPECT_THAT(failure_of("echo 'Traceback (most'").message(), HasSubstr("not understood"));
  EXPECT_THAT(failure_of("echo node1:many").message(), HasSubstr(":1: "));
}

TEST(HostDiscovery, AProgramThatHangsIsKilledWithItsChildren) {
  const std::string file = testing::TempDir() + "corro-discovery-pid";
  HostDiscovery discovery("sleep 100 & echo $! > " + file + "; wait", "here", mask());
  EXPECT_FALSE(discovery.poll(monotonic_now()).has_value());
  int child = 0;
  while (child == 0) std::ifstream(file) >> child;
  EXPECT_THAT(answer_of(discovery, kDiscoveryPatience).status().message(),
              HasSubstr("it has not ended after 30 s"));
  const auto ended = [child] {
    return std::string_view("Z?").find(agent::process_state(child)) != std::string_view::npos;
  };
  while (!ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(HostDiscovery, WaitsUntilThereAreEnoughSlots) {
  const std::string file = testing::TempDir() + "corro-discovery-hosts";
  std::ofstream(file) << "node1:1\n";
  std::vector<std::string> said;
  const auto add = [&](const std::string& why) {
    said.push_back(why);
    std::ofstream(file, std::ios::app) << "node2:2\n";
  };
  HostDiscovery discovery("cat " + file, "here", mask());
  const auto answer = wait_for_hosts(discovery, 3, std::chrono::seconds(60), add);
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->size(), 2U);
  EXPECT_THAT(said, ElementsAre(HasSubstr("1 slots, and 3 are needed")));
}

/// Why two slots were not waited for any longer.
std::string why_given_up(const std::string& command, Duration patience) {
  HostDiscovery discovery(command, "here", mask());
  const auto answer = wait_for_hosts(discovery, 2, patience, [](const std::string& /*why*/) {});
  EXPECT_EQ(answer.status().code(), Code::kDeadlineExceeded);
  return answer.status().message();
}

TEST(HostDiscovery, DoesNotWaitForEver) {
  EXPECT_EQ(why_given_up("sleep 1000", std::chrono::milliseconds(500)),
            "--host-discovery sleep 1000: it has not answered after 0.5 s");
  EXPECT_EQ(why_given_up("echo node1", std::chrono::seconds(2)),
            "--host-discovery echo node1: 1 slots, and 2 are needed, after 2.0 s");
}

}  // namespace
}  // namespace corro::launch
