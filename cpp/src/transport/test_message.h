// What tests of this folder share: random bytes, a deadline, a message with both its requests.
#pragma once

#include <algorithm>
#include <cstring>
#include <random>

#include "base/bytes.h"
#include "base/clock.h"
#include "transport/endpoint.h"

namespace corro::transport {

inline Bytes random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(size);
  for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), size - at));
  }
  return bytes;
}

/// Ends loops that wait for something: generous, so that only a hang reaches it.
class TestDeadline {
 public:
  [[nodiscard]] bool over() const { return monotonic_now() > end_; }

 private:
  Time end_ = monotonic_now() + std::chrono::seconds(30);
};

/// A message with both its requests.
struct TestMessage {
  TestMessage(MessageKey key, size_t size, uint64_t seed = 1)
      : payload(random_bytes(size, seed + size)),
        received(size),
        send{.key = key, .signature = {key.op + 7}, .payload = payload},
        recv{.key = key, .signature = {key.op + 7}, .into = received} {}
  TestMessage(const TestMessage&) = delete;
  TestMessage& operator=(const TestMessage&) = delete;
  ~TestMessage() = default;
  [[nodiscard]] bool arrived() const { return recv.done && !recv.mismatch && received == payload; }

  Bytes payload;
  Bytes received;
  SendRequest send;
  RecvRequest recv;
};

}  // namespace corro::transport
