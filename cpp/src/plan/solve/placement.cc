#include "plan/solve/placement.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/solve/link_tree.h"

namespace corro::plan {
namespace {

uint64_t ranks_of(std::span<const Axis> axes) {
  uint64_t ranks = 1;
  for (const Axis& axis : axes) ranks *= axis.size;
  return ranks;
}

/// Ranks from one member of a group of this axis to the next.
uint32_t stride_of(std::span<const Axis> axes, size_t axis) {
  return static_cast<uint32_t>(ranks_of(axes.first(axis)));
}

/// The group's time: its bytes over its slowest link. `rank` is any member.
double group_time(const Links& links, std::span<const Axis> axes, size_t number, uint32_t rank,
                  std::span<const uint32_t> devices) {
  const Axis& axis = axes[number];
  if (axis.size < 2) return 0;
  const uint32_t stride = stride_of(axes, number);
  const uint32_t first = rank - rank / stride % axis.size * stride;
  double slowest = std::numeric_limits<double>::infinity();
  for (uint32_t i = 0; i + 1 < axis.size; ++i)
    slowest = std::min(
        slowest, links.between(devices[first + i * stride], devices[first + (i + 1) * stride]));
  if (axis.shape == GroupShape::kRing && axis.size > 2)
    slowest =
        std::min(slowest, links.between(devices[first + (axis.size - 1) * stride], devices[first]));
  return axis.bytes / slowest;
}

/// First member of each group of an axis.
std::vector<uint32_t> first_members(std::span<const Axis> axes, size_t number) {
  const uint32_t stride = stride_of(axes, number);
  const auto ranks = static_cast<uint32_t>(ranks_of(axes));
  std::vector<uint32_t> firsts;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    if (rank / stride % axes[number].size == 0) firsts.push_back(rank);
  }
  return firsts;
}

/// Devices that are placed as one: by its ranks, counted along the axes so far.
using Item = std::vector<uint32_t>;

/// Joins `size` items to one, as deep in the tree as there are so many; items by cluster.
std::vector<std::vector<Item>> join_items(const std::vector<LinkCluster>& clusters,
                                          std::vector<std::vector<Item>> items, uint32_t size) {
  std::vector<std::vector<Item>> joined(clusters.size());
  for (size_t number = 0; number < clusters.size(); ++number) {
    std::vector<uint32_t> children = clusters[number].children;
    std::ranges::stable_sort(children, std::ranges::greater(),
                             [&](uint32_t child) { return items[child].size(); });
    // What was joined in a child is on faster links than what had to be joined here.
    std::vector<Item> pool;
    for (const uint32_t child : children) {
      std::ranges::move(items[child], std::back_inserter(pool));
      items[child].clear();
    }
    std::ranges::move(items[number], std::back_inserter(pool));
    const size_t whole = pool.size() / size * size;
    for (size_t i = 0; i < whole; ++i) {
      if (i % size == 0) joined[number].emplace_back();
      std::ranges::copy(pool[i], std::back_inserter(joined[number].back()));
    }
    pool.erase(pool.begin(), pool.begin() + static_cast<std::ptrdiff_t>(whole));
    items[number] = std::move(pool);
  }
  return joined;
}

/// Ranks count the first axis of `axes` fastest; items the first of `order`.
std::vector<uint32_t> by_rank(const Item& item, std::span<const Axis> axes,
                              const std::vector<size_t>& order) {
  std::vector<uint32_t> devices(item.size());
  for (uint32_t i = 0; i < item.size(); ++i) {
    uint32_t rest = i;
    uint32_t rank = 0;
    for (const size_t axis : order) {
      rank += rest % axes[axis].size * stride_of(axes, axis);
      rest /= axes[axis].size;
    }
    devices[rank] = item[i];
  }
  return devices;
}

/// Fills the axes in this order; the best of the placements that are as deep in the tree.
Placement fill(const Links& links, const std::vector<LinkCluster>& clusters,
               std::span<const Axis> axes, const std::vector<size_t>& order) {
  std::vector<std::vector<Item>> items(clusters.size());
  for (size_t number = 0; number < clusters.size(); ++number) {
    for (const uint32_t device : clusters[number].devices) items[number].push_back({device});
  }
  for (const size_t axis : order) {
    if (axes[axis].size > 1) items = join_items(clusters, std::move(items), axes[axis].size);
  }
  constexpr int kMostTried = 8;
  int tried = 0;
  Placement best;
  for (const std::vector<Item>& here : items) {
    for (const Item& item : here) {
      if (++tried > kMostTried) return best;
      Placement placement{.devices = by_rank(item, axes, order), .cost = 0};
      placement.cost = placement_cost(links, axes, placement.devices);
      if (best.devices.empty() || placement.cost < best.cost) best = std::move(placement);
    }
  }
  return best;
}

/// Swaps devices while that makes the slowest groups faster, or others without harm to them.
class Climb {
 public:
  Climb(const Links& links, std::span<const Axis> axes, Placement& placement, size_t swaps)
      : links_(links),
        axes_(axes),
        placement_(placement),
        left_(swaps),
        ranks_(placement.devices.size()),
        places_(placement.devices),
        times_(axes.size()) {
    std::vector<bool> used(links.devices());
    for (const uint32_t device : places_) used[device] = true;
    for (uint32_t device = 0; device < links.devices(); ++device) {
      if (!used[device]) places_.push_back(device);
    }
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      for (const uint32_t first : first_members(axes, axis)) count(axis, first, true);
    }
  }

  void run() {
    while (left_ > 0 && pass()) {
    }
    placement_.devices.assign(places_.begin(),
                              places_.begin() + static_cast<std::ptrdiff_t>(ranks_));
    placement_.cost = placement_cost(links_, axes_, placement_.devices);
  }

 private:
  struct Score {
    double slowest;
    double all;
    [[nodiscard]] bool better_than(const Score& other) const {
      const double margin = 1e-12 * other.slowest;
      if (slowest < other.slowest - margin) return true;
      return slowest <= other.slowest + margin && all < other.all * (1 - 1e-9);
    }
  };

  [[nodiscard]] Score score() const {
    double slowest = 0;
    for (const auto& times : times_) slowest += times.empty() ? 0 : *times.rbegin();
    return {slowest, all_};
  }

  void count(size_t axis, uint32_t rank, bool add) {
    const double time = group_time(links_, axes_, axis, rank, places_);
    all_ += add ? time : -time;
    if (add) {
      times_[axis].insert(time);
    } else {
      times_[axis].erase(times_[axis].find(time));
    }
  }

  void count_both(uint32_t one, uint32_t other, bool add) {
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      const uint32_t stride = stride_of(axes_, axis);
      const auto first = [&](uint32_t rank) {
        return rank - rank / stride % axes_[axis].size * stride;
      };
      if (one < ranks_) count(axis, one, add);
      if (other < ranks_ && (one >= ranks_ || first(one) != first(other))) count(axis, other, add);
    }
  }

  bool try_swap(uint32_t one, uint32_t other) {
    --left_;
    const Score before = score();
    const double all = all_;
    count_both(one, other, false);
    std::swap(places_[one], places_[other]);
    count_both(one, other, true);
    if (score().better_than(before)) return true;
    count_both(one, other, false);
    std::swap(places_[one], places_[other]);
    count_both(one, other, true);
    all_ = all;
    return false;
  }

  /// Moves a member of a slowest group, of any axis.
  bool pass() {
    for (size_t axis = 0; axis < axes_.size(); ++axis) {
      for (const uint32_t first : first_members(axes_, axis)) {
        if (group_time(links_, axes_, axis, first, places_) < *times_[axis].rbegin()) continue;
        for (uint32_t member = 0; member < axes_[axis].size; ++member) {
          const uint32_t rank = first + member * stride_of(axes_, axis);
          for (uint32_t other = 0; other < places_.size(); ++other) {
            if (left_ == 0) return false;
            if (other != rank && try_swap(rank, other)) return true;
          }
        }
      }
    }
    return false;
  }

  const Links& links_;
  std::span<const Axis> axes_;
  Placement& placement_;
  size_t left_;
  size_t ranks_;
  std::vector<uint32_t> places_;  ///< Devices by rank, then those without one.
  std::vector<std::multiset<double>> times_;
  double all_ = 0;
};

Status check_axes(const Links& links, std::span<const Axis> axes) {
  constexpr size_t kMostAxes = 6;
  if (axes.size() > kMostAxes)
    return {Code::kInvalidArgument,
            fmt::format("placement: {} axes; at most {}", axes.size(), kMostAxes)};
  uint64_t ranks = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size == 0 || !(axes[i].bytes >= 0) || !std::isfinite(axes[i].bytes))
      return {Code::kInvalidArgument, fmt::format("placement: axis {} has size {} and {} bytes", i,
                                                  axes[i].size, axes[i].bytes)};
    ranks *= axes[i].size;
    if (ranks > links.devices())
      return {Code::kInvalidArgument,
              fmt::format("placement: {} or more ranks for {} devices", ranks, links.devices())};
  }
  return {};
}

}  // namespace

double ring_bytes(uint32_t size, double bytes) { return 2.0 * (size - 1.0) / size * bytes; }

double placement_cost(const Links& links, std::span<const Axis> axes,
                      std::span<const uint32_t> devices) {
  CORRO_CHECK(devices.size() == ranks_of(axes), devices.size(), ranks_of(axes));
  double cost = 0;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    double slowest = 0;
    for (const uint32_t first : first_members(axes, axis))
      slowest = std::max(slowest, group_time(links, axes, axis, first, devices));
    cost += slowest;
  }
  return cost;
}

Result<Placement> place(const Links& links, std::span<const Axis> axes,
                        const PlacementOptions& options) {
  CORRO_TRY(check_axes(links, axes));
  const std::vector<LinkCluster> clusters = cluster_links(links);
  // Axes of one rank go nowhere, so their order does not matter.
  std::vector<size_t> order;
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    if (axes[axis].size > 1) order.push_back(axis);
  }
  std::vector<Placement> filled;
  do {
    filled.push_back(fill(links, clusters, axes, order));
  } while (std::next_permutation(order.begin(), order.end()));
  std::ranges::stable_sort(filled, {}, &Placement::cost);
  if (options.most_swaps == 0) return filled.front();
  constexpr size_t kMostClimbs = 4;
  filled.resize(std::min(filled.size(), kMostClimbs));
  for (Placement& placement : filled)
    Climb(links, axes, placement, options.most_swaps / filled.size()).run();
  return *std::ranges::min_element(filled, {}, &Placement::cost);
}

}  // namespace corro::plan
