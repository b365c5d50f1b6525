#include "screen/screen_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>

#include "io/fd.h"

namespace corro::screen {
namespace {

/// A pipe that keeps apart what each write() has brought, up to a page.
struct PacketPipe {
  PacketPipe() {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_DIRECT | O_NONBLOCK | O_CLOEXEC), 0);
    out.reset(ends[0]);
    in.reset(ends[1]);
  }
  io::Fd out, in;
};

TEST(ScreenWriter, WritesTogetherWhatHasWaited) {
  const PacketPipe pipe;
  size_t expected_writes = 0;
  std::string expected;
  for (; write(pipe.in.get(), "full\n", 5) == 5; ++expected_writes) expected += "full\n";
  auto writer = ScreenWriter::create();
  ASSERT_TRUE(writer.ok());
  for (int line = 0; line < 1000; ++line) {
    expected += std::to_string(line) + "\n";
    (*writer)->write(pipe.in.get(), std::to_string(line) + "\n");
  }
  std::string written;
  size_t writes = 0;
  std::array<char, 4096> buffer{};
  while (written.size() < expected.size()) {
    pollfd ready{.fd = pipe.out.get(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&ready, 1, 60'000), 1);
    const ssize_t count = read(pipe.out.get(), buffer.data(), buffer.size());
    ASSERT_GT(count, 0);
    written.append(buffer.data(), static_cast<size_t>(count));
    ++writes;
  }
  EXPECT_EQ(written, expected);
  // The first line, and pages of others; not one for each line.
  EXPECT_LE(writes, expected_writes + 4);
}

}  // namespace
}  // namespace corro::screen
