#include "transport/shm_stream.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "transport/stream_conformance.h"

namespace corro::transport {
namespace {

StreamPair one_mapping(size_t ring_bytes) {
  ShmPair pair = make_shm_pair({.ring_bytes = ring_bytes}).value();
  return {.first = std::move(pair.first), .second = std::move(pair.second), .capacity = ring_bytes};
}

StreamPair two_mappings(size_t ring_bytes) {
  ShmCreated created = ShmStream::create({.ring_bytes = ring_bytes}, "the other side").value();
  auto attached = ShmStream::attach(io::Fd(dup(created.fd)), "this side").value();
  return {
      .first = std::move(created.stream), .second = std::move(attached), .capacity = ring_bytes};
}

const auto kShmMakers =
    testing::Values(StreamMaker{"default", [] { return one_mapping(1U << 20U); }},
                    StreamMaker{"small", [] { return one_mapping(4096); }},
                    StreamMaker{"mapped_twice", [] { return two_mappings(65536); }});
INSTANTIATE_TEST_SUITE_P(Shm, StreamConformance, kShmMakers, maker_name);
INSTANTIATE_TEST_SUITE_P(Shm, StreamWakeConformance, kShmMakers, maker_name);
INSTANTIATE_TEST_SUITE_P(Shm, EndpointConformance, kShmMakers, maker_name);

iovec piece_of(Bytes& bytes) { return {bytes.data(), bytes.size()}; }

/// Side 0 over memory whose words the test sets as a hostile peer would.
struct Hostile {
  Hostile() : created(ShmStream::create({.ring_bytes = 4096}, "rank 1").value()) {
    mapping = io::map_shared(created.fd, 4096 + 2 * 4096).value();
  }
  ShmHeader& header() { return *reinterpret_cast<ShmHeader*>(mapping.data()); }
  ShmCreated created;
  io::Mapping mapping;
};

TEST(ShmStream, APeerThatWroteMoreThanFitsClosesTheStream) {
  Hostile hostile;
  hostile.header().rings[1].written.store(4097);
  Bytes into(100);
  const iovec piece = piece_of(into);
  EXPECT_TRUE(hostile.created.stream->read(std::span(&piece, 1)).closed);
  EXPECT_NE(
      hostile.created.stream->describe().find("rank 1: the peer's position \"written\" is 4097"),
      std::string::npos)
      << hostile.created.stream->describe();
}

TEST(ShmStream, APeerThatTakesBackWhatItWroteClosesTheStream) {
  Hostile hostile;
  hostile.header().rings[1].written.store(100);
  Bytes into(100);
  const iovec piece = piece_of(into);
  EXPECT_EQ(hostile.created.stream->read(std::span(&piece, 1)).bytes, 100U);
  hostile.header().rings[1].written.store(99);
  EXPECT_TRUE(hostile.created.stream->read(std::span(&piece, 1)).closed);
}

TEST(ShmStream, APeerThatReadMoreThanThereIsClosesTheStream) {
  Hostile hostile;
  Bytes out(5000);
  const iovec piece = piece_of(out);
  EXPECT_EQ(hostile.created.stream->write(std::span(&piece, 1)).bytes, 4096U);
  hostile.header().rings[0].read.store(5000);
  EXPECT_TRUE(hostile.created.stream->write(std::span(&piece, 1)).closed);
  EXPECT_NE(hostile.created.stream->describe().find("\"read\""), std::string::npos);
}

TEST(ShmStream, OwnPositionsAreNotBelievedFromSharedMemory) {
  Hostile hostile;
  hostile.header().rings[0].written.store(1U << 30U);
  hostile.header().rings[1].read.store(1U << 30U);
  Bytes out(10);
  const iovec piece = piece_of(out);
  EXPECT_EQ(hostile.created.stream->write(std::span(&piece, 1)).bytes, 10U);
  EXPECT_EQ(hostile.header().rings[0].written.load(), 10U);
}

size_t shared_bytes(int fd) {
  struct stat status{};
  EXPECT_EQ(fstat(fd, &status), 0);
  return static_cast<size_t>(status.st_blocks) * 512;
}

TEST(ShmStream, AReaderThatKeepsUpNeverMakesARingGrow) {
  ShmCreated created = ShmStream::create({}, "the other side").value();
  auto other = ShmStream::attach(io::Fd(dup(created.fd)), "this side").value();
  const size_t at_first = shared_bytes(created.fd);
  EXPECT_LE(at_first, 4096U + 2 * (32U << 10U));
  Bytes out(1000);
  Bytes in(1000);
  const iovec from = piece_of(out);
  const iovec into = piece_of(in);
  for (size_t i = 0; i < 4000; ++i) {
    std::ranges::fill(out, static_cast<std::byte>(i));
    ASSERT_EQ(created.stream->write(std::span(&from, 1)).bytes, out.size());
    ASSERT_EQ(other->read(std::span(&into, 1)).bytes, in.size());
    ASSERT_EQ(in, out);
  }
  EXPECT_EQ(shared_bytes(created.fd), at_first);
}

TEST(ShmStream, ARingGrowsForMoreThanItsFirstPartHolds) {
  ShmCreated created = ShmStream::create({}, "the other side").value();
  auto other = ShmStream::attach(io::Fd(dup(created.fd)), "this side").value();
  Bytes out(900'000);
  std::ranges::generate(out, [i = 0]() mutable { return static_cast<std::byte>(i++ / 7); });
  Bytes in(out.size());
  const iovec from = piece_of(out);
  const iovec into = piece_of(in);
  for (int lap = 0; lap < 3; ++lap) {
    ASSERT_EQ(created.stream->write(std::span(&from, 1)).bytes, out.size());
    ASSERT_EQ(other->read(std::span(&into, 1)).bytes, in.size());
    ASSERT_EQ(in, out);
  }
  // One ring, not the other.
  EXPECT_LE(shared_bytes(created.fd), 4096U + (32U << 10U) + (1U << 20U));
}

TEST(ShmStream, ARingThatCannotGrowCarriesEverythingAllTheSame) {
  ShmCreated created = ShmStream::create({}, "the other side").value();
  auto other = ShmStream::attach(io::Fd(dup(created.fd)), "this side").value();
  created.stream->close_in_child();  // Without its descriptor it can commit nothing.
  Bytes out(300'000);
  std::ranges::generate(out, [i = 0]() mutable { return static_cast<std::byte>(i++ / 7); });
  Bytes in;
  for (size_t sent = 0; in.size() < out.size();) {
    const iovec from{out.data() + sent, out.size() - sent};
    sent += created.stream->write(std::span(&from, 1)).bytes;
    Bytes some(10'000);
    const iovec into = piece_of(some);
    some.resize(other->read(std::span(&into, 1)).bytes);
    ASSERT_FALSE(some.empty());
    in.insert(in.end(), some.begin(), some.end());
  }
  EXPECT_EQ(in, out);
  EXPECT_EQ(created.stream->committed(), 2 * (32U << 10U));
}

TEST(ShmStream, RefusesMemoryThatIsNoStream) {
  io::Fd empty = io::create_memfd("corro-test", 4096 + 2 * 4096).value();
  EXPECT_EQ(ShmStream::attach(std::move(empty), "rank 1").status().code(), Code::kInvalidArgument);
  io::Fd small = io::create_memfd("corro-test", 64).value();
  EXPECT_EQ(ShmStream::attach(std::move(small), "rank 1").status().code(), Code::kInvalidArgument);
  Hostile hostile;
  hostile.header().ring_bytes = 8192;
  EXPECT_EQ(ShmStream::attach(io::Fd(dup(hostile.created.fd)), "rank 1").status().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(ShmStream::create({.ring_bytes = 5000}, "rank 1").status().code(),
            Code::kInvalidArgument);
}

TEST(ShmStream, RingsOnlyAPeerThatSleeps) {
  const io::EventFd bell = io::EventFd::create().value();
  std::atomic<uint32_t> sleeping{0};
  ShmPair pair = make_shm_pair().value();  // its end rings too
  pair.first->set_doorbell(Doorbell(&sleeping, bell.fd()));
  Bytes out(10);
  const iovec piece = piece_of(out);
  (void)pair.first->write(std::span(&piece, 1));
  EXPECT_FALSE(bell.drain());
  EXPECT_EQ(pair.first->doorbell().rings(), 0U);
  sleeping = 1;
  (void)pair.first->write(std::span(&piece, 1));
  EXPECT_TRUE(bell.drain());
  EXPECT_EQ(pair.first->doorbell().rings(), 1U);
}

TEST(ShmStream, ReadingRingsOnlyAWriterThatWaitsForRoom) {
  const io::EventFd bell = io::EventFd::create().value();
  std::atomic<uint32_t> sleeping{1};
  ShmPair pair = make_shm_pair({.ring_bytes = 4096}).value();  // its end rings too
  pair.second->set_doorbell(Doorbell(&sleeping, bell.fd()));
  Bytes bytes(3000);
  const iovec piece = piece_of(bytes);
  (void)pair.first->write(std::span(&piece, 1));
  (void)pair.second->read(std::span(&piece, 1));
  EXPECT_EQ(pair.second->doorbell().rings(), 0U);
  (void)pair.first->write(std::span(&piece, 1));
  (void)pair.first->write(std::span(&piece, 1));
  (void)pair.second->read(std::span(&piece, 1));
  EXPECT_EQ(pair.second->doorbell().rings(), 1U);
}

}  // namespace
}  // namespace corro::transport
