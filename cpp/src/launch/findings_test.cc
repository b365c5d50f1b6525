#include "launch/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "launch/health_text.h"

namespace corro::launch {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr uint64_t kGiB = uint64_t{1} << 30U;

/// Hosts a, b, c ... with nothing wrong.
Health sound(size_t hosts) {
  Health health;
  for (size_t i = 0; i < hosts; ++i) {
    HostHealth& one = health.hosts.emplace_back();
    one.name = std::string(1, static_cast<char>('a' + i));
    one.corro = "0.5";
    one.architecture = "x86_64";
    one.machine.facts = {.gpus = 8, .cores = 64, .cpu_quota = 0, .memory_bytes = 500 * kGiB};
    one.facts = {.kernel = "6.1",
                 .shared_bytes = 256 * kGiB,
                 .shared_free = 255 * kGiB,
                 .python = "3.12",
                 .torch = "2.8.0"};
    one.addresses = {"10.0.0." + std::to_string(i + 1)};
    one.clock = microseconds(100 * i);
    one.clock_error = microseconds(50);
  }
  for (size_t from = 0; from < hosts; ++from) {
    for (size_t to = 0; to < hosts; ++to) {
      if (from == to) continue;
      health.links.push_back({.link = {from, to},
                              .address = health.hosts[to].addresses[0],
                              .round_trip = microseconds(90),
                              .bytes_per_second = 1.17e9});
    }
  }
  health.took = milliseconds(1900);
  return health;
}

LinkHealth& link_of(Health& health, size_t from, size_t to) {
  return *std::ranges::find(health.links, Link{from, to}, &LinkHealth::link);
}

std::vector<std::string> lines_of(const Health& health) {
  std::vector<std::string> lines;
  for (const Finding& finding : find_faults(health)) lines.push_back(finding.what);
  return lines;
}

TEST(Findings, SoundHostsHaveNone) {
  for (const size_t hosts : {1UL, 2UL, 3UL, 16UL}) EXPECT_THAT(lines_of(sound(hosts)), IsEmpty());
}

TEST(Findings, AHostWithoutAnAgentIsALineWithWhatToDo) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"ssh: Could not resolve hostname b: Name or service not known", "spelt"},
      {"root@b: Permission denied (publickey,password).", "ssh-copy-id"},
      {"Host key verification failed.", "by hand"},
      {"no corro at /x/corro there; install the same environment at the same place", "install"},
      {"has corro 0.4, this one 0.5", "install"},
      {"ssh: connect to host b port 22: Connection timed out", "is the host up"},
      {"no answer for 5 s", "is the host up"},
      {"its agent has ended without a word", "try by hand"}};
  for (const auto& [failure, advice] : cases) {
    Health health = sound(3);
    health.hosts[1] = {.name = "b", .failure = failure};
    std::erase_if(health.links,
                  [](const LinkHealth& one) { return one.link.from == 1 || one.link.to == 1; });
    const auto findings = find_faults(health);
    ASSERT_EQ(findings.size(), 1U) << failure;
    EXPECT_EQ(findings[0].what, "b: " + failure);
    EXPECT_THAT(findings[0].advice, HasSubstr(advice)) << failure;
  }
}

/// Closes the way from one host to another.
void close_way(Health& health, size_t from, size_t to) {
  link_of(health, from, to).address.clear();
  link_of(health, from, to).bytes_per_second = 0;
}

TEST(Findings, AHostThatNobodyReachesIsOneFinding) {
  Health health = sound(4);
  for (const size_t from : {0UL, 1UL, 3UL}) close_way(health, from, 2);
  EXPECT_THAT(lines_of(health),
              ElementsAre("c is not reached from any other host, at 10.0.0.3, but "
                          "reaches others: one way only"));
  for (const size_t to : {0UL, 1UL, 3UL}) close_way(health, 2, to);
  EXPECT_THAT(lines_of(health),
              ElementsAre("c neither reaches any other host nor is it reached, at 10.0.0.3"));
}

TEST(Findings, AHostThatReachesNobodyIsOneFinding) {
  Health health = sound(3);
  for (const size_t to : {0UL, 2UL}) close_way(health, 1, to);
  EXPECT_THAT(lines_of(health),
              ElementsAre("b does not reach any other host, but is reached: one way only"));
}

TEST(Findings, OfTwoHostsOneIsNamed) {
  Health health = sound(2);
  close_way(health, 0, 1);
  EXPECT_EQ(lines_of(health).size(), 1U);
  close_way(health, 1, 0);
  EXPECT_EQ(lines_of(health).size(), 1U);
}

TEST(Findings, AClosedWayNamesBothEnds) {
  Health health = sound(4);
  close_way(health, 1, 3);
  EXPECT_THAT(lines_of(health), ElementsAre("b does not reach d, the other way is open"));
  close_way(health, 3, 1);
  EXPECT_THAT(lines_of(health), ElementsAre("b and d do not reach each other"));
}

TEST(Findings, ASlowHostIsNamedWithWhatOthersHave) {
  Health health = sound(3);
  for (LinkHealth& one : health.links) {
    if (one.link.from == 1) one.bytes_per_second = 1.25e6;
    if (one.link.to == 1) one.bytes_per_second = 2.5e6;
  }
  EXPECT_THAT(
      lines_of(health),
      ElementsAre("b is slow: it sends 10 Mbit/s and receives 20 Mbit/s, others 9.36 Gbit/s"));
  for (LinkHealth& one : health.links) {
    one.bytes_per_second = 1.17e9;
    if (one.link.from == 1 || one.link.to == 1) one.round_trip = milliseconds(30);
  }
  EXPECT_THAT(lines_of(health),
              ElementsAre("b is slow: a round trip takes up to 30 ms, others 90 us"));
}

TEST(Findings, ASlowLinkIsNamedWithBothEnds) {
  Health health = sound(4);
  link_of(health, 0, 2).bytes_per_second = 1.25e7;
  EXPECT_THAT(lines_of(health), ElementsAre("a to c is slow: 100 Mbit/s, others 9.36 Gbit/s"));
}

TEST(Findings, ALinkThroughWhichNothingGoesIsNamed) {
  Health health = sound(3);
  link_of(health, 0, 2).bytes_per_second = 0;
  link_of(health, 0, 2).failure = "the test is not over for 1 s";
  EXPECT_THAT(lines_of(health),
              ElementsAre("a reaches c, but nothing goes through: the test is not over for 1 s"));
}

TEST(Findings, AClockThatIsOffIsNamed) {
  Health health = sound(3);
  health.hosts[2].clock = -milliseconds(3200);
  EXPECT_THAT(lines_of(health), ElementsAre("the clock of c is 3.2 s behind the others (± 50 us)"));
  health.hosts[2].clock_error = std::chrono::seconds(3);
  EXPECT_THAT(lines_of(health), IsEmpty()) << "that is not known";
  for (HostHealth& one : health.hosts) one.clock = std::chrono::hours(1);
  EXPECT_THAT(lines_of(health), IsEmpty()) << "then it is the doctor's own, who takes no part";
}

TEST(Findings, WhatIsMissingOrDifferentIsNamed) {
  Health health = sound(4);
  health.hosts[1].missing = "/opt/venv/bin/python is not there";
  health.hosts[2].architecture = "aarch64";
  health.hosts[3].facts.torch = "";
  EXPECT_THAT(lines_of(health), ElementsAre("b: /opt/venv/bin/python is not there",
                                            "c: machine aarch64, elsewhere x86_64",
                                            "d: torch is not there, elsewhere 2.8.0"));
}

TEST(Findings, LittleMemoryIsNamed) {
  Health health = sound(2);
  health.hosts[0].machine.facts.memory_bytes = kGiB / 2;
  health.hosts[1].facts.shared_bytes = health.hosts[1].facts.shared_free = kGiB / 16;
  EXPECT_THAT(lines_of(health),
              ElementsAre("a: only 512 MiB of memory free", "b: /dev/shm is small, 64 MiB free"));
}

TEST(HealthText, TheWorstIsFirst) {
  Health health = sound(3);
  health.hosts[0] = {.name = "node-a", .failure = "Host key verification failed."};
  std::erase_if(health.links,
                [](const LinkHealth& one) { return one.link.from == 0 || one.link.to == 0; });
  link_of(health, 2, 1).bytes_per_second = 1.25e7;
  health.hosts[2].clock = -microseconds(120);
  EXPECT_EQ(
      format_health(health, find_faults(health)),
      R"(3 hosts checked in 1.9 s; 2 of 2 links between them measured, over one connection each

node-a: Host key verification failed.
  do  log in once by hand with ssh, and compare the host's key

c to b is slow: 100 Mbit/s, others 9.36 Gbit/s
  do  look at what only these two share: a cable, a switch, a route

host    corro      Python  torch  kernel  machine  cores  GPUs  memory free  /dev/shm free  clock
node-a  no answer
c       0.5        3.12    2.8.0  6.1     x86_64   64     8     500.0 GiB    255.0 GiB      -0.12 ms ± 50 us
b       0.5        3.12    2.8.0  6.1     x86_64   64     8     500.0 GiB    255.0 GiB      +0.10 ms ± 50 us

from  to  at        bandwidth    round trip
c     b   10.0.0.2  100 Mbit/s   90 us       slow
b     c   10.0.0.3  9.36 Gbit/s  90 us
)");
}

TEST(HealthText, OfManyLinksTheSlowestAreShown) {
  const std::string text = format_health(sound(16), {});
  EXPECT_THAT(text, HasSubstr("240 of 240 links"));
  EXPECT_THAT(text, HasSubstr("nothing is wrong\n"));
  EXPECT_THAT(text, HasSubstr("and 232 more, 9.36 Gbit/s to 9.36 Gbit/s\n"));
}

TEST(HealthText, ProgramsGetAllOfIt) {
  Health health = sound(3);
  health.hosts[0] = {.name = "a", .failure = "x"};
  close_way(health, 1, 2);
  const auto json = nlohmann::json::parse(format_health_json(health, find_faults(health)));
  EXPECT_EQ(json["findings"][0]["kind"], "no answer");
  EXPECT_EQ(json["findings"][0]["hosts"][0], "a");
  EXPECT_EQ(json["hosts"][0]["failure"], "x");
  EXPECT_EQ(json["hosts"][1]["torch"], "2.8.0");
  EXPECT_EQ(json["hosts"][1]["memory_free_bytes"], 500 * kGiB);
  EXPECT_EQ(json["links"].size(), 6U);
  EXPECT_TRUE(json["links"][3]["bits_per_second"].is_null());
  EXPECT_NEAR(json["links"][2]["bits_per_second"].get<double>(), 9.36e9, 1);
}

}  // namespace
}  // namespace corro::launch
