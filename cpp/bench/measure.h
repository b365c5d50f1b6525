// The one measurement that every peer's driver runs: answers first, then times, as JSON lines.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace corro::bench {

/// What a driver gives: an in-place sum of `count` f32 over all ranks, and memory to do it in.
struct Peer {
  int rank = 0;
  int size = 1;
  std::function<void(float* data, size_t count)> allreduce;
  std::function<float*(size_t count)> allocate;
  std::function<void(float* data)> release;
};

/// Bytes to measure and how long, from the command line: SECONDS BYTES...
struct Sizes {
  double seconds = 0.2;
  std::vector<size_t> bytes;

  static Sizes parse(int argc, char** argv, int first) {
    Sizes sizes;
    if (argc > first) sizes.seconds = std::atof(argv[first]);
    for (int i = first + 1; i < argc; ++i)
      sizes.bytes.push_back(std::strtoull(argv[i], nullptr, 10));
    return sizes;
  }
};

/// Ends the program where the sum is not exact: small whole numbers, so that every order of
/// addition gives the same.
inline void check_answer(const Peer& peer, float* data, size_t count) {
  for (size_t i = 0; i < count; ++i)
    data[i] = static_cast<float>(static_cast<int>(i % 13) + peer.rank);
  peer.allreduce(data, count);
  const int ranks = peer.size * (peer.size - 1) / 2;
  for (size_t i = 0; i < count; ++i) {
    const auto want = static_cast<float>(static_cast<int>(i % 13) * peer.size + ranks);
    if (data[i] == want) continue;
    std::fprintf(stderr, "wrong answer: element %zu of %zu is %g, not %g\n", i, count,
                 static_cast<double>(data[i]), static_cast<double>(want));
    std::exit(3);
  }
}

/// Times one size. Small operations are timed in batches, so that the clock's own cost stays below
/// a hundredth; the ranks agree on when to stop by a sum of their own.
inline void measure_size(const Peer& peer, size_t bytes, double seconds) {
  using Clock = std::chrono::steady_clock;
  const size_t count = std::max<size_t>(bytes / sizeof(float), 1);
  float* data = peer.allocate(count);
  float* stop = peer.allocate(1);
  check_answer(peer, data, count);
  std::fill(data, data + count, 0.0F);
  const int batch = bytes <= 4096 ? 100 : bytes <= 65536 ? 10 : 1;
  std::vector<double> times;
  const auto begin = Clock::now();
  for (bool more = true; more;) {
    for (int sample = 0; sample < 10; ++sample) {
      const auto start = Clock::now();
      for (int i = 0; i < batch; ++i) peer.allreduce(data, count);
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      times.push_back(took.count() / batch);
    }
    *stop = std::chrono::duration<double>(Clock::now() - begin).count() > seconds ? 1.0F : 0.0F;
    peer.allreduce(stop, 1);
    more = *stop == 0.0F;
  }
  times.erase(times.begin(), times.begin() + static_cast<std::ptrdiff_t>(times.size() / 5));
  std::sort(times.begin(), times.end());
  if (peer.rank == 0) {
    std::printf("{\"bytes\": %zu, \"min_us\": %.4f, \"median_us\": %.4f, \"samples\": %zu}\n",
                bytes, times.front(), times[times.size() / 2], times.size());
    std::fflush(stdout);
  }
  peer.release(data);
  peer.release(stop);
}

inline void measure(const Peer& peer, const Sizes& sizes) {
  for (const size_t bytes : sizes.bytes) measure_size(peer, bytes, sizes.seconds);
}

}  // namespace corro::bench
