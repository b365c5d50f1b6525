#include "io/interfaces.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::io {
namespace {

using testing::Not;
using testing::StartsWith;

TEST(Interfaces, AddressesThatLeadNowhereFromElsewhereAreLeftOut) {
  for (const OwnAddress& own : own_addresses()) {
    EXPECT_THAT(own.address, Not(StartsWith("127.")));
    EXPECT_THAT(own.address, Not(StartsWith("fe80")));
    EXPECT_NE(own.interface, "");
    const auto parsed = SocketAddress::parse_host(own.address, 0);
    ASSERT_TRUE(parsed.ok()) << own.address;
    EXPECT_EQ(parsed->host(), own.address);
    EXPECT_FALSE(parsed->is_loopback() || parsed->is_wildcard()) << own.address;
  }
}

TEST(Interfaces, ANumericAddressIsItself) {
  EXPECT_EQ(resolve("127.0.0.1", 80)->front().to_string(), "127.0.0.1:80");
  EXPECT_EQ(resolve("::1", 80)->front().to_string(), "[::1]:80");
  EXPECT_EQ(resolve("no-such-host.invalid", 80).status().code(), Code::kNotFound);
}

TEST(Interfaces, LoopbackIsReachedFromLoopback) {
  EXPECT_EQ(own_address_towards(resolve("127.0.0.2", 9)->front()), "127.0.0.1");
}

}  // namespace
}  // namespace corro::io
