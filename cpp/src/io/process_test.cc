#include "io/process.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <csignal>
#include <vector>

#include "base/clock.h"
#include "io/socket.h"

namespace corro::io {
namespace {

TEST(Pidfd, BecomesReadableWhenTheProcessIsKilled) {
  const pid_t child = fork();
  if (child == 0) {
    while (true) pause();
  }
  const Fd fd = open_pidfd(child).value();
  EXPECT_FALSE(wait_ready(fd.get(), POLLIN, monotonic_now()));
  kill(child, SIGKILL);
  EXPECT_TRUE(wait_ready(fd.get(), POLLIN, monotonic_now() + std::chrono::seconds(60)));
  waitpid(child, nullptr, 0);
  EXPECT_EQ(open_pidfd(child).status().code(), Code::kNotFound);
}

TEST(HostId, IsStableAndNamesNamespaces) {
  EXPECT_EQ(boot_host_id(), boot_host_id());
  EXPECT_NE(boot_host_id().find("pid:["), std::string::npos);
}

TEST(VmAccess, OwnMemoryIsReadableAndAMissingProcessIsNot) {
  EXPECT_TRUE(vm_access_permitted(getpid()));
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_FALSE(vm_access_permitted(child));
}

TEST(ReadProcess, CopiesAcrossPagesOrSaysWhyNot) {
  const std::vector<std::byte> source(100'000, std::byte{7});
  std::vector<std::byte> copy(source.size());
  const auto address = reinterpret_cast<uintptr_t>(source.data());
  EXPECT_TRUE(read_process(getpid(), address, copy.data(), copy.size()).ok());
  EXPECT_EQ(copy, source);
  EXPECT_EQ(read_process(getpid(), 1, copy.data(), 1).code(), Code::kInvalidArgument);
  const pid_t child = fork();
  if (child == 0) _exit(0);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(read_process(child, address, copy.data(), 1).code(), Code::kNotFound);
}

}  // namespace
}  // namespace corro::io
