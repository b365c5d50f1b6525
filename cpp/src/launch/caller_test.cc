#include "launch/caller.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "agent/messages.h"
#include "base/bytes.h"

namespace corro::launch {
namespace {

using testing::HasSubstr;

struct Ends {
  io::Fd python;
  Caller caller;
};

Ends make_ends() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  return {io::Fd(ends[0]), Caller::create(ends[1]).value()};
}

void put(const io::Fd& socket, const std::string& bytes) {
  size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t count = write(socket.get(), bytes.data() + sent, bytes.size() - sent);
    ASSERT_GT(count, 0);
    sent += static_cast<size_t>(count);
  }
}

std::string call_of(size_t size) {
  const uint64_t length = size;
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) +
         std::string(size, 'x');
}

TEST(Caller, ACallComesInPieces) {
  for (const size_t size : {size_t{0}, size_t{1}, agent::kCallPiece, 2 * agent::kCallPiece + 7}) {
    Ends ends = make_ends();
    std::thread python([&] { put(ends.python, call_of(size)); });
    size_t read = 0;
    while (true) {
      const auto piece = ends.caller.read_call();
      ASSERT_TRUE(piece.ok());
      if (piece->empty()) break;
      read += piece->size();
    }
    python.join();
    EXPECT_EQ(read, size);
    EXPECT_FALSE(ends.caller.gone());
    ends.python.reset();
    EXPECT_TRUE(ends.caller.gone());
  }
}

TEST(Caller, OneThatGoesWithinItsCallIsMissed) {
  Ends ends = make_ends();
  put(ends.python, call_of(10).substr(0, 12));
  ends.python.reset();
  EXPECT_EQ(ends.caller.read_call().status().code(), Code::kUnavailable);
}

TEST(Caller, ItsSocketIsForThisProcessAlone) {
  const Ends ends = make_ends();
  EXPECT_NE(fcntl(ends.caller.fd(), F_GETFD) & FD_CLOEXEC, 0);
}

TEST(Caller, SomethingElseThanASocketIsRefused) {
  for (const int fd : {open("/dev/null", O_RDONLY), 9999}) {
    const auto caller = Caller::create(fd);
    EXPECT_THAT(caller.status().message(), HasSubstr("corro.run() of Python alone"));
  }
}

TEST(Caller, FramesSayTheRankAndTheLength) {
  const std::string bytes = frame_result(3, std::string("a\0b", 3));
  EXPECT_EQ(bytes, std::string("\3\0\0\0\3\0\0\0a\0b", 11));
}

TEST(Caller, TheEndIsJsonWhateverAProgramHasPrinted) {
  diagnosis::FailureReport report;
  report.rank = 2;
  report.host = "node7";
  const std::string bytes =
      frame_end({.exit = 1, .places = {0, 2}, .text = "bad \xFF byte", .failure = report});
  EXPECT_EQ(bytes.substr(0, 4), "\xFF\xFF\xFF\xFF");
  const auto json = nlohmann::json::parse(bytes.substr(8));
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["host"], "node7");
  EXPECT_EQ(json["code"], 0);
  EXPECT_EQ(json["exit"], 1);
}

}  // namespace
}  // namespace corro::launch
