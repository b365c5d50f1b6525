// MemoryStream: two ends of a byte pipe inside one thread, with faults to order. For tests and the
// World.
//
//   MemoryPair pair = make_memory_pair({.capacity = 4096, .short_moves = true, .seed = 7});
//   pair.link->toward(1).hold();          // what end 0 writes is on its way ...
//   pair.link->toward(1).release(10);     // ... and 10 bytes of it arrive
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/stream.h"

namespace corro::transport {

struct MemoryOptions {
  size_t capacity = 64U << 10U;  ///< Bytes on their way in each direction.
  bool short_moves = false;      ///< Each read and write moves a random part of what it could.
  uint64_t seed = 0;             ///< Of short_moves.
  /// Virtual time: how long `bytes` written now take to arrive. Empty: no time. Needs `now`.
  std::function<Duration(size_t bytes)> delay = {};
  std::function<Time()> now = {};
};

/// One direction. Loop-confined, as are both streams: everything happens in one thread.
class MemoryPipe {
 public:
  explicit MemoryPipe(const MemoryOptions& options, uint64_t seed);

  /// Nothing more is delivered until release().
  void hold();
  /// Lets `bytes` more be delivered; by default everything, from now on.
  void release(uint64_t bytes = std::numeric_limits<uint64_t>::max());
  /// The connection breaks when `bytes` more have been written in this direction: both ends see
  /// closed with `reason`.
  void break_after(uint64_t bytes, std::string reason);
  /// When the next bytes arrive that are under way; nullopt if none are, or hold() keeps them.
  [[nodiscard]] std::optional<Time> next_delivery() const;
  /// Bytes written and not read.
  [[nodiscard]] uint64_t in_flight() const { return written_ - read_; }

 private:
  friend class MemoryStream;
  struct Arrival {
    uint64_t end;
    Time at;
  };
  size_t write(std::span<const iovec> pieces);
  size_t read(std::span<const iovec> pieces);
  [[nodiscard]] uint64_t deliverable();
  [[nodiscard]] uint64_t part_of(uint64_t bytes);

  const MemoryOptions options_;
  uint64_t random_state_;
  std::vector<std::byte> ring_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  uint64_t released_ = std::numeric_limits<uint64_t>::max();  ///< Position that may be read.
  uint64_t break_at_ = std::numeric_limits<uint64_t>::max();  ///< Position that is never passed.
  std::string break_reason_;
  std::deque<Arrival> arrivals_;  ///< What is under way, when delays are on.
};

/// What both ends and the test share.
class MemoryLink {
 public:
  explicit MemoryLink(const MemoryOptions& options);
  /// The pipe whose bytes end `side` (0 or 1) reads.
  [[nodiscard]] MemoryPipe& toward(int side) { return side == 0 ? to_first_ : to_second_; }
  /// Breaks the connection now.
  void sever(std::string reason);

 private:
  friend class MemoryStream;
  MemoryPipe to_first_;
  MemoryPipe to_second_;
  bool closed_ = false;
  std::string reason_;
};

struct MemoryPair {
  std::unique_ptr<Stream> first;
  std::unique_ptr<Stream> second;
  /// Shared by the two streams and the test, whichever lives longest.
  std::shared_ptr<MemoryLink> link;
};

[[nodiscard]] MemoryPair make_memory_pair(const MemoryOptions& options = {});

}  // namespace corro::transport
