// eliminate: what the exact sharding of a 96-block transformer's operator graph takes, as one JSON
// line. Random costs, 8 strategies an operator; make_transformer_graph() says the graph.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "plan/solve/elimination.h"
#include "plan/solve/transformer_graph.h"

int main() {
  const corro::plan::EnergyGraph graph = corro::plan::make_transformer_graph({.blocks = 96});
  constexpr int kTimes = 9;
  std::vector<double> times;
  double value = 0;
  for (int i = 0; i < kTimes; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const auto best = corro::plan::minimise(graph);
    const auto end = std::chrono::steady_clock::now();
    if (!best.ok() || !best->exact) return 1;
    value = best->value;
    times.push_back(std::chrono::duration<double, std::micro>(end - start).count());
  }
  std::sort(times.begin(), times.end());
  std::printf("{\"median_us\": %.1f, \"value\": %.6f}\n", times[kTimes / 2], value);
}
