#include "launch/control_socket.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
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
      one = ask_stacks(job, kPatience).value();
      ++done;
    });
  }
  while (done < 2) {
    const Time soon = monotonic_now() + std::chrono::milliseconds(5);
    (void)io::wait_ready(control->poll_fd(), POLLIN, soon);
    control->poll();
    if (control->asked()) control->answer(text);
  }
  commands.clear();
  EXPECT_EQ(heard[0].size(), text.size());
  EXPECT_EQ(heard[1].size(), text.size());
}

TEST(ControlSocket, WhatItDoesNotKnowEndsTheConnection) {
  auto control = ControlSocket::create(unique_id()).value();
  const auto socket = io::connect_abstract(own_job().socket);
  ASSERT_TRUE(socket.ok());
  ASSERT_TRUE(io::send_message(socket->get(), std::as_bytes(std::span("nonsense"))).ok());
  control->poll();  // Accepts,
  control->poll();  // and reads.
  EXPECT_FALSE(control->asked());
  std::array<std::byte, 16> packet{};
  EXPECT_TRUE(io::receive_message(socket->get(), packet).closed);
}

TEST(ControlSocket, OneWhoHasHungUpIsForgotten) {
  auto control = ControlSocket::create(unique_id()).value();
  {
    const auto socket = io::connect_abstract(own_job().socket);
    ASSERT_TRUE(io::send_message(socket->get(), std::as_bytes(std::span("stacks").first(6))).ok());
    control->poll();
    control->poll();
    EXPECT_TRUE(control->asked());
  }
  control->poll();
  EXPECT_FALSE(control->asked());
  control->answer("nobody listens");
}

TEST(ControlSocket, AJobThatHasEndedIsNotFound) {
  RunningJob job;
  {
    auto control = ControlSocket::create(unique_id()).value();
    job = own_job();
  }
  EXPECT_EQ(ask_stacks(job, kPatience).status().code(), Code::kUnavailable);
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
