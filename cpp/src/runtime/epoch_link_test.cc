// A worker's link and its agent's service, over a real socket.
#include "runtime/epoch_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <thread>

#include "collective/board/segment.h"
#include "io/socket.h"
#include "runtime/driver.h"
#include "wire/agent_service.h"

namespace corro::runtime {
namespace {

using testing::HasSubstr;

const std::string kMember(32, 'a');

Time soon() { return monotonic_now() + std::chrono::seconds(60); }

/// An agent of one worker.
class Agent {
 public:
  Agent() {
    wire::AgentService::Options options{.job = "job", .size = 3, .name = {}, .on_hello = {}};
    options.on_ready = [this](const wire::WorkerReady& ready) { ready_.push_back(ready); };
    options.on_leave = [this](const std::string& member) { leaving_.push_back(member); };
    service_ = wire::AgentService::create(std::move(options)).value();
  }

  [[nodiscard]] std::shared_ptr<EpochLink> follow(const std::string& member = kMember,
                                                  bool joins = false) {
    auto link = EpochLink::connect(service_->name(), member, joins).value();
    poll();
    return link;
  }
  /// Handles what the worker says next.
  void poll() {
    ASSERT_TRUE(io::wait_ready(service_->poll_fd(), POLLIN, soon()));
    ASSERT_TRUE(service_->poll().ok());
    ASSERT_TRUE(service_->poll().ok());  // Of a connection that was taken just now.
  }
  [[nodiscard]] wire::AgentService& service() { return *service_; }
  [[nodiscard]] const std::vector<wire::WorkerReady>& ready() const { return ready_; }
  [[nodiscard]] const std::vector<std::string>& leaving() const { return leaving_; }
  void end() { service_.reset(); }

 private:
  std::unique_ptr<wire::AgentService> service_;
  std::vector<wire::WorkerReady> ready_;
  std::vector<std::string> leaving_;
};

TEST(EpochLink, LeavesWhenAnEpochIsPreparedAndGoesOnWhenItBegins) {
  Agent agent;
  const auto link = agent.follow();
  EXPECT_EQ(link->prepared(), 0U);
  auto next = std::async(std::launch::async, [&] { return link->next({.steps = 42}, soon(), {}); });
  agent.service().prepare(kMember, 1, true, "rank 1 was killed");
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 1U);
  EXPECT_EQ(agent.ready()[0].member, kMember);
  EXPECT_EQ(agent.ready()[0].epoch, 1U);
  EXPECT_EQ(agent.ready()[0].steps, 42U);
  agent.service().start_epoch(2);
  agent.service().commit(kMember, 1, 1);
  const Result<EpochPlace> place = next.get();
  ASSERT_TRUE(place.ok()) << place.status().message();
  EXPECT_EQ(place->epoch, 1U);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->size, 2);
  EXPECT_EQ(link->why(), "rank 1 was killed");
  EXPECT_EQ(link->epoch(), 1U);
}

TEST(EpochLink, OneThatHasLostARankSaysSoBeforeAnEpochIsPrepared) {
  Agent agent;
  const auto link = agent.follow();
  auto next = std::async(std::launch::async,
                         [&] { return link->next({.steps = 9, .lost = 2}, soon(), {}); });
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 1U);
  EXPECT_EQ(agent.ready()[0].epoch, 0U);
  EXPECT_EQ(agent.ready()[0].steps, 9U);
  EXPECT_EQ(agent.ready()[0].lost, 2);
  agent.service().prepare(kMember, 1, true, "rank 2 was lost");
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 2U);
  EXPECT_EQ(agent.ready()[1].epoch, 1U);
  agent.service().commit(kMember, 1, 1);
  EXPECT_EQ(next.get()->epoch, 1U);
}

TEST(EpochLink, AnswersForANewerEpochThatComesMeanwhile) {
  Agent agent;
  const auto link = agent.follow();
  auto next = std::async(std::launch::async, [&] { return link->next({.steps = 7}, soon(), {}); });
  agent.service().prepare(kMember, 1, true, "one");
  agent.poll();
  agent.service().prepare(kMember, 2, true, "two");
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 2U);
  EXPECT_EQ(agent.ready()[1].epoch, 2U);
  agent.service().commit(kMember, 2, 0);
  EXPECT_EQ(next.get()->epoch, 2U);
}

TEST(EpochLink, AnEpochThatHasBegunAndIsOverIsNotJoined) {
  Agent agent;
  const auto link = agent.follow();
  agent.service().prepare(kMember, 1, true, "one");
  agent.service().commit(kMember, 1, 0);
  agent.service().prepare(kMember, 2, true, "two");
  auto next = std::async(std::launch::async, [&] { return link->next({.steps = 7}, soon(), {}); });
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 1U);
  EXPECT_EQ(agent.ready()[0].epoch, 2U);
  agent.service().commit(kMember, 2, 0);
  EXPECT_EQ(next.get()->epoch, 2U);
}

TEST(EpochLink, AnEpochThatHasBegunIsJoinedWhateverIsPlannedAfterIt) {
  Agent agent;
  const auto link = agent.follow();
  agent.service().prepare(kMember, 1, true, "one");
  agent.service().commit(kMember, 1, 0);
  agent.service().prepare(kMember, 2, false, "a rank joins");
  EXPECT_EQ(link->next({.steps = 7}, soon(), {})->epoch, 1U) << "the others wait for it there";
  EXPECT_EQ(link->prepared(), 2U);
  EXPECT_EQ(link->broken_off(), 1U);
}

TEST(EpochLink, OneThatJoinsSaysSoAndWaitsForAnyEpoch) {
  Agent agent;
  const auto link = agent.follow(kMember, /*joins=*/true);
  auto next = std::async(std::launch::async, [&] { return link->next({.steps = 0}, soon(), {}); });
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 1U);
  EXPECT_EQ(agent.ready()[0].epoch, 0U);
  agent.service().prepare(kMember, 4, false, "a rank joins");
  agent.poll();
  ASSERT_EQ(agent.ready().size(), 2U) << "it says that once";
  EXPECT_EQ(agent.ready()[1].epoch, 4U);
  agent.service().commit(kMember, 4, 2);
  EXPECT_EQ(next.get()->rank, 2);
}

TEST(EpochLink, OneThatIsAskedToEndSaysSoAndHearsThatAnEpochIsTheLastOne) {
  Agent agent;
  const auto link = agent.follow();
  ASSERT_TRUE(link->leave().ok());
  agent.poll();
  EXPECT_EQ(agent.leaving(), std::vector<std::string>{kMember});
  auto next = std::async(std::launch::async, [&] { return link->next({.steps = 7}, soon(), {}); });
  agent.service().prepare(kMember, 1, false, "rank 0 was asked to end");
  agent.poll();
  agent.service().commit(kMember, 1, 0, /*last=*/true);
  EXPECT_TRUE(next.get()->last);
}

TEST(EpochLink, OneThatIsAskedToEndWhenNoEpochComesAnyMoreKnows) {
  Agent agent;
  const auto link = agent.follow();
  agent.service().end_epochs();
  EXPECT_EQ(link->leave().code(), Code::kUnavailable);
  EXPECT_FALSE(link->poll());
  const auto late = agent.follow("another");
  EXPECT_FALSE(late->poll());
}

TEST(EpochLink, HearsLateWhatItHasMissed) {
  Agent agent;
  agent.service().prepare(kMember, 3, true, "early");
  const auto link = agent.follow();
  const auto other = agent.follow("another");
  EXPECT_TRUE(link->poll());
  EXPECT_EQ(link->prepared(), 3U);
  EXPECT_TRUE(other->poll());
  EXPECT_EQ(other->prepared(), 0U);
}

TEST(EpochLink, EndsItsWaitAtTheDeadlineWhenInterruptedAndWithTheAgent) {
  Agent agent;
  const auto link = agent.follow();
  EXPECT_EQ(link->next({.steps = 0}, monotonic_now(), {}).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(link->next({.steps = 0}, soon(), [] { return true; }).status().code(),
            Code::kCancelled);
  agent.end();
  EXPECT_EQ(link->next({.steps = 0}, soon(), {}).status().code(), Code::kUnavailable);
  EXPECT_FALSE(link->poll());
  EXPECT_FALSE(EpochLink::connect("corro-nobody-here", kMember, false).ok());
}

TEST(EpochLink, AnEpochForgetsTheKeysAndRanksOfTheOneBefore) {
  Agent agent;
  agent.service().supply("job/rank/0", Bytes(1));
  agent.service().end_rank(1);
  agent.service().start_epoch(2);
  const auto fd = io::connect_abstract(agent.service().name()).value();
  const auto send = [&](const wire::AgentMessage& message) {
    EXPECT_TRUE(io::send_message(fd.get(), wire::encode_agent_message(message)).value());
    agent.poll();
  };
  send({.kind = wire::AgentMessageKind::kHello, .rank = 1, .key = {}, .value = {}});
  send({.kind = wire::AgentMessageKind::kGet, .key = "job/rank/0", .value = {}});
  send({.kind = wire::AgentMessageKind::kGet, .key = "job/rank/1", .value = {}});
  std::array<std::byte, wire::kMaxAgentMessage> packet;
  EXPECT_FALSE(io::receive_message(fd.get(), packet).would_block) << "WELCOME";
  EXPECT_TRUE(io::receive_message(fd.get(), packet).would_block) << "both keys are waited for";
}

/// A driver of one rank that hears of epochs.
std::unique_ptr<Driver> driver_with(std::shared_ptr<EpochLink> link) {
  DriverOptions options;
  options.engine.segment = collective::Segment::create(size_t{8} << 20U).value();
  options.engine.peers.push_back(
      {.where = "here", .host = "here", .segment = options.engine.segment, .stream = nullptr});
  options.peer_bells.resize(1);
  options.peer_pids = {0};
  options.doorbell = io::EventFd::create().value();
  options.epochs = std::move(link);
  return Driver::create(std::move(options)).value();
}

/// What a call into the engine ends with.
Status call(Driver& driver) {
  int32_t value = 1;
  collective::OpRequest request;
  request.kind = OpKind::kAllreduce;
  request.dtype = DType::kI32;
  request.count = 1;
  request.input = reinterpret_cast<const std::byte*>(&value);
  request.output = reinterpret_cast<std::byte*>(&value);
  return driver.run(driver.engine().world(), request);
}

TEST(EpochLink, APreparedEpochEndsWhatTheEngineDoes) {
  Agent agent;
  const auto link = agent.follow();
  const auto driver = driver_with(link);
  EXPECT_TRUE(call(*driver).ok());
  agent.service().prepare(kMember, 1, true, "rank 1 was killed");
  Status ended;
  for (const Time until = soon(); ended.ok() && monotonic_now() < until;) ended = call(*driver);
  EXPECT_EQ(ended.code(), Code::kAborted);
  EXPECT_THAT(ended.message(), HasSubstr("the epoch has ended: rank 1 was killed"));
}

TEST(EpochLink, AnEpochThatIsPlannedLeavesTheEngineAlone) {
  Agent agent;
  const auto link = agent.follow();
  const auto driver = driver_with(link);
  agent.service().prepare(kMember, 1, false, "a rank joins");
  for (const Time until = soon(); link->prepared() == 0 && monotonic_now() < until;)
    ASSERT_TRUE(call(*driver).ok());
  EXPECT_EQ(link->prepared(), 1U);
  EXPECT_EQ(link->broken_off(), 0U);
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(call(*driver).ok());
  agent.service().prepare(kMember, 2, true, "the step does not end");
  Status ended;
  for (const Time until = soon(); ended.ok() && monotonic_now() < until;) ended = call(*driver);
  EXPECT_EQ(ended.code(), Code::kAborted);
}

TEST(EpochLink, AnEngineThatIsMadeTooLateIsOverAtOnce) {
  Agent agent;
  const auto link = agent.follow();
  agent.service().prepare(kMember, 1, true, "rank 1 was killed");
  const auto driver = driver_with(link);
  Status ended;
  for (const Time until = soon(); ended.ok() && monotonic_now() < until;) ended = call(*driver);
  EXPECT_EQ(ended.code(), Code::kAborted);
}

}  // namespace
}  // namespace corro::runtime
