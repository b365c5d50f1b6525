#include "transport/memory_stream.h"

#include "transport/stream_conformance.h"

namespace corro::transport {
namespace {

StreamPair make(const MemoryOptions& options) {
  MemoryPair pair = make_memory_pair(options);
  return {.first = std::move(pair.first),
          .second = std::move(pair.second),
          .capacity = options.capacity,
          .refills = options.short_moves ? 8U : 1U};
}

const auto kMemoryMakers = testing::Values(
    StreamMaker{"default", [] { return make({}); }},
    StreamMaker{"small", [] { return make({.capacity = 6'007}); }},
    StreamMaker{"short_moves", [] { return make({.short_moves = true, .seed = 5}); }});
INSTANTIATE_TEST_SUITE_P(Memory, StreamConformance, kMemoryMakers, maker_name);
INSTANTIATE_TEST_SUITE_P(MemoryTiny, StreamConformance,
                         testing::Values(StreamMaker{"tiny",
                                                     [] { return make({.capacity = 61}); }}),
                         maker_name);
INSTANTIATE_TEST_SUITE_P(Memory, EndpointConformance, kMemoryMakers, maker_name);

Moved write(Stream& stream, size_t size) {
  Bytes bytes(size);
  const iovec piece{bytes.data(), bytes.size()};
  return stream.write(std::span(&piece, 1));
}
Moved read(Stream& stream, size_t size) {
  Bytes bytes(size);
  const iovec piece{bytes.data(), bytes.size()};
  return stream.read(std::span(&piece, 1));
}

TEST(MemoryStream, HoldsDeliveryUntilReleased) {
  MemoryPair pair = make_memory_pair();
  EXPECT_EQ(write(*pair.first, 10).bytes, 10U);
  pair.link->toward(1).hold();
  EXPECT_EQ(write(*pair.first, 10).bytes, 10U);
  EXPECT_EQ(read(*pair.second, 100).bytes, 10U) << "written before the hold";
  EXPECT_EQ(read(*pair.second, 100).bytes, 0U);
  pair.link->toward(1).release(3);
  EXPECT_EQ(read(*pair.second, 100).bytes, 3U);
  pair.link->toward(1).release();
  EXPECT_EQ(read(*pair.second, 100).bytes, 7U);
}

TEST(MemoryStream, DeliversAtItsVirtualTime) {
  Time now;
  MemoryPair pair = make_memory_pair(
      {.delay = [](size_t bytes) { return Duration(100 + bytes); }, .now = [&now] { return now; }});
  EXPECT_EQ(pair.link->toward(1).next_delivery(), std::nullopt);
  (void)write(*pair.first, 20);
  ASSERT_TRUE(pair.link->toward(1).next_delivery().has_value());
  EXPECT_EQ(pair.link->toward(1).next_delivery()->since_start, Duration(120));
  now.since_start = Duration(119);
  EXPECT_EQ(read(*pair.second, 100).bytes, 0U);
  now.since_start = Duration(120);
  (void)write(*pair.first, 1);
  EXPECT_EQ(read(*pair.second, 100).bytes, 20U);
  EXPECT_EQ(pair.link->toward(1).next_delivery()->since_start, Duration(221));
}

TEST(MemoryStream, BreaksAtTheChosenByte) {
  MemoryPair pair = make_memory_pair();
  pair.link->toward(1).break_after(15, "cable cut");
  EXPECT_FALSE(write(*pair.first, 10).closed);
  const Moved last = write(*pair.first, 10);
  EXPECT_EQ(last.bytes, 5U);
  EXPECT_TRUE(last.closed);
  EXPECT_EQ(read(*pair.second, 100).bytes, 15U);
  EXPECT_TRUE(read(*pair.second, 100).closed);
  EXPECT_TRUE(read(*pair.first, 100).closed);
  EXPECT_NE(pair.first->describe().find("cable cut"), std::string::npos);
}

}  // namespace
}  // namespace corro::transport
