#include "plan/solve/link_tree.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <utility>

namespace corro::plan {
namespace {

struct TreeEdge {
  double bandwidth;
  uint32_t first;
  uint32_t second;
};

/// Prim's algorithm on a full matrix, fastest links first.
std::vector<TreeEdge> maximum_spanning_tree(const Links& links) {
  const uint32_t devices = links.devices();
  std::vector<double> best(devices, 0);
  std::vector<uint32_t> from(devices, 0);
  std::vector<bool> inside(devices);
  std::vector<TreeEdge> edges;
  uint32_t last = 0;
  for (uint32_t count = 1; count < devices; ++count) {
    inside[last] = true;
    uint32_t next = 0;
    double fastest = 0;
    for (uint32_t i = 0; i < devices; ++i) {
      if (inside[i]) continue;
      const double bandwidth = links.between(last, i);
      if (bandwidth > best[i]) {
        best[i] = bandwidth;
        from[i] = last;
      }
      if (best[i] > fastest) {
        fastest = best[i];
        next = i;
      }
    }
    edges.push_back({fastest, from[next], next});
    last = next;
  }
  std::ranges::stable_sort(edges, std::ranges::greater(), &TreeEdge::bandwidth);
  return edges;
}

/// Joins devices along the tree's edges, the fastest first; edges of one bandwidth into one
/// cluster.
class Joining {
 public:
  explicit Joining(uint32_t devices)
      : parent_(devices), cluster_(devices, kAlone), speed_(devices) {
    std::iota(parent_.begin(), parent_.end(), 0U);
  }

  std::vector<LinkCluster> run(const std::vector<TreeEdge>& edges) {
    for (const TreeEdge& edge : edges)
      join(root_of(edge.first), root_of(edge.second), edge.bandwidth);
    if (edges.empty()) clusters_.push_back({.children = {}, .devices = {0}});
    return in_order();
  }

 private:
  static constexpr uint32_t kAlone = UINT32_MAX;

  uint32_t root_of(uint32_t device) {
    while (parent_[device] != device) device = parent_[device] = parent_[parent_[device]];
    return device;
  }

  void join(uint32_t one, uint32_t other, double bandwidth) {
    if (other < one) std::swap(one, other);
    LinkCluster joined;
    for (const uint32_t side : {one, other}) {
      if (cluster_[side] == kAlone) {
        joined.devices.push_back(side);
      } else if (speed_[side] == bandwidth) {
        LinkCluster& same = clusters_[cluster_[side]];
        std::ranges::copy(same.children, std::back_inserter(joined.children));
        std::ranges::copy(same.devices, std::back_inserter(joined.devices));
        same = {};
      } else {
        joined.children.push_back(cluster_[side]);
      }
    }
    parent_[other] = one;
    cluster_[one] = static_cast<uint32_t>(clusters_.size());
    speed_[one] = bandwidth;
    clusters_.push_back(std::move(joined));
  }

  /// Without the clusters that were merged into others.
  std::vector<LinkCluster> in_order() {
    std::vector<LinkCluster> kept;
    std::vector<uint32_t> number(clusters_.size());
    for (uint32_t i = 0; i < clusters_.size(); ++i) {
      if (clusters_[i].children.empty() && clusters_[i].devices.empty()) continue;
      number[i] = static_cast<uint32_t>(kept.size());
      for (uint32_t& child : clusters_[i].children) child = number[child];
      kept.push_back(std::move(clusters_[i]));
    }
    return kept;
  }

  std::vector<uint32_t> parent_;
  std::vector<uint32_t> cluster_;  ///< By root: its newest cluster.
  std::vector<double> speed_;      ///< By root: of that cluster.
  std::vector<LinkCluster> clusters_;
};

}  // namespace

std::vector<LinkCluster> cluster_links(const Links& links) {
  return Joining(links.devices()).run(maximum_spanning_tree(links));
}

}  // namespace corro::plan
