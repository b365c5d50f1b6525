#include "launch/control_socket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <optional>
#include <thread>

#include "io/socket.h"

namespace corro::launch {
namespace {

constexpr Duration kPatience = std::chrono::seconds(60);

std::string unique_id() { return "test-" + std::to_string(getpid()); }

RunningJob own_job() {
  const auto jobs = find_jobs();
  const auto found = std::ranges::find(jobs, getpid(), &RunningJob::launcher);
  EXPECT_NE(found, jobs.end());
  return found == jobs.end() ? RunningJob{} : *found;
}

TEST(ControlSocket, AnswersAllWhoAskWithAnyLength) {
  auto control = ControlSocket::create(unique_id()).value();
  const RunningJob job = own_job();
  EXPECT_EQ(job.id, unique_id());
  EXPECT_NE(job.command.find("launch_test"), std::string::npos);
  const std::string text(size_t{3} << 20U, 'x');  // More than a socket keeps.
  std::array<std::string, 2> heard;
  std::vector<std::jthread> commands;
  std::atomic<int> done = 0;
  for (std::string& one : heard) {
    commands.emplace_back([&] {
      one = ask(job, Question::kStacks, kPatience).value();
      ++done;
    });
  }
  while (done < 2) {
    const Time soon = monotonic_now() + std::chrono::milliseconds(5);
    (void)io::wait_ready(control->poll_fd(), POLLIN, soon);
    control->poll();
    if (control->asked(Question::kStacks)) control->answer(Question::kStacks, text);
  }
  commands.clear();
  EXPECT_EQ(heard[0].size(), text.size());
  EXPECT_EQ(heard[1].size(), text.size());
}

/// What has come for the question, asked of a job in this process.
std::string heard(Inquiry& inquiry) { return inquiry.wait(monotonic_now() + kPatience).value(); }

TEST(ControlSocket, EachQuestionHasItsOwnAnswer) {
  auto control = ControlSocket::create(unique_id()).value();
  Inquiry end = Inquiry::create(own_job(), Question::kEnd).value();
  Inquiry picture = Inquiry::create(own_job(), Question::kPicture).value();
  control->poll();  // Accepts,
  control->poll();  // and reads.
  EXPECT_FALSE(control->asked(Question::kStacks));
  ASSERT_TRUE(control->asked(Question::kPicture));
  control->answer(Question::kPicture, "as it is");
  EXPECT_EQ(heard(picture), "as it is");
  EXPECT_FALSE(control->asked(Question::kPicture));
  EXPECT_EQ(end.read().value(), "") << "the job goes on";
  ASSERT_TRUE(control->asked(Question::kEnd));
  control->answer(Question::kEnd, "as it was");
  EXPECT_EQ(heard(end), "as it was");
}

TEST(ControlSocket, SaysWhetherAllOfAnAnswerIsTaken) {
  auto control = ControlSocket::create(unique_id()).value();
  Inquiry end = Inquiry::create(own_job(), Question::kEnd).value();
  control->poll();
  control->poll();
  EXPECT_FALSE(control->is_answering());
  const std::string text(size_t{3} << 20U, 'x');  // More than a socket keeps.
  control->answer(Question::kEnd, text);
  EXPECT_TRUE(control->is_answering());
  std::string taken;
  while (taken.empty()) {
    control->poll();
    taken = end.read().value();
  }
  EXPECT_EQ(taken.size(), text.size());
  EXPECT_FALSE(control->is_answering());
}

/// Sends packets one after another; none is answered before all are read.
io::Fd connected_after(ControlSocket& control, std::initializer_list<std::string_view> packets) {
  auto socket = io::connect_abstract(own_job().socket).value();
  control.poll();  // Accepts,
  for (const std::string_view packet : packets) {
    EXPECT_TRUE(io::send_message(socket.get(), std::as_bytes(std::span(packet))).ok());
    control.poll();  // and reads.
  }
  return socket;
}

TEST(ControlSocket, KnowsTheMostStepsThatSomebodyWants) {
  auto control = ControlSocket::create(unique_id()).value();
  EXPECT_EQ(control->steps(), 0U);
  const io::Fd one = connected_after(*control, {"trace 3"});
  const io::Fd other = connected_after(*control, {"trace 2"});
  EXPECT_TRUE(control->asked(Question::kTrace));
  EXPECT_EQ(control->steps(), 3U);
  control->answer(Question::kTrace, "{}");
  EXPECT_EQ(control->steps(), 0U);
}

TEST(ControlSocket, WhatItDoesNotKnowEndsTheConnection) {
  auto control = ControlSocket::create(unique_id()).value();
  for (const auto& packets :
       std::initializer_list<std::initializer_list<std::string_view>>{{"nonsense"},
                                                                      {"stack"},
                                                                      {"stacks\n"},
                                                                      {"stacks 1"},
                                                                      {"pictures"},
                                                                      {"end", "end"},
                                                                      {"trace"},
                                                                      {"trace "},
                                                                      {"trace -1"},
                                                                      {"trace 01"},
                                                                      {"trace 4294967296"}}) {
    const io::Fd socket = connected_after(*control, packets);
    for (const Question question :
         {Question::kStacks, Question::kPicture, Question::kEnd, Question::kTrace, Question::kPage})
      EXPECT_FALSE(control->asked(question));
    EXPECT_EQ(control->next_change(), std::nullopt);
    std::array<std::byte, 16> packet{};
    EXPECT_TRUE(io::receive_message(socket.get(), packet).closed);
  }
}

TEST(ControlSocket, WhatIsRefusedIsAFailure) {
  auto control = ControlSocket::create(unique_id()).value();
  const RunningJob job = own_job();
  std::optional<Result<std::string>> answer;
  std::jthread asker([&] { answer = ask(job, Question::kPage, kPatience); });
  ASSERT_TRUE(io::wait_ready(control->poll_fd(), POLLIN, monotonic_now() + kPatience));
  while (!control->asked(Question::kPage)) control->poll();
  control->answer(Question::kPage, refused("the job is over"));
  asker.join();
  EXPECT_EQ(answer->status().code(), Code::kFailedPrecondition);
  EXPECT_EQ(answer->status().message(), "the job is over");
}

TEST(ControlSocket, AChangeOfServersIsAnsweredToWhoHasAskedForIt) {
  auto control = ControlSocket::create(unique_id()).value();
  Inquiry more = Inquiry::create(own_job(), ServerChange{.number = 2}).value();
  Inquiry fewer = Inquiry::create(own_job(), ServerChange{.number = 1, .leaves = true}).value();
  int answered = 0;
  while (answered < 2) {
    control->poll();
    while (const auto asked = control->next_change()) {
      control->answer_change(asked->first, asked->second.leaves ? "it leaves" : "they are started");
      EXPECT_EQ(asked->second.number, asked->second.leaves ? 1U : 2U);
      ++answered;
    }
  }
  EXPECT_EQ(heard(more), "they are started");
  EXPECT_EQ(heard(fewer), "it leaves");
}

TEST(ControlSocket, AJobThatDoesNotKnowTheQuestionHasNotEnded) {
  const std::string name = fmt::format("corro-control-{}-{}-old", geteuid(), getpid());
  const io::Fd listener = io::listen_abstract(name).value();
  Inquiry inquiry = Inquiry::create({.socket = name, .id = "old"}, Question::kPicture).value();
  io::accept_connection(listener.get()).value().reset();  // As an older launcher does.
  const Status why = inquiry.wait(monotonic_now() + kPatience).status();
  EXPECT_EQ(why.code(), Code::kFailedPrecondition);
  EXPECT_NE(why.message().find("another version of corro"), std::string::npos) << why.message();
}

TEST(ControlSocket, OneWhoHasHungUpIsForgotten) {
  auto control = ControlSocket::create(unique_id()).value();
  {
    const auto socket = io::connect_abstract(own_job().socket);
    ASSERT_TRUE(io::send_message(socket->get(), std::as_bytes(std::span("stacks").first(6))).ok());
    control->poll();
    control->poll();
    EXPECT_TRUE(control->asked(Question::kStacks));
  }
  control->poll();
  EXPECT_FALSE(control->asked(Question::kStacks));
  control->answer(Question::kStacks, "nobody listens");
}

TEST(ControlSocket, AJobThatHasEndedIsNotFound) {
  RunningJob job;
  {
    auto control = ControlSocket::create(unique_id()).value();
    job = own_job();
  }
  EXPECT_EQ(ask(job, Question::kStacks, kPatience).status().code(), Code::kUnavailable);
  EXPECT_TRUE(std::ranges::none_of(find_jobs(),
                                   [](const RunningJob& one) { return one.launcher == getpid(); }));
}

/// What another user can do: a socket with the name of one of ours.
void pose_as(const std::string& name, int told, int until) {
  (void)!setuid(65534);
  const auto socket = io::listen_abstract(name);
  (void)!write(told, socket.ok() ? "1" : "0", 1);
  char byte = 0;
  (void)!read(until, &byte, 1);
  _exit(0);
}

TEST(ControlSocket, ThatOfAnotherUserIsNoJobOfOurs) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  int told[2], until[2];
  ASSERT_EQ(pipe(told) + pipe(until), 0);
  const pid_t other = fork();
  if (other == 0) {
    close(until[1]);
    pose_as(fmt::format("corro-control-0-{}-posed", getppid()), told[1], until[0]);
  }
  char bound = 0;
  ASSERT_EQ(read(told[0], &bound, 1), 1);
  EXPECT_EQ(bound, '1');
  EXPECT_TRUE(
      std::ranges::none_of(find_jobs(), [](const RunningJob& one) { return one.id == "posed"; }));
  for (const int fd : {told[0], told[1], until[0], until[1]}) close(fd);
  EXPECT_EQ(waitpid(other, nullptr, 0), other);
}

}  // namespace
}  // namespace corro::launch
