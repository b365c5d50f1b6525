#include "base/meeting_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MeetingHosts, OpenMpi4TellsAllAddressesOfItsHost) {
  EXPECT_THAT(addresses_of_uri("285868032.0;tcp://192.0.2.2,10.0.0.1:56481;tcp6://[fd00::2]:46193"),
              ElementsAre("192.0.2.2", "10.0.0.1", "fd00::2"));
  EXPECT_THAT(addresses_of_uri("1.0;tcp6://[fd00::2,fe80::1]:1"),
              ElementsAre("fd00::2", "fe80::1"));
  EXPECT_THAT(addresses_of_uri("1.0;usock"), IsEmpty());
  EXPECT_THAT(addresses_of_uri(""), IsEmpty());
}

TEST(MeetingHosts, OpenMpi5TellsTheNameOfItsHost) {
  EXPECT_EQ(host_of_namespace("prterun-vm-32256@1"), "vm");
  EXPECT_EQ(host_of_namespace("prte-login-1.site-77@12"), "login-1.site");
  for (const char* text : {"285868033", "prterun-", "prterun-vm@1", "@", "prterun", "x-vm-1@1"})
    EXPECT_EQ(host_of_namespace(text), "") << text;
}

}  // namespace
}  // namespace corro
