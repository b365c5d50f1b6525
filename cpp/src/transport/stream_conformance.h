// What every Stream does, and two Endpoints over any of them. A transport instantiates the suites
// in a file of about 30 lines:
//
//   StreamPair make() { ... }
//   const auto kMakers = testing::Values(StreamMaker{"shm", make});
//   INSTANTIATE_TEST_SUITE_P(Shm, StreamConformance, kMakers, maker_name);
//   INSTANTIATE_TEST_SUITE_P(Shm, StreamWakeConformance, kMakers, maker_name);
//   INSTANTIATE_TEST_SUITE_P(Shm, EndpointConformance, kMakers, maker_name);
//
// The tests are in stream_conformance_test.cc and endpoint_conformance_test.cc.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <random>
#include <string>

#include "transport/stream.h"
#include "transport/test_message.h"

namespace corro::transport {

/// Two connected ends.
struct StreamPair {
  std::unique_ptr<Stream> first;
  std::unique_ptr<Stream> second;
  size_t capacity = 0;  ///< Upper bound of the bytes under way in one direction.
  /// How often the pipe may be filled anew before a few bytes have made their way in the other
  /// direction.
  size_t refills = 1;
};

struct StreamMaker {
  std::string name;
  std::function<StreamPair()> make;
  friend void PrintTo(const StreamMaker& maker, std::ostream* out) { *out << maker.name; }
};

inline std::string maker_name(const testing::TestParamInfo<StreamMaker>& info) {
  return info.param.name;
}

/// Sends `bytes` one way, a random part at a time.
class PartialSender {
 public:
  PartialSender(Stream& stream, BytesView bytes, uint64_t seed, size_t largest)
      : stream_(stream), bytes_(bytes), random_(seed), largest_(largest) {}

  void step() {
    std::array<iovec, 3> pieces{};
    size_t at = sent_;
    for (iovec& piece : pieces) {
      const size_t size = std::min<size_t>(random_() % (largest_ + 1), bytes_.size() - at);
      piece = {const_cast<std::byte*>(bytes_.data()) + at, size};
      at += size;
    }
    const Moved moved = stream_.write(pieces);
    ASSERT_FALSE(moved.closed) << stream_.describe();
    ASSERT_LE(moved.bytes, at - sent_);
    sent_ += moved.bytes;
  }
  [[nodiscard]] bool done() const { return sent_ == bytes_.size(); }

 private:
  Stream& stream_;
  BytesView bytes_;
  std::mt19937_64 random_;
  size_t largest_;
  size_t sent_ = 0;
};

class StreamConformance : public testing::TestWithParam<StreamMaker> {
 protected:
  void SetUp() override {
    pair_ = GetParam().make();
    ASSERT_NE(pair_.first, nullptr);
    ASSERT_NE(pair_.second, nullptr);
  }

  static Moved write(Stream& stream, BytesView bytes) {
    const iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
    return stream.write(std::span(&piece, 1));
  }
  static Moved read(Stream& stream, std::span<std::byte> into) {
    const iovec piece{into.data(), into.size()};
    return stream.read(std::span(&piece, 1));
  }
  /// Writes until nothing more fits; returns how much did.
  static size_t fill(Stream& stream) {
    const Bytes block(10'000, std::byte{1});
    size_t total = 0;
    // A full pipe may still be moving inside the kernel: full is what is full several times.
    for (int refused = 0; refused < 1000;) {
      const Moved moved = write(stream, block);
      EXPECT_FALSE(moved.closed);
      total += moved.bytes;
      refused = moved.bytes == 0 ? refused + 1 : 0;
    }
    return total;
  }
  /// Reads until `size` bytes have come, the stream is closed, or the deadline.
  static Bytes read_all(Stream& stream, size_t size, bool& closed) {
    Bytes got(size + 1);
    size_t received = 0;
    closed = false;
    const TestDeadline deadline;
    while (received < size + 1 && !closed && !deadline.over()) {
      const Moved moved = read(stream, std::span(got).subspan(received));
      received += moved.bytes;
      closed = moved.closed;
    }
    got.resize(received);
    return got;
  }
  /// Moves `size` random bytes each way at once, in parts of up to `largest`.
  void exchange(size_t size, size_t largest);

  StreamPair pair_;
};

/// The part for streams whose ends live in two threads or processes, which may sleep.
class StreamWakeConformance : public StreamConformance {};

/// What two Endpoints do over the stream.
class EndpointConformance : public testing::TestWithParam<StreamMaker> {};

}  // namespace corro::transport
