#include "pod/ssh_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace corro::pod {
namespace {

using ::testing::HasSubstr;

SshRequest parsed(const std::vector<std::string>& words) {
  const auto request = parse_ssh(words);
  EXPECT_TRUE(request.ok()) << request.status().message();
  return request.ok() ? *request : SshRequest{};
}

TEST(SshOptionsTest, HostAndCommandAreTaken) {
  const SshRequest request = parsed({"mnist-worker-0", "echo", "a", "b c"});
  EXPECT_EQ(request.host, "mnist-worker-0");
  EXPECT_EQ(request.command, "echo a b c");
  EXPECT_FALSE(request.no_input);
}

/// As Open MPI's plm_rsh, MPICH's Hydra and Horovod write them.
// mpijob same: case.hydra-options
TEST(SshOptionsTest, WhatLaunchersPassMeansNothing) {
  const std::vector<std::vector<std::string>> all = {
      {"-o", "ConnectionAttempts=10", "h", "orted"},
      {"-x", "h", "orted"},
      {"-q", "-oStrictHostKeyChecking=no", "-p", "22", "h", "orted"},
      {"-p2222", "-l", "me", "h", "orted"},
      {"-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=no", "h", "orted"},
      {"-T", "-tt", "-i", "/root/.ssh/id_rsa", "-xq", "h", "orted"},
      {"-qp", "22", "h", "orted"},
      {"h", "-l", "me", "orted"},
      {"-x", "--", "h", "orted"}};
  for (const auto& words : all) {
    const SshRequest request = parsed(words);
    EXPECT_EQ(request.host, "h");
    EXPECT_EQ(request.command, "orted");
  }
}

TEST(SshOptionsTest, OptionsOfTheCommandAreItsOwn) {
  EXPECT_EQ(parsed({"h", "orted", "-x", "--tree-spawn", "-f"}).command, "orted -x --tree-spawn -f");
}

TEST(SshOptionsTest, NoInputIsNoInput) {
  EXPECT_TRUE(parsed({"-n", "h", "true"}).no_input);
  EXPECT_TRUE(parsed({"-xn", "h", "true"}).no_input);
  EXPECT_FALSE(parsed({"-o", "n", "h", "true"}).no_input);
}

TEST(SshOptionsTest, WhatAsksForMoreThanACommandIsRefusedByName) {
  for (const char* option : {"-f", "-N", "-L", "-R", "-D", "-W", "-w", "-Z"}) {
    const Status status = parse_ssh({option, "h", "true"}).status();
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr(option));
  }
}

TEST(SshOptionsTest, WhatIsMissingIsSaid) {
  EXPECT_THAT(parse_ssh({}).status().message(), HasSubstr("host"));
  EXPECT_THAT(parse_ssh({"-x"}).status().message(), HasSubstr("host"));
  EXPECT_THAT(parse_ssh({"h"}).status().message(), HasSubstr("command"));
  EXPECT_THAT(parse_ssh({"h", "-p"}).status().message(), HasSubstr("-p"));
}

}  // namespace
}  // namespace corro::pod
