#include "base/interface_rule.h"

#include <gtest/gtest.h>

#include <map>

namespace corro {
namespace {

std::optional<InterfaceRule> find(const std::map<std::string, std::string>& variables) {
  return find_interface_rule([&](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(InterfaceRule, GloosAndHorovodsAreNames) {
  for (const char* name : {"GLOO_SOCKET_IFNAME", "HOROVOD_GLOO_IFACE"}) {
    const InterfaceRule rule = find({{name, "eth0,ib0"}}).value();
    EXPECT_TRUE(rule.admits("eth0") && rule.admits("ib0"));
    EXPECT_FALSE(rule.admits("eth01") || rule.admits("eth1") || rule.admits(""));
    EXPECT_EQ(rule.text(), std::string(name) + "=eth0,ib0");
  }
}

TEST(InterfaceRule, NcclsAreBeginningsUnlessTheyAreExact) {
  const auto admits = [](const char* value, const char* interface) {
    return find({{"NCCL_SOCKET_IFNAME", value}})->admits(interface);
  };
  EXPECT_TRUE(admits("eth", "eth0") && admits("ib,eth", "eth12"));
  EXPECT_FALSE(admits("eth", "docker0"));
  EXPECT_TRUE(admits("=eth1", "eth1"));
  EXPECT_FALSE(admits("=eth1", "eth12"));
  EXPECT_FALSE(admits("^docker,veth", "docker0") || admits("^docker,veth", "veth3"));
  EXPECT_TRUE(admits("^docker,veth", "eth0"));
  EXPECT_TRUE(admits("^=eth1", "eth12"));
  EXPECT_FALSE(admits("^=eth1", "eth1"));
}

TEST(InterfaceRule, TheFirstOneThatIsSetCounts) {
  EXPECT_FALSE(find({{"GLOO_SOCKET_IFNAME", ""}}));
  const auto rule = find({{"NCCL_SOCKET_IFNAME", "ib"}, {"HOROVOD_GLOO_IFACE", "eth0"}});
  EXPECT_EQ(rule->variable, "HOROVOD_GLOO_IFACE");
}

}  // namespace
}  // namespace corro
