#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "io/socket.h"
#include "wire/agent_bootstrap.h"
#include "wire/agent_protocol.h"
#include "wire/agent_service.h"
#include "wire/bootstrap_conformance.h"
#include "wire/digest.h"
#include "wire/running_agent.h"

namespace corro::wire {
namespace {

using ::testing::HasSubstr;

struct AgentMeeting {
  std::unique_ptr<Bootstrap> join(int32_t rank) { return agent.connect(rank).value(); }
  RunningAgent agent;
};

INSTANTIATE_TYPED_TEST_SUITE_P(Agent, BootstrapConformance, AgentMeeting);

TEST(AgentService, HandsOutJobAndSecretAndHearsWhoComes) {
  RunningAgent agent;
  std::array<int, 2> pipes{};
  ASSERT_EQ(pipe2(pipes.data(), O_CLOEXEC), 0);
  const io::Fd reader(pipes[0]);
  const io::Fd writer(pipes[1]);
  const auto worker = agent.connect(3, std::array{writer.get()}).value();
  EXPECT_EQ(worker->job(), "job-1");
  EXPECT_EQ(worker->secret(), agent.secret());
  // A reply proves that the HELLO has been handled.
  ASSERT_TRUE(worker->put("k", {}).ok());
  auto hellos = agent.hellos().lock();
  ASSERT_EQ(hellos->size(), 1U);
  EXPECT_EQ(hellos->front().rank, 3);
  EXPECT_EQ(hellos->front().pid, getpid());
  ASSERT_EQ(hellos->front().descriptors.size(), 1U);
  ASSERT_EQ(::write(hellos->front().descriptors.front().get(), "x", 1), 1);
  char byte = 0;
  EXPECT_EQ(::read(reader.get(), &byte, 1), 1);
}

/// The notices that have come, once there are so many; fewer after a minute.
std::vector<WorkerNotice> await_notices(RunningAgent& agent, size_t count) {
  for (const Time end = soon(); agent.notices().lock()->size() < count && monotonic_now() < end;)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return *agent.notices().lock();
}

TEST(AgentService, HearsWhatARankTellsPeople) {
  RunningAgent agent;
  const std::string name = agent.service().name();
  ASSERT_TRUE(report(name, "00ff", {.step = 200, .text = "/run/step-200"}).ok());
  ASSERT_EQ(await_notices(agent, 1).size(), 1U);
  ASSERT_TRUE(
      report(name, "00ff", {.step = 300, .text = std::string(kMaxNoticeText + 1, 'p')}).ok());
  ASSERT_EQ(await_notices(agent, 2).size(), 2U);
  const std::string longest(kMaxNoticeText, 'p');
  ASSERT_TRUE(report(name, "01", {.kind = NoticeKind::kDecisions, .text = longest}).ok());
  const auto heard = await_notices(agent, 3);
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard[0].member, "00ff");
  EXPECT_EQ(heard[0].notice.kind, NoticeKind::kCheckpoint);
  EXPECT_EQ(heard[0].notice.step, 200U);
  EXPECT_EQ(heard[0].notice.text, "/run/step-200");
  EXPECT_EQ(heard[1].notice.step, 300U);
  EXPECT_EQ(heard[1].notice.text, "") << "too long";
  EXPECT_EQ(heard[2].member, "01");
  EXPECT_EQ(heard[2].notice.kind, NoticeKind::kDecisions);
  EXPECT_EQ(heard[2].notice.text, longest);
}

TEST(AgentService, DoesNotHearNoticesOfNobodyOrOfAnotherKind) {
  RunningAgent agent;
  const std::string name = agent.service().name();
  const auto unknown = static_cast<NoticeKind>(static_cast<int>(kLastNoticeKind) + 1);
  ASSERT_TRUE(report(name, "", {.step = 1}).ok()) << "nobody answers";
  ASSERT_TRUE(report(name, "00", {.kind = unknown}).ok());
  ASSERT_TRUE(report(name, "00", {.step = 2}).ok());
  EXPECT_EQ(await_notices(agent, 1).at(0).notice.step, 2U);
  agent.stop();
  EXPECT_EQ(agent.service().counters().refused, 2U);
  EXPECT_EQ(report("corro-nobody-listens", "00", {}).code(), Code::kUnavailable);
}

TEST(AgentService, RefusesARankThatIsNotInTheJob) {
  RunningAgent agent(/*size=*/4);
  for (const int32_t rank : {-1, 4}) {
    const auto refused = agent.connect(rank);
    EXPECT_EQ(refused.status().code(), Code::kInvalidArgument);
    EXPECT_THAT(refused.status().message(), HasSubstr("it has ranks 0 to 3"));
  }
  agent.stop();
  EXPECT_EQ(agent.service().counters().refused, 2U);
}

/// Sends a packet and returns what the agent answers; nullopt if it hangs up.
std::optional<AgentMessage> talk(const io::Fd& fd, BytesView packet) {
  if (!io::send_message(fd.get(), packet).ok()) return std::nullopt;
  std::array<std::byte, kMaxAgentMessage> into{};
  EXPECT_TRUE(io::wait_ready(fd.get(), POLLIN, soon()));
  const io::Received received = io::receive_message(fd.get(), into);
  if (received.closed) return std::nullopt;
  return decode_agent_message(std::span(into).first(received.bytes)).value();
}

TEST(AgentService, GarbageCostsOnlyItsOwnConnection) {
  RunningAgent agent;
  const auto worker = agent.connect(0).value();
  const std::string http = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  const Bytes hello =
      encode_agent_message({.kind = AgentMessageKind::kHello, .rank = 1, .key = {}, .value = {}});
  const Bytes early =
      encode_agent_message({.kind = AgentMessageKind::kPut, .key = "k", .value = {}});
  const Bytes notice = encode_agent_message(
      {.kind = AgentMessageKind::kNotice, .key = {}, .value = Bytes(8, std::byte{0})});
  Bytes overlong(kMaxAgentMessage + 100);
  std::copy(hello.begin(), hello.end(), overlong.begin());
  for (const BytesView packet :
       {std::as_bytes(std::span(http)), BytesView(early), BytesView(notice), BytesView(overlong)}) {
    const io::Fd stranger = io::connect_abstract(agent.service().name()).value();
    EXPECT_FALSE(talk(stranger, packet).has_value());
  }
  const io::Fd twice = io::connect_abstract(agent.service().name()).value();
  EXPECT_EQ(talk(twice, hello)->kind, AgentMessageKind::kWelcome);
  EXPECT_FALSE(talk(twice, hello).has_value()) << "one HELLO a connection";
  EXPECT_TRUE(worker->put("still", {}).ok());
  agent.stop();
  EXPECT_EQ(agent.service().counters().refused, 5U);
}

TEST(AgentService, AWorkerThatNeverReadsDoesNotDelayOthersOrGrowTheAgent) {
  RunningAgent agent;
  const auto worker = agent.connect(0).value();
  ASSERT_TRUE(worker->put("big", Bytes(kMaxBootstrapValue)).ok());
  const io::Fd glutton = io::connect_abstract(agent.service().name()).value();
  ASSERT_TRUE(
      io::send_message(glutton.get(), encode_agent_message({.rank = 1, .key = {}, .value = {}}))
          .value());
  const Bytes ask =
      encode_agent_message({.kind = AgentMessageKind::kGet, .key = "big", .value = {}});
  while (true) {
    const auto sent = io::send_message(glutton.get(), ask);
    if (!sent.ok()) break;  // The agent hung up.
    if (!*sent) {
      ASSERT_TRUE(io::wait_ready(glutton.get(), POLLOUT, soon()));
    }
  }
  EXPECT_TRUE(worker->get("big", soon()).ok());
}

TEST(AgentService, FloodsAreBounded) {
  RunningAgent agent(/*size=*/1, /*max_store_bytes=*/2 * kMaxBootstrapValue);
  const auto worker = agent.connect(0).value();
  EXPECT_TRUE(worker->put("1", Bytes(kMaxBootstrapValue)).ok());
  EXPECT_EQ(worker->put("2", Bytes(kMaxBootstrapValue)).code(), Code::kResourceExhausted);
  EXPECT_TRUE(worker->put("1", Bytes(kMaxBootstrapValue)).ok());
  std::vector<io::Fd> strangers;
  for (int i = 0; i < 200; ++i)
    strangers.push_back(io::connect_abstract(agent.service().name()).value());
  EXPECT_TRUE(io::wait_ready(strangers.back().get(), POLLIN, soon())) << "hung up on";
  EXPECT_TRUE(worker->get("1", soon()).ok());
  agent.stop();
  EXPECT_GT(agent.service().counters().refused, 0U);
}

TEST(AgentService, NobodyWaitsForARankThatEndedWithoutJoining) {
  RunningAgent agent(/*size=*/4);
  const auto worker = agent.connect(0).value();
  ASSERT_TRUE(worker->put("job/rank/1", Bytes(1)).ok());
  Result<Bytes> waited = Status(Code::kUnknown, "not yet");
  {
    std::atomic<bool> waits = false;
    const std::jthread thread([&] {
      const auto waiter = agent.connect(2).value();
      waiter->set_interrupted([&] {
        waits = true;
        waits.notify_all();
        return false;
      });
      waited = waiter->get("job/tcp/1", soon());
    });
    waits.wait(false);
    EXPECT_TRUE(worker->put("later", {}).ok()) << "the agent has seen what the other one asked for";
    agent.end_rank(1);
  }
  for (const Status& status : {waited.status(), worker->get("job/tcp/1", soon()).status()}) {
    EXPECT_EQ(status.code(), Code::kNotFound);
    EXPECT_EQ(status.message(), "rank 1 on node2 ended before it had joined the job");
  }
  EXPECT_TRUE(worker->get("job/rank/1", soon()).ok()) << "somebody had written that";
  ASSERT_TRUE(agent.connect(3).ok());
  agent.end_rank(3);  // It had joined: another process may take its number in a later engine.
  const Time moment = monotonic_now() + std::chrono::milliseconds(10);
  for (const char* other : {"job/tcp/3", "job/tcp/11", "job/tcp/1x", "job/tcp/", "1/x"}) {
    EXPECT_EQ(worker->get(other, moment).status().code(), Code::kDeadlineExceeded) << other;
  }
}

TEST(AgentBootstrap, AWorkerOfAnotherReleaseIsToldBothVersions) {
  RunningAgent agent;
  const io::Fd worker = connect_to_agent(agent.service().name()).value();
  constexpr int kOther = 9;
  const AgentMessage hello{.kind = AgentMessageKind::kHello, .rank = 0, .key = {}, .value = {}};
  ASSERT_TRUE(io::send_message(worker.get(), encode_agent_message(hello, kOther)).value());
  ASSERT_TRUE(io::wait_ready(worker.get(), POLLIN, soon()));
  std::array<std::byte, kMaxAgentMessage> packet{};
  const io::Received received = io::receive_message(worker.get(), packet);
  const auto answer = std::span(packet).first(received.bytes);
  EXPECT_EQ(other_version_of(answer), kOther) << "it reads no other one";
  packet[1] = std::byte{kAgentMessagesVersion};
  const AgentMessage refused = decode_agent_message(answer).value();
  EXPECT_EQ(refused.kind, AgentMessageKind::kReply);
  EXPECT_EQ(refused.code, Code::kFailedPrecondition);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(refused.value.data()), refused.value.size()),
            "this rank's corro has message version 9, its agent 2: install the same corro in the "
            "image");
}

/// What a worker says of an agent that answers its HELLO with these packets, and ends.
Status greeted_by(const std::vector<Bytes>& packets) {
  const std::string name = "corro-test-" + random_hex(12);
  const io::Fd listener = io::listen_abstract(name).value();
  std::jthread agent([&] {
    (void)io::wait_ready(listener.get(), POLLIN, soon());
    const io::Fd worker = io::accept_connection(listener.get()).value();
    std::array<std::byte, kMaxAgentMessage> hello{};
    (void)io::wait_ready(worker.get(), POLLIN, soon());
    (void)io::receive_message(worker.get(), hello);
    for (const Bytes& packet : packets) (void)io::send_message(worker.get(), packet);
  });
  return AgentBootstrap::connect({.name = name, .rank = 0, .deadline = soon()}).status();
}

TEST(AgentBootstrap, AnAgentOfAnotherReleaseIsNamedWithBothVersions) {
  const AgentMessage welcome{.kind = AgentMessageKind::kWelcome, .key = "job", .value = {}};
  const Status other = greeted_by({encode_agent_message(welcome, 7)});
  EXPECT_EQ(other.code(), Code::kFailedPrecondition);
  EXPECT_THAT(other.message(), HasSubstr("corro has message version 2, its agent 7"));
  const Status silent = greeted_by({});
  EXPECT_EQ(silent.code(), Code::kUnavailable);
  EXPECT_THAT(silent.message(), HasSubstr("which has message version 2?"));
}

TEST(AgentBootstrap, SaysThatTheLauncherIsGone) {
  const auto missing =
      AgentBootstrap::connect({.name = "corro-nobody-here", .rank = 0, .deadline = soon()});
  EXPECT_THAT(missing.status().message(), HasSubstr("is the launcher still running?"));
  RunningAgent agent;
  const std::string name = agent.service().name();
  const auto worker = agent.connect(0).value();
  EXPECT_EQ(worker->get("x", monotonic_now()).status().code(), Code::kDeadlineExceeded);
}

TEST(AgentBootstrap, FailsAtOnceWhenTheAgentEnds) {
  auto service = AgentService::create({.job = "j", .size = 1, .name = {}, .on_hello = {}}).value();
  Result<std::unique_ptr<AgentBootstrap>> worker = Status(Code::kUnknown, "not yet");
  {
    const std::jthread thread([&] {
      worker = AgentBootstrap::connect({.name = service->name(), .rank = 0, .deadline = soon()});
    });
    while (service->counters().connections == 0) {
      ASSERT_TRUE(io::wait_ready(service->poll_fd(), POLLIN, soon()));
      ASSERT_TRUE(service->poll().ok());
    }
    ASSERT_TRUE(io::wait_ready(service->poll_fd(), POLLIN, soon()));
    ASSERT_TRUE(service->poll().ok());
  }
  ASSERT_TRUE(worker.ok()) << worker.status().message();
  service.reset();
  EXPECT_EQ((*worker)->get("k", soon()).status().code(), Code::kUnavailable);
  EXPECT_EQ((*worker)->put("k", {}).code(), Code::kUnavailable);
}

TEST(AgentProtocol, ReadsBackWhatItWritesAndNothingElse) {
  const AgentMessage message{.kind = AgentMessageKind::kReply,
                             .request = 7,
                             .rank = -1,
                             .code = Code::kAlreadyExists,
                             .key = "key",
                             .value = Bytes(5, std::byte{1})};
  const Bytes packet = encode_agent_message(message);
  const AgentMessage read = decode_agent_message(packet).value();
  EXPECT_EQ(read.request, 7U);
  EXPECT_EQ(read.rank, -1);
  EXPECT_EQ(read.code, Code::kAlreadyExists);
  EXPECT_EQ(read.key, "key");
  EXPECT_EQ(read.value, message.value);
  for (size_t length = 0; length < packet.size(); ++length) {
    EXPECT_FALSE(decode_agent_message(BytesView(packet).first(length)).ok()) << length;
  }
  // kind, version, code, reserved, key length, value length
  for (const auto& [at, value] : std::vector<std::pair<size_t, uint8_t>>{
           {0, 0}, {0, 12}, {1, 1}, {2, 17}, {3, 1}, {12, 4}, {17, 255}}) {
    Bytes changed = packet;
    changed[at] = std::byte{value};
    EXPECT_FALSE(decode_agent_message(changed).ok()) << "byte " << at;
  }
}

}  // namespace
}  // namespace corro::wire
