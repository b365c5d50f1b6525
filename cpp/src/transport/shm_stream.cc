#include "transport/shm_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <utility>

namespace corro::transport {
namespace {

constexpr uint64_t kMagic = 0x31'6D'68'73'6F'72'6F'63;  // "coroshm1"
constexpr size_t kHeaderBytes = 4096;
constexpr size_t kMinRingBytes = 4096;
constexpr size_t kMaxRingBytes = 1U << 30U;
/// A long copy is published in parts of this size, so that the peer copies at the same time.
constexpr size_t kPublishBytes = 16U << 10U;

static_assert(sizeof(ShmHeader) <= kHeaderBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

bool valid_ring_bytes(uint64_t bytes) {
  return std::has_single_bit(bytes) && bytes >= kMinRingBytes && bytes <= kMaxRingBytes;
}

size_t total_bytes(size_t ring_bytes) { return kHeaderBytes + 2 * ring_bytes; }

ShmHeader& header_of(const io::Mapping& memory) {
  return *reinterpret_cast<ShmHeader*>(memory.data());
}

/// Makes committed memory with a header in it; zero bytes are a valid start for every atomic in it.
Result<std::pair<io::Fd, io::Mapping>> make_memory(const ShmOptions& options) {
  if (!valid_ring_bytes(options.ring_bytes)) {
    return Status(Code::kInvalidArgument,
                  fmt::format("shm: a ring of {} bytes: use a power of two from {} to {}",
                              options.ring_bytes, kMinRingBytes, kMaxRingBytes));
  }
  const size_t size = total_bytes(options.ring_bytes);
  CORRO_ASSIGN(io::Fd fd, io::create_memfd("corro-stream", size));
  CORRO_TRY(io::commit(fd.get(), 0, size));
  CORRO_ASSIGN(io::Mapping memory, io::map_shared(fd.get(), size));
  header_of(memory).magic = kMagic;
  header_of(memory).ring_bytes = options.ring_bytes;
  return std::pair(std::move(fd), std::move(memory));
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
  CORRO_ASSIGN(auto made, make_memory(options));
  auto memory = std::make_shared<const io::Mapping>(std::move(made.second));
  return ShmCreated{
      .fd = std::move(made.first),
      .stream = std::make_unique<ShmStream>(memory, options.ring_bytes, 0, std::move(peer))};
}

Result<std::unique_ptr<ShmStream>> ShmStream::attach(int fd, std::string peer) {
  CORRO_ASSIGN(const size_t size, io::sealed_size(fd));
  const auto refused = [&](const char* what) {
    return Status(Code::kInvalidArgument, fmt::format("shm from {}: {}", peer, what));
  };
  if (size < kHeaderBytes || size > total_bytes(kMaxRingBytes)) return refused("wrong size");
  CORRO_ASSIGN(io::Mapping memory, io::map_shared(fd, size));
  const uint64_t ring_bytes = header_of(memory).ring_bytes;
  if (header_of(memory).magic != kMagic) return refused("not a stream's memory");
  if (!valid_ring_bytes(ring_bytes) || size != total_bytes(ring_bytes)) {
    return refused("its size and its header do not agree");
  }
  CORRO_TRY(io::commit(
      fd, 0, size));  // A peer that did not commit it must not make this process die of SIGBUS.
  auto shared = std::make_shared<const io::Mapping>(std::move(memory));
  return std::make_unique<ShmStream>(std::move(shared), ring_bytes, 1, std::move(peer));
}

Result<ShmPair> make_shm_pair(const ShmOptions& options) {
  CORRO_ASSIGN(auto made, make_memory(options));
  auto memory = std::make_shared<const io::Mapping>(std::move(made.second));
  return ShmPair{
      .first = std::make_unique<ShmStream>(memory, options.ring_bytes, 0, "the second of a pair"),
      .second = std::make_unique<ShmStream>(memory, options.ring_bytes, 1, "the first of a pair")};
}

ShmStream::ShmStream(std::shared_ptr<const io::Mapping> memory, size_t ring_bytes, int side,
                     std::string peer)
    : memory_(std::move(memory)),
      ring_bytes_(ring_bytes),
      side_(side),
      peer_(std::move(peer)),
      out_(header().rings[side]),
      in_(header().rings[1 - side]),
      out_bytes_(bytes_of(side)),
      in_bytes_(bytes_of(1 - side)) {}

ShmHeader& ShmStream::header() const { return header_of(*memory_); }

std::byte* ShmStream::bytes_of(int writer) const {
  return memory_->data() + kHeaderBytes + static_cast<size_t>(writer) * ring_bytes_;
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
    size_t room = ring_bytes_ - (written_ - peer_read_);
    if (room < std::min(left, kPublishBytes)) {
      if (!see_room()) return {.bytes = moved, .closed = closed_};
      room = ring_bytes_ - (written_ - peer_read_);
    }
    const size_t count = std::min({room, left, kPublishBytes});
    for_each_run(pieces, in_piece, written_, ring_bytes_, count,
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

/// Looks at the reader's position; asks it to ring if the ring is full. False if there is no room.
bool ShmStream::see_room() {
  for (int look = 0; look < 2; ++look) {
    const uint64_t peer_read = out_.read.load(std::memory_order_seq_cst);
    if (peer_read - peer_read_ > written_ - peer_read_) {
      broken("read", peer_read);
      return false;
    }
    peer_read_ = peer_read;
    if (written_ - peer_read_ < ring_bytes_) return true;
    if (look == 0) out_.writer_waits.store(1, std::memory_order_seq_cst);
  }
  return false;
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
    for_each_run(pieces, in_piece, read_, ring_bytes_, count,
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
  return peer_written_ != read_;
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
