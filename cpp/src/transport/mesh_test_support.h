// What the tests of the mesh have in common: a store in this process, settings, and ranks that
// talk.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "io/socket.h"
#include "transport/connector.h"
#include "transport/mesh.h"
#include "wire/memory_store.h"
#include "wire/peer_record.h"

namespace corro::transport {

inline constexpr std::string_view kJob = "job";

inline Time soon() { return monotonic_now() + std::chrono::seconds(60); }

/// A store in this process; every rank (a thread) joins it.
class Meeting {
 public:
  /// `before_get` runs before each look for a key; it may block.
  wire::StoreBootstrap join(std::function<void()> before_get = [] {}) {
    return wire::StoreBootstrap(store_.callbacks(std::move(before_get)));
  }

 private:
  wire::MemoryStore store_;
};

/// How the ranks of a test are spread and connected.
struct Setting {
  std::string name = {};
  LocalTransport local = LocalTransport::kShm;
  std::string listen_address = "127.0.0.1";
  int32_t hosts = 1;
};

inline MeshOptions options_for(int32_t rank, int32_t size, const Setting& setting,
                               wire::Bootstrap& store, const std::optional<wire::Secret>& secret) {
  return {.rank = rank,
          .size = size,
          .job = std::string(kJob),
          .bootstrap = &store,
          .secret = secret,
          .local = setting.local,
          .listen_address = setting.listen_address,
          .host_id = fmt::format("host-{}", rank % setting.hosts),
          .settings = {},
          .deadline = soon(),
          .shared_descriptors = {}};
}

/// What a rank of such a job has put into the store.
inline Bytes record_of(int32_t size, std::string host_id, std::string_view settings = {},
                       std::string unix_name = {}) {
  return wire::encode_peer_record({.pid = getpid(),
                                   .host_id = std::move(host_id),
                                   .unix_name = std::move(unix_name),
                                   .settings = fmt::format("ranks={} {}", size, settings)});
}

inline Moved write_some(Stream& stream, std::span<std::byte> bytes) {
  const iovec piece{bytes.data(), bytes.size()};
  return stream.write(std::span(&piece, 1));
}

/// Reads exactly one byte; streams never block, so it looks again until there is one.
inline std::byte read_byte(Stream& stream) {
  std::byte byte{0xFF};
  const iovec piece{&byte, 1};
  const Time deadline = soon();
  while (monotonic_now() < deadline) {
    const Moved moved = stream.read(std::span(&piece, 1));
    if (moved.bytes == 1 || moved.closed) return byte;
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  return std::byte{0xFE};
}

/// Streams to all others, by rank. Both ranks of each pair dial.
inline std::vector<std::unique_ptr<Stream>> streams_to_all(MeshResult& mesh, int32_t rank) {
  std::vector<std::unique_ptr<Stream>> streams(mesh.peers.size());
  size_t missing = streams.size() - 1;
  for (size_t r = 0; r < streams.size() && missing > 0; ++r) {
    if (static_cast<int32_t>(r) != rank)
      mesh.connector->dial(static_cast<int32_t>(r), monotonic_now());
  }
  while (missing > 0) {
    EXPECT_TRUE(io::wait_ready(mesh.connector->poll_fd(), POLLIN, soon()));
    mesh.connector->poll(monotonic_now());
    for (JoinedPeer& joined : mesh.connector->take_joined()) {
      auto& stream = streams[static_cast<size_t>(joined.rank)];
      EXPECT_EQ(stream, nullptr) << "a second stream of ranks " << rank << " and " << joined.rank;
      stream = std::move(joined.stream);
      --missing;
    }
  }
  return streams;
}

/// Sends this rank's number to everybody and reads theirs.
inline void expect_talking(MeshResult& mesh, int32_t rank) {
  const auto streams = streams_to_all(mesh, rank);
  for (const auto& stream : streams) {
    if (stream == nullptr) continue;
    std::byte mine{static_cast<uint8_t>(rank)};
    ASSERT_EQ(write_some(*stream, std::span(&mine, 1)).bytes, 1U) << stream->describe();
  }
  for (size_t r = 0; r < streams.size(); ++r) {
    if (streams[r] == nullptr) continue;
    EXPECT_EQ(read_byte(*streams[r]), std::byte{static_cast<uint8_t>(r)});
  }
}

}  // namespace corro::transport
