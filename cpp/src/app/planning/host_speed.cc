#include "app/planning/host_speed.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "app/planning/tile_product.h"

namespace corro::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kTries = 5;
constexpr size_t kProducts = 20'000;
constexpr size_t kCopied = size_t{64} << 20U;  ///< Bytes a thread.

/// Seconds in which all threads do `work` at a time; the shortest of several tries.
double shortest(uint32_t threads, const std::function<std::function<void()>()>& prepare) {
  std::vector<double> seconds(kTries);
  Clock::time_point begin;
  std::barrier together(threads);
  const auto run = [&](bool is_first) {
    const std::function<void()> work = prepare();
    for (double& taken : seconds) {
      together.arrive_and_wait();
      if (is_first) begin = Clock::now();
      work();
      together.arrive_and_wait();
      if (is_first) taken = std::chrono::duration<double>(Clock::now() - begin).count();
    }
  };
  std::vector<std::thread> others;
  for (uint32_t i = 1; i < threads; ++i) others.emplace_back(run, false);
  run(true);
  for (std::thread& thread : others) thread.join();
  return *std::min_element(seconds.begin(), seconds.end());
}

double measure_products(uint32_t threads) {
  const TileProduct& product = widest_product();
  const double seconds = shortest(threads, [&product] {
    return [&product, a = std::vector<float>(kTileDepth * kTileRows, 1e-3F),
            b = std::vector<float>(kTileDepth * kTileColumns, 1e-3F),
            sums = std::vector<float>(kTileRows * kTileColumns)]() mutable {
      product.run(a.data(), b.data(), sums.data(), kProducts);
    };
  });
  return 2.0 * kProducts * kTileDepth * kTileRows * static_cast<double>(product.columns) * threads /
         seconds;
}

double measure_copies(uint32_t threads) {
  const double seconds = shortest(threads, [] {
    return [from = std::vector<char>(kCopied, 1), to = std::vector<char>(kCopied)]() mutable {
      std::memcpy(to.data(), from.data(), kCopied);
      from[0] = static_cast<char>(to[kCopied - 1] + 1);  // each try reads what the last one wrote
    };
  });
  return 2.0 * kCopied * threads / seconds;
}

}  // namespace

HostSpeed measure_host(uint32_t cores) {
  HostSpeed speed{.cores = std::max(1U, cores)};
  speed.flops_of_one = measure_products(1);
  speed.flops_of_all = measure_products(speed.cores);
  speed.bandwidth_of_one = measure_copies(1);
  speed.bandwidth_of_all = measure_copies(speed.cores);
  return speed;
}

}  // namespace corro::app
