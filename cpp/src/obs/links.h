// Links: how many bytes of messages this process has sent to each peer, in the flight recorder's
// memory. What comes from a peer, the peer counts.
//
//   const Link link = recorder->links().open(/*peer=*/3);
//   link.add(4096);
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace corro::obs {

/// The last one has what went to all peers that came later.
inline constexpr size_t kMostLinks = 128;
inline constexpr int32_t kOtherPeers = -1;

struct FlightLinks;  // flight_layout.h

/// As read back.
struct LinkTraffic {
  int32_t peer = kOtherPeers;  ///< A rank of the engine's world.
  uint64_t sent = 0;           ///< Bytes.
  bool operator==(const LinkTraffic&) const = default;
};

/// Counts what goes to a peer; copies count the same. One writer at a time, as Metrics. Never blocks
/// or allocates.
class Link {
 public:
  /// Counts nothing.
  Link() = default;
  explicit Link(std::shared_ptr<std::atomic<uint64_t>> sent) : sent_(std::move(sent)) {}

  void add(uint64_t bytes) const {
    if (sent_ == nullptr) return;
    sent_->store(sent_->load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
  }

 private:
  std::shared_ptr<std::atomic<uint64_t>> sent_;
};

/// One caller at a time.
class Links {
 public:
  /// Its links count nothing.
  Links() = default;
  explicit Links(std::shared_ptr<FlightLinks> cells) : cells_(std::move(cells)) {}

  /// The link to this peer, which may have been opened before. `peer`: at least 0.
  [[nodiscard]] Link open(int32_t peer) const;

 private:
  std::shared_ptr<FlightLinks> cells_;  ///< Of the recorder's memory.
};

}  // namespace corro::obs
