// For tests: an agent's socket that is served as an agent would.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "io/event.h"
#include "wire/agent_bootstrap.h"
#include "wire/agent_service.h"

namespace corro::wire {

inline Time soon() { return monotonic_now() + std::chrono::seconds(60); }

/// An agent whose service is polled by a thread, as the launcher's loop would.
class RunningAgent {
 public:
  explicit RunningAgent(int32_t size = 8, size_t max_store_bytes = 1U << 20U, int32_t servers = 0) {
    AgentService::Options options{.job = "job-1",
                                  .secret = random_secret(),
                                  .size = size,
                                  .servers = servers,
                                  .name = {},
                                  .on_hello = {},
                                  .max_store_bytes = max_store_bytes};
    secret_ = options.secret;
    options.on_hello = [this](WorkerHello hello) { hellos_.lock()->push_back(std::move(hello)); };
    options.on_notice = [this](WorkerNotice heard) {
      notices_.lock()->push_back(std::move(heard));
    };
    service_ = AgentService::create(std::move(options)).value();
    loop_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  RunningAgent(const RunningAgent&) = delete;
  RunningAgent& operator=(const RunningAgent&) = delete;
  ~RunningAgent() { stop(); }

  /// Ends the agent; afterwards its counters may be read.
  void stop() {
    loop_.request_stop();
    wake_.ring();
    if (loop_.joinable()) loop_.join();
  }
  /// As the launcher does when a process has ended.
  void end_rank(int32_t rank) {
    ended_ = rank;
    wake_.ring();
    ended_.wait(rank);
  }
  [[nodiscard]] AgentService& service() { return *service_; }
  [[nodiscard]] const Secret& secret() const { return secret_; }
  [[nodiscard]] auto& hellos() { return hellos_; }
  [[nodiscard]] auto& notices() { return notices_; }

  Result<std::unique_ptr<AgentBootstrap>> connect(int32_t rank,
                                                  std::span<const int> descriptors = {}) {
    return AgentBootstrap::connect(
        {.name = service_->name(), .rank = rank, .descriptors = descriptors, .deadline = soon()});
  }

 private:
  void run(const std::stop_token& stop) {
    io::Epoll epoll = io::Epoll::create().value();
    ASSERT_TRUE(epoll.add(service_->poll_fd(), EPOLLIN, 1).ok());
    ASSERT_TRUE(epoll.add(wake_.fd(), EPOLLIN, 2).ok());
    std::array<epoll_event, 4> events{};
    while (!stop.stop_requested()) {
      ASSERT_TRUE(epoll.wait(events, Duration(-1)).ok());
      ASSERT_TRUE(service_->poll().ok());
      if (ended_ < 0) continue;
      wake_.drain();
      service_->end_rank(ended_, "node2");
      ended_ = -1;
      ended_.notify_all();
    }
  }

  Secret secret_{};
  Guarded<std::vector<WorkerHello>> hellos_;
  Guarded<std::vector<WorkerNotice>> notices_;
  io::EventFd wake_ = io::EventFd::create().value();
  std::atomic<int32_t> ended_ = -1;  ///< A rank that the loop is to hear of.
  std::unique_ptr<AgentService> service_;
  std::jthread loop_;
};

}  // namespace corro::wire
