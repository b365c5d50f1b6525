// ShmStream: a Stream through memory that two processes of one host share. Two byte rings, one for
// each direction.
//
// Most pairs exchange small messages now and then, so a ring starts *small*: only its first 32 KiB
// are committed. While the ring is small, bytes never wrap around. The writer starts again at the
// ring's first byte whenever it reaches the end and the reader has read everything: it stores the
// stream's position there as `base`. If the reader is behind, or the message is larger, the writer
// commits the whole ring, for good: the ring is *grown* then. If the machine has no memory for
// that, the ring stays small and the writer waits for the reader. `base` changes only while the
// ring is empty, before `written` is published: a reader that sees new bytes sees their base.
//
//   CORRO_ASSIGN(ShmCreated mine, ShmStream::create({}, "rank 3 (pid 4711)"));
//   ... mine.fd goes to the peer, which calls:
//   CORRO_ASSIGN(auto stream, ShmStream::attach(std::move(fd), "rank 2"));
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "io/fd.h"
#include "io/memory.h"
#include "transport/doorbell.h"
#include "transport/stream.h"

namespace corro::transport {

struct ShmOptions {
  size_t ring_bytes = 1U << 20U;  ///< Of each direction; a power of two from 4 KiB to 1 GiB.
};

/// One direction's words in shared memory. Positions count bytes since the start; each is written
/// by one side alone.
struct ShmRing {
  alignas(64) std::atomic<uint64_t> written;
  std::atomic<uint64_t> base;  ///< The position that is at the ring's first byte.
  alignas(64) std::atomic<uint64_t> read;
  /// The writer found the ring full; the reader clears it when it makes room and rings.
  alignas(64) std::atomic<uint32_t> writer_waits;
};
static_assert(offsetof(ShmRing, written) == 0 && offsetof(ShmRing, base) == 8 &&
              offsetof(ShmRing, read) == 64 && offsetof(ShmRing, writer_waits) == 128 &&
              sizeof(ShmRing) == 192);

/// The start of the memory; the rings' bytes follow. Byte tables: docs/wire.md.
struct ShmHeader {
  uint64_t magic;
  uint64_t ring_bytes;
  alignas(64) std::atomic<uint32_t> closed[2];  ///< By side.
  ShmRing rings[2];                             ///< By the side that writes.
};
static_assert(offsetof(ShmHeader, magic) == 0 && offsetof(ShmHeader, ring_bytes) == 8 &&
              offsetof(ShmHeader, closed) == 64 && offsetof(ShmHeader, rings) == 128 &&
              sizeof(ShmHeader) == 512);

/// The memory of a stream. The descriptor is for committing more of it.
struct ShmMemory {
  io::Fd fd;
  io::Mapping mapping;
};

struct ShmCreated;

/// Loop-confined, one side each. The peer's words are foreign data: positions that cannot be close
/// the stream. A peer that was killed leaves the memory as it is; who learns of it calls close().
class ShmStream final : public Stream {
 public:
  /// Makes the memory, with small rings, and side 0. RESOURCE_EXHAUSTED if the machine has no room.
  static Result<ShmCreated> create(const ShmOptions& options, std::string peer);
  /// Side 1 of memory that a peer made.
  static Result<std::unique_ptr<ShmStream>> attach(io::Fd fd, std::string peer);
  /// Use create() and attach(). The memory is shared with the other side where both are in one
  /// process.
  ShmStream(std::shared_ptr<ShmMemory> memory, size_t ring_bytes, int side, std::string peer);
  ~ShmStream() override { close(); }

  Moved write(std::span<const iovec> pieces) override;
  Moved read(std::span<const iovec> pieces) override;
  [[nodiscard]] int poll_fd() const override { return -1; }
  void set_doorbell(const Doorbell& bell) override { bell_ = bell; }
  void close() override;
  [[nodiscard]] std::string describe() const override;
  void close_in_child() override { memory_->fd.reset(); }
  [[nodiscard]] const Doorbell& doorbell() const { return bell_; }
  /// Bytes of the two rings that this side knows to be committed.
  [[nodiscard]] size_t committed() const { return out_usable_ + in_usable_; }

 private:
  [[nodiscard]] ShmHeader& header() const;
  [[nodiscard]] std::byte* bytes_of(int writer) const;
  [[nodiscard]] Status commit_ring(int writer) const;
  [[nodiscard]] size_t room() const;
  bool make_room();
  bool see_room(size_t wanted);
  bool wait_for_room(size_t wanted);
  bool see_data();
  bool may_read(size_t count);
  void publish_written();
  void publish_read();
  void broken(const char* what, uint64_t value);

  const std::shared_ptr<ShmMemory> memory_;
  const size_t ring_bytes_;
  const int side_;
  const std::string peer_;
  ShmRing& out_;
  ShmRing& in_;
  std::byte* const out_bytes_;
  std::byte* const in_bytes_;
  Doorbell bell_;

  // Own positions are kept here and never read back: the peer could have changed the words.
  uint64_t written_ = 0;
  uint64_t read_ = 0;
  uint64_t base_ = 0;  ///< Of what this side writes.
  // The peer's positions as seen last.
  uint64_t peer_read_ = 0;
  uint64_t peer_written_ = 0;
  uint64_t peer_base_ = 0;
  // How much of each ring is committed: its first part, or all of it.
  size_t out_usable_;
  size_t in_usable_;
  bool may_grow_ = true;  ///< Until the machine had no memory for it.
  bool closed_ = false;
  std::string reason_;
};

struct ShmCreated {
  int fd;  ///< To pass to the peer; the stream's.
  std::unique_ptr<ShmStream> stream;
};

struct ShmPair {
  std::unique_ptr<ShmStream> first;
  std::unique_ptr<ShmStream> second;
};
/// Both sides in this process, on one mapping, so that the thread sanitizer sees what they share.
/// For tests.
[[nodiscard]] Result<ShmPair> make_shm_pair(const ShmOptions& options = {});

}  // namespace corro::transport
