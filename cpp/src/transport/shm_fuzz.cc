// Both sides of a shared-memory stream while the input writes into its control words and rings, as
// a hostile or crashed peer could; and ShmStream::attach() with any header.
//
// What lies around the words and the rings is poisoned: a position that is believed is seen though
// the memory is mapped.
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include <sanitizer/asan_interface.h>

#include "base/bytes.h"
#include "base/check.h"
#include "transport/shm_stream.h"

namespace corro::transport {
namespace {

constexpr size_t kHeaderBytes = 4096;
constexpr size_t kRingBytes = 64U << 10U;  // Larger than a small ring.
constexpr size_t kStreamBytes = kHeaderBytes + 2 * kRingBytes;
constexpr size_t kMostMoved = 10'000;

/// Memory for a stream, with a poisoned page behind it; made once.
struct Memory {
  Memory() {
    io::Fd fd = io::create_memfd("corro-fuzz", kStreamBytes + kHeaderBytes).value();
    io::Mapping mapping = io::map_shared(fd.get(), kStreamBytes + kHeaderBytes).value();
    shared = std::make_shared<ShmMemory>(std::move(fd), std::move(mapping));
    ASAN_POISON_MEMORY_REGION(data() + sizeof(ShmHeader), kHeaderBytes - sizeof(ShmHeader));
    ASAN_POISON_MEMORY_REGION(data() + kStreamBytes, kHeaderBytes);
  }
  [[nodiscard]] std::byte* data() const { return shared->mapping.data(); }
  void reset() const {
    std::fill_n(data(), sizeof(ShmHeader), std::byte{0});
    std::fill_n(data() + kHeaderBytes, 2 * kRingBytes, std::byte{0});
  }
  std::shared_ptr<ShmMemory> shared;
};

/// One side, closed as an Endpoint closes it, and what must hold of it whatever the other does.
struct Side {
  Side(const Memory& memory, int side) : stream(memory.shared, kRingBytes, side, "a fuzzer") {}

  /// Moves `count` bytes in two pieces of exactly that size.
  void move(bool writes, size_t count) {
    std::vector<std::byte> first(count / 3);
    std::vector<std::byte> second(count - first.size());
    const std::array<iovec, 2> pieces = {iovec{first.data(), first.size()},
                                         iovec{second.data(), second.size()}};
    const Moved moved = writes ? stream.write(pieces) : stream.read(pieces);
    // What the position seen before allows, and once more what it is now.
    CORRO_CHECK(moved.bytes <= std::min(count, 2 * kRingBytes));
    CORRO_CHECK(!closed || (moved.closed && moved.bytes == 0));
    if (moved.closed) close();
    CORRO_CHECK(!stream.describe().empty());
  }
  void close() {
    stream.close();
    closed = true;
  }
  ShmStream stream;
  bool closed = false;
};

/// A control word, or any word of the rings.
size_t place_of(ByteReader& reader) {
  constexpr size_t kFirst = offsetof(ShmHeader, rings);
  constexpr std::array<size_t, 9> kWords = {
      offsetof(ShmHeader, closed),
      kFirst + offsetof(ShmRing, written),
      kFirst + offsetof(ShmRing, base),
      kFirst + offsetof(ShmRing, read),
      kFirst + offsetof(ShmRing, writer_waits),
      kFirst + sizeof(ShmRing) + offsetof(ShmRing, written),
      kFirst + sizeof(ShmRing) + offsetof(ShmRing, base),
      kFirst + sizeof(ShmRing) + offsetof(ShmRing, read),
      kFirst + sizeof(ShmRing) + offsetof(ShmRing, writer_waits)};
  const size_t which = reader.read<uint8_t>().value_or(0) % (kWords.size() + 1);
  if (which < kWords.size()) return kWords[which];
  return kHeaderBytes + 8 * (reader.read<uint16_t>().value_or(0) % (2 * kRingBytes / 8));
}

/// Writes the input's number there, or adds it to what is there.
void patch(ByteReader& reader, const Memory& memory, bool adds) {
  std::byte* at = memory.data() + place_of(reader);
  uint64_t word = 0;
  std::memcpy(&word, at, sizeof word);
  word = adds ? word + static_cast<uint64_t>(int64_t{reader.read<int16_t>().value_or(0)})
              : reader.read<uint64_t>().value_or(0);
  std::memcpy(at, &word, sizeof word);
}

/// The input as commands: side (bit 7) writes, reads or closes; or memory changes.
void run_stream(const Memory& memory, ByteReader& reader) {
  memory.reset();
  std::array<Side, 2> sides = {Side(memory, 0), Side(memory, 1)};
  while (const auto command = reader.read<uint8_t>()) {
    Side& side = sides[*command >> 7U];
    const unsigned what = *command % 8U;
    if (what < 5) {
      side.move(what % 2 == 0, reader.read<uint16_t>().value_or(0) % kMostMoved);
    } else if (what < 7) {
      patch(reader, memory, what == 5);
    } else {
      side.close();
    }
  }
}

/// A sealed memfd of any size with any header.
void run_attach(ByteReader& reader) {
  const size_t size = kStreamBytes - 0x2000 + reader.read<uint16_t>().value_or(0x2000) % 0x8000;
  io::Fd fd = io::create_memfd("corro-fuzz", size).value();
  auto made = ShmStream::create({.ring_bytes = kRingBytes}, "a fuzzer").value();
  std::array<std::byte, 16> header{};
  CORRO_CHECK(pread(made.fd, header.data(), header.size(), 0) == std::ssize(header));
  const size_t at = reader.read<uint8_t>().value_or(0) % header.size();
  const auto bytes = reader.read_bytes(std::min(reader.remaining(), header.size() - at));
  std::copy(bytes->begin(), bytes->end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  CORRO_CHECK(pwrite(fd.get(), header.data(), header.size(), 0) == std::ssize(header));
  const auto stream = ShmStream::attach(std::move(fd), "a fuzzer");
  if (!stream.ok()) return;
  std::vector<std::byte> data(kMostMoved);
  const iovec piece{data.data(), data.size()};
  CORRO_CHECK((*stream)->write(std::span(&piece, 1)).bytes <= size / 2);
  CORRO_CHECK((*stream)->read(std::span(&piece, 1)).bytes == 0);
}

}  // namespace
}  // namespace corro::transport

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const corro::transport::Memory memory;
  corro::ByteReader reader(std::as_bytes(std::span(data, size)));
  const auto which = reader.read<uint8_t>();
  if (!which) return 0;
  if (*which % 16 == 0) {
    corro::transport::run_attach(reader);
  } else {
    corro::transport::run_stream(memory, reader);
  }
  return 0;
}
