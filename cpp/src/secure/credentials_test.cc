#include "secure/credentials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "wire/digest.h"
#include "wire/secret.h"

namespace corro::secure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

TEST(CredentialsTest, AnIdentityIsReadBackAsItWasWritten) {
  const PodIdentity identity{.job_uid = "11111111-2222-3333-4444-555555555555",
                             .member = "worker-9999",
                             .generation = 4294967295U,
                             .part = 39};
  const std::string text = encode_identity(identity);
  EXPECT_EQ(text, "corro/1 11111111-2222-3333-4444-555555555555 worker-9999 4294967295 39");
  EXPECT_EQ(decode_identity(text).value(), identity);
}

TEST(CredentialsTest, OtherTextsAreNoIdentity) {
  for (const char* text :
       {"", "corro/1", "corro/1 u m 1", "corro/1 u m 1 2 3", "corro/2 u m 1 2", "corro/1  m 1 2",
        "corro/1 u  1 2", "corro/1 u m -1 2", "corro/1 u m 01 2", "corro/1 u m 1 4294967296",
        "corro/1 u m 1 2 ", " corro/1 u m 1 2", "corro/1 u/x m 1 2", "corro/1 u m\n 1 2"}) {
    EXPECT_EQ(decode_identity(text).status().code(), Code::kInvalidArgument) << text;
  }
  const std::string longest(64, 'w');
  EXPECT_TRUE(decode_identity("corro/1 u " + longest + " 1 2").ok());
  EXPECT_FALSE(decode_identity("corro/1 u " + longest + "w 1 2").ok());
}

TEST(CredentialsTest, KeysDifferByPartJobAndMember) {
  const Key part{}, other{std::byte{1}};
  const auto key = derive_member_key(part, "u", "worker-1");
  EXPECT_EQ(key, derive_member_key(part, "u", "worker-1"));
  EXPECT_NE(key, derive_member_key(other, "u", "worker-1"));
  EXPECT_NE(key, derive_member_key(part, "v", "worker-1"));
  EXPECT_NE(key, derive_member_key(part, "u", "worker-2"));
  EXPECT_NE(key, part);
}

/// What pods of an older release have in their Secret stays valid.
TEST(CredentialsTest, TheDerivationStaysAsItIs) {
  EXPECT_EQ(wire::to_hex(derive_member_key({}, "uid", "worker-0")),
            "01bfb003e06df0ae746f9140ccf55fbaa71b8ebf0d32e51318a8925202580f37");
}

/// A launcher's ranks of different releases meet.
TEST(CredentialsTest, TheSecretOfRanksIsNoMembersKey) {
  const auto secret = derive_ranks_secret({}, "uid");
  EXPECT_NE(secret, derive_ranks_secret({}, "other"));
  EXPECT_NE(secret, derive_member_key({}, "uid", ""));
  EXPECT_EQ(wire::to_hex(secret),
            "2629edfa38618270f970ae2f3b8e21f2e46a5f05e76057f31cb2753baf03c321");
}

TEST(CredentialsTest, ASecretHasTheHeadsKeyAndOneThatFollowsFromItForEachMember) {
  const std::vector<std::string> members = {"head", "launcher", "worker-0"};
  const auto values = make_credentials("uid", members).value();
  ASSERT_THAT(values, ElementsAre(::testing::Key("head"), ::testing::Key("launcher"),
                                  ::testing::Key("worker-0")));
  const auto part = wire::parse_secret(values.at("head")).value();
  for (const char* member : {"launcher", "worker-0"})
    EXPECT_EQ(values.at(member), wire::to_hex(derive_member_key(part, "uid", member)));
}

TEST(CredentialsTest, ALaterPartIsMadeWithoutTheFirst) {
  const std::vector<std::string> members = {"worker-256"};
  const auto part = make_credentials("uid", members).value();
  EXPECT_THAT(part, UnorderedElementsAre(::testing::Key("head"), ::testing::Key("worker-256")));
  EXPECT_NE(part.at("head"), make_credentials("uid", members).value().at("head"));
}

TEST(CredentialsTest, NamesThatCouldNotBeToldApartAreRefused) {
  const std::vector<std::string> bad = {"worker 0"};
  const auto failed = make_credentials("uid", bad);
  EXPECT_EQ(failed.status().code(), Code::kInvalidArgument);
  EXPECT_THAT(failed.status().message(), HasSubstr("worker 0"));
  EXPECT_FALSE(make_credentials("", {}).ok());
}

}  // namespace
}  // namespace corro::secure
