#include "launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

using testing::HasSubstr;

std::string text_of(const Result<std::vector<HostSlots>>& hosts) {
  if (!hosts.ok()) return "! " + hosts.status().message();
  std::string text;
  for (const HostSlots& host : *hosts) text += host.name + "=" + std::to_string(host.slots) + " ";
  return text;
}

TEST(Hosts, AreReadWithTheirSlots) {
  EXPECT_EQ(text_of(parse_hosts("a:4,b,user@c.example.org:2")), "a=4 b=1 user@c.example.org=2 ");
  EXPECT_EQ(text_of(parse_hosts("10.0.0.7:3")), "10.0.0.7=3 ");
  EXPECT_EQ(text_of(parse_hosts("[fe80::1]:2,fe80::2,[fe80::3]")),
            "fe80::1=2 fe80::2=1 fe80::3=1 ");
}

TEST(Hosts, WhatIsNoneIsNamed) {
  for (const char* text : {"a:0", "a:-1", "a:x", "a:", "a:1025", "a:4x"})
    EXPECT_THAT(text_of(parse_hosts(text)), HasSubstr("slots are 1 to 1024")) << text;
  for (const char* text : {"", "a,,b", ",a", "a b", "-oProxyCommand=x", "a;b", ":4"})
    EXPECT_THAT(text_of(parse_hosts(text)), HasSubstr("not a host")) << text;
  EXPECT_EQ(text_of(parse_hosts("a:2,b,a")),
            "! -H: a: is there twice; write it once, with all its slots");
}

TEST(Hostfile, IsReadInEachHabit) {
  const char* text =
      "# the cluster\n"
      "node1 slots=4\n"
      "\n"
      "node2:2   # with a comment\n"
      "node3 slots=2 max_slots=8\n"
      "node4\n";
  EXPECT_EQ(text_of(parse_hostfile(text, "hosts")), "node1=4 node2=2 node3=2 node4=1 ");
}

TEST(Hostfile, IsReadWithBlanksAroundEqualsAndAByteOrderMark) {
  const char* text = "\xEF\xBB\xBFnode1 slots = 4\r\nnode2 slots\t= 2 max_slots =8\n";
  EXPECT_EQ(text_of(parse_hostfile(text, "hosts")), "node1=4 node2=2 ");
  EXPECT_THAT(text_of(parse_hostfile("a slots =\n", "h")),
              HasSubstr("h:1: slots=: slots are 1 to"));
}

TEST(Hostfile, OfASchedulerHasALineForEachSlot) {
  EXPECT_EQ(text_of(parse_hostfile("n1\nn1\nn2\nfe80::1\n[fe80::1]\nn1\n", "h")),
            "n1=3 n2=1 fe80::1=2 ");
  std::string text;
  for (int i = 0; i < 1025; ++i) text += "n1\n";
  EXPECT_THAT(text_of(parse_hostfile(text, "h")), HasSubstr("h:1025: n1: is there more than 1024"));
}

TEST(Hostfile, ThatCannotBeReadSaysWhy) {
  const auto read = [](const std::string& path) {
    return read_hosts("", path, read_hostfile).status().message();
  };
  EXPECT_EQ(read("/dev/zero"), "--hostfile /dev/zero: larger than 16 MiB");
  EXPECT_EQ(read("/proc/self"), "--hostfile /proc/self: Is a directory");
  EXPECT_EQ(read("/proc/self/mem"), "--hostfile /proc/self/mem: Input/output error");
  EXPECT_EQ(read("/none"), "--hostfile /none: no such file");
}

TEST(Hostfile, AWrongLineIsNamed) {
  EXPECT_THAT(text_of(parse_hostfile("a\nb slots=0\n", "hosts.txt")), HasSubstr("hosts.txt:2: "));
  EXPECT_THAT(text_of(parse_hostfile("a\n\nb cpus=3\n", "h")),
              HasSubstr("h:3: cpus=3: not understood"));
  for (const char* twice : {"a slots=2\na\n", "a\na:1\n", "a\na slots=1\n", "a\na max_slots=2\n"})
    EXPECT_THAT(text_of(parse_hostfile(twice, "h")), HasSubstr("h:2: a: is there twice"));
  EXPECT_THAT(text_of(parse_hostfile("# none\n", "h")), HasSubstr("h: has no host"));
}

TEST(PlaceRanks, FillsHostAfterHost) {
  const auto hosts = parse_hosts("a:2,b:2,c:2").value();
  EXPECT_EQ(text_of(place_ranks(hosts, 0)), "a=2 b=2 c=2 ");
  EXPECT_EQ(text_of(place_ranks(hosts, 3)), "a=2 b=1 ");
  EXPECT_THAT(text_of(place_ranks(hosts, 8)),
              HasSubstr("-np 8: the hosts have 6 slots; give them more, as in: -H a:4"));
}

TEST(OwnHost, IsKnownByItsNames) {
  for (const char* name : {"localhost", "127.0.0.1", "node7.example.org", "node7"})
    EXPECT_TRUE(is_own_host(name, "node7.example.org")) << name;
  for (const char* name : {"node8", "node7.example.com", "me@node7", "node"})
    EXPECT_FALSE(is_own_host(name, "node7.example.org")) << name;
}

}  // namespace
}  // namespace corro::launch
