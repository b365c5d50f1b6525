#include "launch/network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::launch {
namespace {

TEST(Network, HasTheAddressesOfItsPrefix) {
  const Network ten = Network::parse("10.0.0.0/8").value();
  EXPECT_TRUE(ten.has("10.255.1.2"));
  EXPECT_FALSE(ten.has("11.0.0.1"));
  EXPECT_FALSE(ten.has("fd00::10"));
  EXPECT_FALSE(ten.has("no address"));
  const Network odd = Network::parse("192.168.4.0/22").value();
  EXPECT_TRUE(odd.has("192.168.7.255"));
  EXPECT_FALSE(odd.has("192.168.8.0"));
  const Network six = Network::parse("fd00:1::/32").value();
  EXPECT_TRUE(six.has("fd00:1:2::3"));
  EXPECT_FALSE(six.has("fd00:2::3"));
  EXPECT_FALSE(six.has("10.0.0.1"));
  EXPECT_TRUE(Network::parse("0.0.0.0/0").value().has("8.8.8.8"));
  EXPECT_FALSE(Network::parse("10.1.2.3/32").value().has("10.1.2.4"));
}

TEST(Network, WhatIsNoneIsOneLine) {
  for (const char* text : {"", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "10.0.0.0/-1", "10.0/8",
                           "fd00::/129", "10.0.0.0/8x", "eth0/8", "/8"}) {
    const auto network = Network::parse(text);
    ASSERT_FALSE(network.ok()) << text;
    EXPECT_THAT(network.status().message(), testing::HasSubstr("write it as 10.0.0.0/8")) << text;
  }
}

}  // namespace
}  // namespace corro::launch
