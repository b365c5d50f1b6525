// Doorbell: wakes a peer process that sleeps, and costs one load while it does not.
#pragma once

#include <atomic>
#include <cstdint>

#include "io/event.h"

namespace corro::transport {

/// Held by the one who rings. The sleeper sets its word (sequentially consistent) before it looks
/// for news one last time and then sleeps on its eventfd; the ringer publishes (sequentially
/// consistent) before it looks at the word. So either the sleeper sees the news or the ringer sees
/// the word. Loop-confined.
class Doorbell {
 public:
  /// Rings nobody.
  Doorbell() = default;
  /// `sleeping` (not 0: rings are wanted; in memory shared with the peer) and `event_fd` are
  /// borrowed.
  Doorbell(const std::atomic<uint32_t>* sleeping, int event_fd)
      : sleeping_(sleeping), event_fd_(event_fd) {}

  /// Call after a sequentially consistent store of what the peer may wait for.
  void ring_if_sleeping() {
    if (sleeping_ == nullptr || sleeping_->load(std::memory_order_seq_cst) == 0) return;
    io::EventFd::ring(event_fd_);
    ++rings_;
  }
  /// How often the peer slept and was rung.
  [[nodiscard]] uint64_t rings() const { return rings_; }

 private:
  const std::atomic<uint32_t>* sleeping_ = nullptr;
  int event_fd_ = -1;
  uint64_t rings_ = 0;
};

}  // namespace corro::transport
