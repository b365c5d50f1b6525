#include "agent/following.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <optional>

#include "agent/surveyor.h"
#include "io/pipe.h"

namespace corro::agent {
namespace {

using std::chrono::seconds;

/// An agent without ranks, and a coordinator that it dials.
class FollowingTest : public testing::Test {
 protected:
  FollowingTest() {
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigprocmask(SIG_BLOCK, &blocked, nullptr);
    EXPECT_TRUE(following_.open("1").ok());
  }

  Commander::Dialling dialling() {
    return {.addresses = {"here"},
            .dial = [this](size_t) -> Result<MessagePipe> {
              int ends[2];
              EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
              there_.emplace(io::Fd(ends[1]));
              return MessagePipe(io::Fd(ends[0]));
            },
            .note = [this](const std::string& line) { notes_.push_back(line); },
            .host = "node1",
            .patience = seconds(60),
            .called = "head",
            .on_give_up = [this](const std::string& why) { given_up_ = why; }};
  }
  void hear(MessageBody body) {
    there_->send({{}, std::move(body)});
    station_.loop.turn(Time{});
  }
  void meet() {
    following_.find(now_);
    hear(Lead{.term = 1});
  }
  /// Starts a process that ends by a signal alone.
  pid_t start_rank() {
    const Subject about{.rank = 0};
    EXPECT_TRUE(station_.course.accepts(about));
    WorkerSpec spec;
    spec.program = "/bin/sleep";
    spec.arguments = {"sleep", "600"};
    const auto pid = station_.ranks.start(spec);
    EXPECT_TRUE(pid.ok()) << pid.status().message();
    station_.course.on_start(about, *pid);
    return *pid;
  }
  void ask_to_end() {
    raise(SIGTERM);
    station_.loop.turn(Time{});
  }
  /// Whether the coordinator is told that there is an agent.
  bool is_greeted() {
    EXPECT_TRUE(there_->read().ok());
    const auto message = there_->take();
    return message && std::holds_alternative<Hello>(message->body);
  }

  const sigset_t mask_{};
  std::vector<std::string> notes_;
  std::string given_up_;
  io::Pipe guard_ = io::make_pipe().value();
  std::optional<MessagePipe> there_;
  Time now_ = monotonic_now();
  Station station_{Commander(dialling()), io::Loop::create().value(), true, mask_,
                   [](size_t, io::Output) {}};
  Surveyor surveyor_{station_.loop, station_.voice()};
  WorkerService workers_{station_, surveyor_, [] {}};
  CourseOrders orders_{station_, workers_};
  RankStreams streams_{station_};
  Following following_{station_, orders_, streams_, std::move(guard_.read)};
};

TEST_F(FollowingTest, WhatACommanderSaysWaitsAndCreditForOutputDoesNot) {
  meet();
  EXPECT_TRUE(is_greeted());
  streams_.renew_credit(kOutputCredit);
  streams_.pause_or_resume();
  ASSERT_TRUE(streams_.paused());
  hear(Look{});
  hear(Credit{.bytes = 1});
  streams_.pause_or_resume();
  EXPECT_FALSE(streams_.paused());
  EXPECT_EQ(following_.due(now_), now_);
  const auto waiting = following_.take();
  ASSERT_TRUE(waiting);
  EXPECT_TRUE(std::holds_alternative<Look>(waiting->body));
  EXPECT_FALSE(following_.take());
  EXPECT_GT(following_.due(now_), now_);
}

TEST_F(FollowingTest, WhatALostCommanderHasSaidIsForgotten) {
  meet();
  hear(Look{});
  there_->close();
  station_.loop.turn(Time{});
  following_.find(now_);
  EXPECT_FALSE(following_.take());
}

TEST_F(FollowingTest, EndsWhenNobodyHasLedForTooLong) {
  following_.find(now_);
  EXPECT_EQ(following_.ends_at(), now_ + seconds(60));
  EXPECT_TRUE(following_.waited_in_vain());
  hear(Lead{.term = 1});
  following_.find(now_ + seconds(1));
  EXPECT_EQ(following_.ends_at(), Time::never());
  there_->close();
  station_.loop.turn(Time{});
  following_.find(now_ + seconds(5));
  EXPECT_EQ(following_.ends_at(), now_ + seconds(65));
}

TEST_F(FollowingTest, SaysSeldomThatNobodyIsReachedAndWhyInTheEnd) {
  const auto reminders = [this] {
    return std::ranges::count_if(notes_, [](const std::string& line) {
      return line.starts_with("cannot reach the head at here: ");
    });
  };
  following_.find(now_);
  there_->close();
  station_.loop.turn(Time{});
  following_.find(now_ + seconds(4));
  EXPECT_EQ(reminders(), 0);
  following_.find(now_ + seconds(5));
  EXPECT_EQ(reminders(), 1);
  following_.find(now_ + seconds(64));
  EXPECT_EQ(reminders(), 1);
  following_.find(now_ + seconds(65));
  EXPECT_EQ(reminders(), 2);
  station_.commander.give_up();
  EXPECT_EQ(given_up_.find("the head at here was never reached for 60 s: "), 0U) << given_up_;
}

TEST_F(FollowingTest, SaysThatItWasAskedToEndAndWaitsForItsCommander) {
  meet();
  following_.find(now_);
  EXPECT_TRUE(is_greeted());
  raise(SIGTERM);
  station_.loop.turn(Time{});
  EXPECT_TRUE(there_->read().ok());
  std::optional<Message> said = there_->take();
  while (said && !std::holds_alternative<Leaving>(said->body)) said = there_->take();
  EXPECT_TRUE(said);
  EXPECT_EQ(following_.ends_at(), Time::never());
  there_->close();
  station_.loop.turn(Time{});
  following_.find(now_);
  EXPECT_EQ(following_.ends_at(), Time{}) << "it has nothing";
  EXPECT_FALSE(following_.waited_in_vain());
}

TEST_F(FollowingTest, EndsTheRanksItselfIfNobodyLeadsWhenItIsAskedToEnd) {
  meet();
  following_.find(now_);
  const pid_t rank = start_rank();
  there_->close();
  station_.loop.turn(Time{});
  following_.find(now_);
  ask_to_end();
  following_.find(now_);
  EXPECT_FALSE(following_.ended_ranks()) << "somebody else may come and lead";
  EXPECT_LE(following_.due(now_), now_ + seconds(10));
  following_.find(now_ + seconds(10));
  EXPECT_TRUE(following_.ended_ranks());
  EXPECT_GT(following_.ends_at(), now_ + seconds(30)) << "the rank may do what it likes";
  int status = 0;
  EXPECT_EQ(waitpid(rank, &status, 0), rank);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM) << status;
  station_.course.on_end(0, false);
  EXPECT_EQ(following_.ends_at(), Time{});
  EXPECT_FALSE(following_.waited_in_vain());
}

TEST_F(FollowingTest, LeavesTheRanksToACommanderThatLives) {
  meet();
  following_.find(now_);
  const pid_t rank = start_rank();
  ask_to_end();
  hear(Look{});
  following_.find(now_ + seconds(4));
  EXPECT_FALSE(following_.ended_ranks());
  following_.find(now_ + seconds(9));
  EXPECT_TRUE(following_.ended_ranks()) << "it says nothing any more";
  EXPECT_EQ(waitpid(rank, nullptr, 0), rank);
}

TEST_F(FollowingTest, EndsWithItsGuardWhoeverLeads) {
  meet();
  following_.find(now_);
  guard_.write.reset();
  station_.loop.turn(Time{});
  EXPECT_EQ(following_.ends_at(), Time{});
  EXPECT_FALSE(following_.waited_in_vain());
}

}  // namespace
}  // namespace corro::agent
