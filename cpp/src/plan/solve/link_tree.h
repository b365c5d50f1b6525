// Devices in clusters of ever slower links: the dendrogram of the maximum spanning tree. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/solve/placement.h"

namespace corro::plan {

/// A cluster of the tree: its devices reach one another over links no slower than some bandwidth.
struct LinkCluster {
  std::vector<uint32_t> children;  ///< Numbers of clusters, all smaller than this one's.
  std::vector<uint32_t> devices;   ///< Those that are in no child.
};

/// Clusters with children before parents; the last one holds all devices. Equal links make one
/// cluster. O(devices^2).
[[nodiscard]] std::vector<LinkCluster> cluster_links(const Links& links);

}  // namespace corro::plan
