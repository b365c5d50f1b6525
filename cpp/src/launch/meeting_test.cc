#include "launch/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Hosts with addresses, and what each has reached: (host, address) pairs.
std::vector<AgentLink> surveyed(
    const std::vector<std::vector<std::string>>& addresses,
    const std::vector<std::vector<std::pair<int, std::string>>>& reached) {
  std::vector<AgentLink> links;
  for (size_t host = 0; host < addresses.size(); ++host) {
    AgentLink& link = links.emplace_back();
    link.host = host;
    link.name = std::string(1, static_cast<char>('a' + host));
    link.survey.emplace();
    link.survey->here.addresses = addresses[host];
    link.routes.emplace();
    for (const auto& [to, address] : reached[host])
      link.routes->push_back({.host = to, .address = address});
  }
  return links;
}

TEST(ChooseAddresses, TakesTheFirstThatAllOthersHaveReached) {
  const auto links =
      surveyed({{"172.17.0.1", "10.0.0.1"}, {"172.17.0.1", "10.0.0.2"}, {"10.0.0.3"}},
               {{{1, "10.0.0.2"}, {2, "10.0.0.3"}},
                {{0, "10.0.0.1"}, {2, "10.0.0.3"}},
                {{0, "10.0.0.1"}, {0, "172.17.0.1"}, {1, "10.0.0.2"}}});
  EXPECT_THAT(choose_addresses(links).value(), ElementsAre("10.0.0.1", "10.0.0.2", "10.0.0.3"));
}

TEST(ChooseAddresses, NamesTwoThatDoNotReachEachOther) {
  const auto links = surveyed({{"10.0.0.1"}, {"10.0.0.2", "fd00::2"}}, {{}, {{0, "10.0.0.1"}}});
  EXPECT_THAT(choose_addresses(links).status().message(),
              HasSubstr("host b: a does not reach it; it has 10.0.0.2, fd00::2"));
}

TEST(ChooseAddresses, SaysWhereNoAddressIsForAll) {
  const auto links = surveyed({{"10.0.0.1", "10.1.0.1"}, {"10.0.0.2"}, {"10.1.0.3"}},
                              {{{1, "10.0.0.2"}, {2, "10.1.0.3"}},
                               {{0, "10.0.0.1"}, {2, "10.1.0.3"}},
                               {{0, "10.1.0.1"}, {1, "10.0.0.2"}}});
  EXPECT_THAT(choose_addresses(links).status().message(),
              HasSubstr("host a: no address leads to it from all other hosts"));
}

agent::Surveyed two_interfaces() {
  agent::Surveyed survey;
  survey.here.addresses = {"10.0.0.1", "10.1.0.1", "fd00::1"};
  survey.interfaces = {"eth0", "ib0", "ib0"};
  return survey;
}

TEST(NarrowAddresses, LeavesThoseOfTheInterfacesThatOthersVariablesName) {
  agent::Surveyed survey = two_interfaces();
  const InterfaceRule infiniband{.variable = "NCCL_SOCKET_IFNAME", .value = "ib"};
  ASSERT_TRUE(narrow_addresses(survey, "", infiniband).ok());
  EXPECT_THAT(survey.here.addresses, ElementsAre("10.1.0.1", "fd00::1"));
  survey = two_interfaces();
  ASSERT_TRUE(narrow_addresses(survey, "", std::nullopt).ok());
  EXPECT_EQ(survey.here.addresses.size(), 3U);
}

TEST(NarrowAddresses, TheNetworkThatIsAskedForWins) {
  agent::Surveyed survey = two_interfaces();
  const InterfaceRule infiniband{.variable = "NCCL_SOCKET_IFNAME", .value = "ib"};
  ASSERT_TRUE(narrow_addresses(survey, "10.0.0.0/16", infiniband).ok());
  EXPECT_THAT(survey.here.addresses, ElementsAre("10.0.0.1"));
}

TEST(NarrowAddresses, SaysWhatThereIsInsteadOfWhatIsMissing) {
  agent::Surveyed survey = two_interfaces();
  const InterfaceRule missing{.variable = "GLOO_SOCKET_IFNAME", .value = "eth7"};
  EXPECT_EQ(narrow_addresses(survey, "", missing).message(),
            "has no interface by GLOO_SOCKET_IFNAME=eth7 with an address for others; it has eth0, "
            "ib0");
  survey = two_interfaces();
  EXPECT_EQ(narrow_addresses(survey, "1.2.0.0/16", missing).message(),
            "has no address in 1.2.0.0/16; it has 10.0.0.1, 10.1.0.1, fd00::1");
}

TEST(CheckAlike, NamesWhatDiffers) {
  agent::Surveyed first;
  first.architecture = "x86_64";
  first.program = "python3.12";
  agent::Surveyed other = first;
  EXPECT_TRUE(check_alike(other, first, "a").ok());
  other.program = "python3.11";
  EXPECT_THAT(check_alike(other, first, "a").message(),
              HasSubstr("the program is python3.11 there, python3.12 on a; install the same"));
  other.architecture = "aarch64";
  EXPECT_THAT(check_alike(other, first, "a").message(), HasSubstr("it is aarch64, a is x86_64"));
}

TEST(TellHostsApart, RefusesOneMachineUnderTwoNamesUnlessThatIsMeant) {
  auto links = surveyed({{"10.0.0.1"}, {"10.0.0.2"}, {"10.0.0.1"}}, {{}, {}, {}});
  links[0].survey->host_id = links[2].survey->host_id = "x";
  links[1].survey->host_id = "y";
  std::vector<JobHost> hosts(3);
  for (size_t host = 0; host < 3; ++host) hosts[host].name = links[host].name;
  hosts[2].ranks = 3;
  EXPECT_EQ(tell_hosts_apart(links, false, hosts).message(),
            "hosts a and c are one machine; name it once: -H a:4");
  ASSERT_TRUE(tell_hosts_apart(links, true, hosts).ok());
  EXPECT_EQ(hosts[0].id, "x/0");
  EXPECT_EQ(hosts[1].id, "");
  EXPECT_EQ(hosts[2].id, "x/2");
}

}  // namespace
}  // namespace corro::launch
