#include "app/server/server_program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <string>

#include "app/server_options.h"
#include "io/event.h"
#include "io/socket.h"
#include "wire/running_agent.h"

namespace corro::app {
namespace {

using ::testing::HasSubstr;

/// What a server is told by whom has started it; `stop` ends it.
struct Started {
  explicit Started(int32_t number) {
    environment.agent = agent.service().name();
    environment.servers = 2;
    environment.size = 2;
    environment.server = number;
  }
  [[nodiscard]] io::Fd ear() const { return io::Fd(dup(stop.fd())); }

  wire::RunningAgent agent{2, 1U << 20U, /*servers=*/2};
  io::EventFd stop = io::EventFd::create().value();
  Environment environment;
};

TEST(ServerProgram, IsReachedWhereRanksFindIt) {
  Started one(1);
  ServerProgram program(one.environment, one.ear(),
                        [&](const wire::ServerPlace& place, io::Fd listener, const io::Fd& stop,
                            obs::TableRecorder& recorder) {
                          EXPECT_EQ(place.index, 1);
                          const auto rank = one.agent.connect(0).value();
                          const Bytes said = rank->get("job-1/server/1", wire::soon()).value();
                          const std::string text(reinterpret_cast<const char*>(said.data()),
                                                 said.size());
                          EXPECT_TRUE(io::connect_tcp(io::SocketAddress::parse(text).value()).ok());
                          EXPECT_TRUE(io::wait_ready(listener.get(), POLLIN, wire::soon()));
                          one.stop.ring();
                          return serve_tables(place, std::move(listener), stop, recorder);
                        });
  EXPECT_EQ(program.run(), 0);
}

TEST(ServerProgram, EndsWithTheStatusOfWhatItServes) {
  const Started one(0);
  ServerProgram program(one.environment, one.ear(),
                        [](const wire::ServerPlace&, const io::Fd&, const io::Fd&,
                           obs::TableRecorder&) { return Result<int>(7); });
  EXPECT_EQ(program.run(), 7);
}

TEST(ServerProgram, SaysInOneLineWhatIsWrong) {
  Started one(0);
  one.environment.agent = "corro-nobody-" + std::to_string(getpid());
  testing::internal::CaptureStderr();
  EXPECT_EQ(ServerProgram(one.environment, one.ear(), serve_tables).run(), 1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("corro server: CORRO_AGENT: no"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(ServerProgram({}, one.ear(), serve_tables).run(), 2);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "corro server: started by corro run --servers, and by nobody else\n");
}

TEST(ServerProgram, HasNoOptions) {
  EXPECT_TRUE(parse_server_line({"server"}).ok());
  EXPECT_THAT(parse_server_line({"server", "--help"})->text, HasSubstr("corro run --servers"));
  EXPECT_THAT(parse_server_line({"server", "--port", "1"}).status().message(),
              HasSubstr("corro server"));
}

}  // namespace
}  // namespace corro::app
