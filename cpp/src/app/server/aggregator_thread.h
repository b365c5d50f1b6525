// AggregatorThread: collective/aggregator.h in a thread of its own, so that sums and rows do not
// wait for each other.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/guarded.h"
#include "base/status.h"
#include "io/event.h"
#include "io/fd.h"

namespace corro::app {

/// Thread-safe, but for its end: that of the thread, which closes all connections.
class AggregatorThread {
 public:
  [[nodiscard]] static Result<std::unique_ptr<AggregatorThread>> start();
  ~AggregatorThread();
  AggregatorThread(const AggregatorThread&) = delete;
  AggregatorThread& operator=(const AggregatorThread&) = delete;

  /// A rank's connection, whose handshake is over. Does not block.
  void admit(int32_t rank, io::Fd connection);

 private:
  using Admitted = std::vector<std::pair<int32_t, io::Fd>>;

  AggregatorThread(io::EventFd bell, io::Epoll ready)
      : bell_(std::move(bell)), ready_(std::move(ready)) {}
  void run();

  io::EventFd bell_;
  io::Epoll ready_;  ///< The thread's.
  Guarded<Admitted> admitted_;
  std::atomic<bool> ends_{false};
  std::thread thread_;
};

}  // namespace corro::app
