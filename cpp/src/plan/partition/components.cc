#include "plan/partition/components.h"

#include <cstddef>
#include <utility>

namespace corro::plan {
namespace {

using Lists = std::vector<std::vector<uint32_t>>;

/// Walks from `start` over nodes that are not `seen`, and calls done(node) after all that the node
/// leads to.
template <typename Done>
void walk(const Lists& next, uint32_t start, std::vector<bool>& seen, Done&& done) {
  std::vector<std::pair<uint32_t, size_t>> path{{start, 0}};  // Node, and how many edges are taken.
  seen[start] = true;
  while (!path.empty()) {
    auto& [node, taken] = path.back();
    if (taken == next[node].size()) {
      done(node);
      path.pop_back();
      continue;
    }
    const uint32_t end = next[node][taken++];
    if (seen[end]) continue;
    seen[end] = true;
    path.emplace_back(end, 0);
  }
}

}  // namespace

Components find_components(const Lists& next) {
  const auto count = static_cast<uint32_t>(next.size());
  Lists back(count);
  for (uint32_t node = 0; node < count; ++node) {
    for (const uint32_t end : next[node]) back[end].push_back(node);
  }
  std::vector<uint32_t> finished;
  std::vector<bool> seen(count, false);
  for (uint32_t node = 0; node < count; ++node) {
    if (!seen[node]) walk(next, node, seen, [&](uint32_t done) { finished.push_back(done); });
  }
  Components components;
  components.of.resize(count);
  seen.assign(count, false);
  for (auto node = finished.rbegin(); node != finished.rend(); ++node) {
    if (seen[*node]) continue;
    walk(back, *node, seen, [&](uint32_t done) { components.of[done] = components.count; });
    ++components.count;
  }
  return components;
}

}  // namespace corro::plan
