#include "transport/shm_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace corro::transport {
namespace {

constexpr uint64_t kMagic = 0x32'6D'68'73'6F'72'6F'63;  // "coroshm2"
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kMinRingBytes = 4096;
constexpr size_t kMaxRingBytes = 1U << 30U;
/// A long copy is published in parts of this size, so that the peer copies at the same time.
constexpr size_t kPublishBytes = 16U << 10U;
/// Of a ring that is small. At least kPublishBytes: a reader that keeps up never makes it grow.
constexpr size_t kSmallBytes = 32U << 10U;

static_assert(sizeof(ShmHeader) <= kHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

bool valid_ring_bytes(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinRingBytes && bytes <= kMaxRingBytes;
}

size_t total_bytes(size_t ring_bytes) { return kHeaderBytes + 2 * ring_bytes; }

size_t small_bytes(size_t ring_bytes) { return std::min(ring_bytes, kSmallBytes); }

size_t ring_start(size_t ring_bytes, int writer) {
  return kHeaderBytes + static_cast<size_t>(writer) * ring_bytes;
}

ShmHeader& header_of(const io::Mapping& memory) {
  return *reinterpret_cast<ShmHeader*>(memory.data());
}

/// The header and the first part of both rings.
Status commit_small(int fd, size_t ring_bytes) {
  CORRO_TRY(io::commit(fd, 0, ring_start(ring_bytes, 0) + small_bytes(ring_bytes)));
  return io::commit(fd, ring_start(ring_bytes, 1), small_bytes(ring_bytes));
}

/// Makes memory with a header in it; zero bytes are a valid start for every atomic in it.
Result<std::shared_ptr<ShmMemory>> make_memory(const ShmOptions& options) {
  if (!valid_ring_bytes(options.ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("shm: a ring of {} bytes: use a power of two from {} to {}",
                              options.ring_bytes, kMinRingBytes, kMaxRingBytes));
  }
  const size_t size = total_bytes(options.ring_bytes);
  CORRO_ASSIGN(io::Fd fd, io::create_memfd("corro-stream", size));
  CORRO_TRY(commit_small(fd.get(), options.ring_bytes));
  CORRO_ASSIGN(io::Mapping mapping, io::map_shared(fd.get(), size));
  header_of(mapping).magic = kMagic;
  header_of(mapping).ring_bytes = options.ring_bytes;
  return std::make_shared<ShmMemory>(std::move(fd), std::move(mapping));
}

/// Calls copy(piece, position in it, slot in the ring, length) for `count` bytes that start at ring
/// position `at`.
template <typename Copy>
void for_each_run(std::span<const iovec>& pieces, size_t& in_piece, uint64_t at, size_t ring_bytes,
                  size_t count, Copy copy) {
  while (count > 0) {
    const iovec& piece = pieces.front();
    const size_t slot = at & (ring_bytes - 1);
    const size_t run = std::min({piece.iov_len - in_piece, ring_bytes - slot, count});
    if (run > 0) copy(static_cast<std::byte*>(piece.iov_base) + in_piece, slot, run);
    at += run;
    count -= run;
    in_piece += run;
    if (in_piece == piece.iov_len) {
      pieces = pieces.subspan(1);
      in_piece = 0;
    }
  }
}

}  // namespace

Result<ShmCreated> ShmStream::create(const ShmOptions& options, std::string peer) {
  CORRO_ASSIGN(auto memory, make_memory(options));
  const int fd = memory->fd.get();
  return ShmCreated{.fd = fd,
                    .stream = std::make_unique<ShmStream>(std::move(memory), options.ring_bytes, 0,
                                                          std::move(peer))};
}

Result<std::unique_ptr<ShmStream>> ShmStream::attach(io::Fd fd, std::string peer) {
  CORRO_ASSIGN(const size_t size, io::sealed_size(fd.get()));
  const auto refused = [&](const char* what) {
    return Status(Code::kInvalidArgument, fmt::format("shm from {}: {}", peer, what));
  };
  if (size < kHeaderBytes || size > total_bytes(kMaxRingBytes)) return refused("wrong size");
  CORRO_ASSIGN(io::Mapping mapping, io::map_shared(fd.get(), size));
  const uint64_t ring_bytes = header_of(mapping).ring_bytes;
  if (header_of(mapping).magic != kMagic) return refused("not a stream's memory");
  if (!valid_ring_bytes(ring_bytes) || size != total_bytes(ring_bytes)) {
    return refused("its size and its header do not agree");
  }
  // A peer that did not commit it must not make this process die of SIGBUS.
  CORRO_TRY(commit_small(fd.get(), ring_bytes));
  return std::make_unique<ShmStream>(std::make_shared<ShmMemory>(std::move(fd), std::move(mapping)),
                                     ring_bytes, 1, std::move(peer));
}

Result<ShmPair> make_shm_pair(const ShmOptions& options) {
  CORRO_ASSIGN(const auto memory, make_memory(options));
  return ShmPair{
      .first = std::make_unique<ShmStream>(memory, options.ring_bytes, 0, "the second of a pair"),
      .second = std::make_unique<ShmStream>(memory, options.ring_bytes, 1, "the first of a pair")};
}

ShmStream::ShmStream(std::shared_ptr<ShmMemory> memory, size_t ring_bytes, int side,
                     std::string peer)
    : memory_(std::move(memory)),
      ring_bytes_(ring_bytes),
      side_(side),
      peer_(std::move(peer)),
      out_(header().rings[side]),
      in_(header().rings[1 - side]),
      out_bytes_(bytes_of(side)),
      in_bytes_(bytes_of(1 - side)),
      out_usable_(small_bytes(ring_bytes)),
      in_usable_(small_bytes(ring_bytes)) {}

ShmHeader& ShmStream::header() const { return header_of(memory_->mapping); }

std::byte* ShmStream::bytes_of(int writer) const {
  return memory_->mapping.data() + ring_start(ring_bytes_, writer);
}

Status ShmStream::commit_ring(int writer) const {
  return io::commit(memory_->fd.get(), ring_start(ring_bytes_, writer), ring_bytes_);
}

Moved ShmStream::write(std::span<const iovec> pieces) {
  if (closed_) return {.bytes = 0, .closed = true};
  if (header().closed[1 - side_].load(std::memory_order_acquire) != 0) {
    if (reason_.empty()) reason_ = "closed by the peer";
    return {.bytes = 0, .closed = true};
  }
  size_t left = total_size(pieces);
  size_t in_piece = 0;
  size_t moved = 0;
  while (left > 0) {
    const size_t wanted = std::min(left, kPublishBytes);
    if (room() < wanted && !make_room()) return {.bytes = moved, .closed = closed_};
    const size_t count = std::min(room(), wanted);
    for_each_run(pieces, in_piece, written_ - base_, ring_bytes_, count,
                 [this](const std::byte* from, size_t slot, size_t run) {
                   std::memcpy(out_bytes_ + slot, from, run);
                 });
    written_ += count;
    moved += count;
    left -= count;
    publish_written();
  }
  return {.bytes = moved, .closed = false};
}

/// Bytes that may be written now, as far as the reader's position has been seen.
size_t ShmStream::room() const {
  if (out_usable_ < ring_bytes_) return out_usable_ - (written_ - base_);
  return ring_bytes_ - (written_ - peer_read_);
}

/// Makes room for a byte or more if it can; false if there is none.
bool ShmStream::make_room() {
  if (out_usable_ == ring_bytes_) return wait_for_room(1);
  if (!see_room(ring_bytes_)) {
    if (closed_) return false;
    if (may_grow_) may_grow_ = commit_ring(side_).ok();
    if (may_grow_) {
      out_usable_ = ring_bytes_;
      return true;
    }
    if (room() > 0) return true;
    if (!wait_for_room(ring_bytes_)) return false;
  }
  base_ = written_;
  out_.base.store(base_, std::memory_order_relaxed);
  return true;
}

/// Looks at the reader's position; true if `wanted` bytes of the whole ring are free.
bool ShmStream::see_room(size_t wanted) {
  const uint64_t peer_read = out_.read.load(std::memory_order_seq_cst);
  if (peer_read - peer_read_ > written_ - peer_read_) {
    broken("read", peer_read);
    return false;
  }
  peer_read_ = peer_read;
  return ring_bytes_ - (written_ - peer_read_) >= wanted;
}

/// The same, and asks the reader to ring if they are not.
bool ShmStream::wait_for_room(size_t wanted) {
  if (see_room(wanted)) return true;
  if (closed_) return false;
  out_.writer_waits.store(1, std::memory_order_seq_cst);
  return see_room(wanted);
}

void ShmStream::publish_written() {
  // Sequentially consistent, with the sleeping word: see Doorbell.
  out_.written.store(written_, std::memory_order_seq_cst);
  bell_.ring_if_sleeping();
}

Moved ShmStream::read(std::span<const iovec> pieces) {
  if (closed_) return {.bytes = 0, .closed = true};
  // Before the position: what was written before the close is seen then.
  const bool peer_closed = header().closed[1 - side_].load(std::memory_order_acquire) != 0;
  size_t left = total_size(pieces);
  size_t in_piece = 0;
  size_t moved = 0;
  while (left > 0 && see_data()) {
    const size_t count = std::min({size_t{peer_written_ - read_}, left, kPublishBytes});
    if (!may_read(count)) break;
    for_each_run(pieces, in_piece, read_ - peer_base_, ring_bytes_, count,
                 [this](std::byte* into, size_t slot, size_t run) {
                   std::memcpy(into, in_bytes_ + slot, run);
                 });
    read_ += count;
    moved += count;
    left -= count;
    publish_read();
  }
  if (!closed_ && (!peer_closed || see_data())) return {.bytes = moved, .closed = false};
  if (reason_.empty()) reason_ = "closed by the peer";
  return {.bytes = moved, .closed = true};
}

/// Looks at the writer's position unless bytes seen before are left. False if there is nothing to
/// read.
bool ShmStream::see_data() {
  if (peer_written_ != read_) return true;
  const uint64_t peer_written = in_.written.load(std::memory_order_seq_cst);
  if (peer_written - read_ > ring_bytes_) {
    broken("written", peer_written);
    return false;
  }
  peer_written_ = peer_written;
  peer_base_ = in_.base.load(std::memory_order_relaxed);
  return peer_written_ != read_;
}

/// Commits the whole ring if bytes beyond its first part are read: a peer that wrote them has done
/// so, but a broken one must not make this process die of SIGBUS. False if there is no memory.
bool ShmStream::may_read(size_t count) {
  if (in_usable_ == ring_bytes_ ||
      ((read_ - peer_base_) & (ring_bytes_ - 1)) + count <= in_usable_) {
    return true;
  }
  const Status committed = commit_ring(1 - side_);
  if (committed.ok()) {
    in_usable_ = ring_bytes_;
    return true;
  }
  reason_ = committed.message();
  close();
  return false;
}

void ShmStream::publish_read() {
  in_.read.store(read_, std::memory_order_seq_cst);
  // The writer sets this before it looks at `read` again: one of the two is seen.
  if (in_.writer_waits.load(std::memory_order_seq_cst) == 0) return;
  in_.writer_waits.store(0, std::memory_order_seq_cst);
  bell_.ring_if_sleeping();
}

void ShmStream::broken(const char* what, uint64_t value) {
  reason_ = fmt::format("the peer's position \"{}\" is {}, which cannot be", what, value);
  close();
}

void ShmStream::close() {
  if (closed_) return;
  closed_ = true;
  if (reason_.empty()) reason_ = "closed here";
  header().closed[side_].store(1, std::memory_order_seq_cst);
  bell_.ring_if_sleeping();
}

std::string ShmStream::describe() const {
  const std::string where = "shm to " + peer_;
  return reason_.empty() ? where : where + ": " + reason_;
}

}  // namespace corro::transport
