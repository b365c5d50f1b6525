// firing_inline: what the executor needs for one firing of a service on a lane that ends it at
// once, as one JSON line. Two services hand a token to each other.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "graph/executor.h"

namespace {

namespace graph = corro::graph;

class Inline final : public graph::Lane {
 public:
  void serve(graph::Executor& executor) { executor_ = &executor; }
  void start(corro::Time, const graph::Work& work) override {
    executor_->complete(work.firing.ticket);
  }

 private:
  graph::Executor* executor_ = nullptr;
};

}  // namespace

int main() {
  constexpr uint32_t kMicros = 100'000;
  graph::Plan plan;
  for (const char* name : {"one", "other"}) plan.add_lane({.name = name});
  plan.add_channel({.name = "there", .initial = 1});
  plan.add_channel({.name = "back"});
  plan.add_service({.name = "one", .lane = 0, .inputs = {1}, .outputs = {0}});
  plan.add_service({.name = "other", .lane = 1, .inputs = {0}, .outputs = {1}});
  Inline one;
  Inline other;
  const auto executor = graph::Executor::create(plan, {&one, &other}).value();
  one.serve(*executor);
  other.serve(*executor);
  std::vector<double> times;
  for (uint32_t round = 1; round <= 20; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    executor->run_until(round * kMicros);
    while (executor->poll({})) {
    }
    const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
    if (!executor->reached()) return 1;
    times.push_back(took.count() / (2.0 * kMicros));
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"bytes\": 0, \"min_us\": %.4f, \"median_us\": %.4f}\n", times.front(),
              times[times.size() / 2]);
  return 0;
}
