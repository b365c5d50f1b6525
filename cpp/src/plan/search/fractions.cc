#include "plan/search/fractions.h"

#include <algorithm>
#include <utility>

namespace corro::plan {
namespace {

/// Those of which no mix of others has less of both, by growing bytes and falling seconds.
std::vector<Way> mixable(std::vector<Way> ways) {
  std::ranges::sort(ways, {}, [](const Way& way) { return std::pair(way.kept, way.seconds); });
  std::vector<Way> hull;
  const auto above = [](const Way& a, const Way& b, const Way& c) {
    return (b.seconds - a.seconds) * (c.kept - a.kept) >=
           (c.seconds - a.seconds) * (b.kept - a.kept);
  };
  for (const Way& way : ways) {
    if (!hull.empty() && way.seconds >= hull.back().seconds) continue;
    while (hull.size() > 1 && above(hull[hull.size() - 2], hull.back(), way)) hull.pop_back();
    hull.push_back(way);
  }
  return hull;
}

/// Most layers of one kind that a stage holds, fractions allowed.
double layers_that_fit(const std::vector<Way>& ways, double flight, double fixed, double period,
                       double limit) {
  const auto bytes_of = [&](const Way& way) { return std::max(1.0, fixed + way.kept * flight); };
  double most = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    most = std::max(most, std::min(period / ways[i].seconds, limit / bytes_of(ways[i])));
    if (i == 0) continue;
    // The mix of neighbours that fills time and memory alike.
    const Way& one = ways[i];
    const Way& other = ways[i - 1];
    const double a = one.seconds * limit - period * bytes_of(one);
    const double b = other.seconds * limit - period * bytes_of(other);
    if ((a < 0) == (b < 0)) continue;
    const double part = a / (a - b);
    most = std::max(most, period / (one.seconds + part * (other.seconds - one.seconds)));
  }
  return most;
}

}  // namespace

std::vector<Way> ways_of(const StageCoster& costs, uint32_t run, double others, bool offloads) {
  const LayerCost& cost = costs.layer(run);
  const double work = cost.forward + cost.backward;
  std::vector<Way> ways;
  for (size_t how = 0; how < static_cast<size_t>(Recompute::kOffload); ++how) {
    ways.push_back({work + cost.recompute[how], cost.kept[how]});
  }
  if (offloads) {
    const double moving = costs.offload_seconds(run);
    const double part = moving > 0 ? std::min(1.0, (work + others) / moving) : 1;
    ways.push_back({work + moving, 0});
    for (Way& way : ways) {
      way = {part * (work + kInterference * moving) + (1 - part) * way.seconds,
             (1 - part) * way.kept};
    }
    for (size_t how = 0; how < static_cast<size_t>(Recompute::kOffload); ++how) {
      ways.push_back({work + cost.recompute[how], cost.kept[how]});
    }
    ways.push_back({work + moving, 0});
  }
  return mixable(std::move(ways));
}

double layers_held(const std::vector<PoolOfFractions>& pools, uint32_t stages, double period) {
  // By how many units of each pool but the last one are taken: the most that the last stages hold.
  // The rest of these stages is on the last pool.
  std::vector<size_t> stride{1};
  for (size_t p = 0; p + 1 < pools.size(); ++p) {
    stride.push_back(stride.back() * (std::min(pools[p].units, stages) + 1));
  }
  constexpr double kNone = -1;
  std::vector<double> most(stride.back(), kNone);
  most[0] = 0;
  const auto taken = [&](size_t state, size_t pool) {
    return static_cast<uint32_t>(state % stride[pool + 1] / stride[pool]);
  };
  std::vector<double> here(pools.size());
  for (uint32_t s = 0; s < stages; ++s) {
    for (size_t p = 0; p < pools.size(); ++p) {
      here[p] = layers_that_fit(pools[p].ways, pools[p].flights[s], pools[p].fixed, period,
                                pools[p].limit);
    }
    for (size_t state = most.size(); state-- > 0;) {
      // The states that this one comes from are before it: not changed yet.
      uint32_t elsewhere = 0;
      double best = kNone;
      for (size_t p = 0; p + 1 < pools.size(); ++p) {
        elsewhere += taken(state, p);
        if (taken(state, p) == 0) continue;
        const double before = most[state - stride[p]];
        if (before != kNone) best = std::max(best, before + here[p]);
      }
      const bool last_has_room = s >= elsewhere && s - elsewhere < pools.back().units;
      if (last_has_room && most[state] != kNone) {
        best = std::max(best, most[state] + here.back());
      }
      most[state] = best;
    }
  }
  return std::max(0.0, *std::ranges::max_element(most));
}

double least_slowing(const PoolOfFractions& pool, double layers, uint32_t stages) {
  const double fastest = layers * pool.ways.back().seconds;
  const auto holds_all = [&](double seconds) {
    return layers_that_fit(pool.ways, pool.flights.front(), pool.fixed, seconds,
                           stages * pool.limit) >= layers;
  };
  double low = fastest;
  double high = layers * pool.ways.front().seconds;
  if (holds_all(low)) return 0;
  while (high - low > 1e-4 * high) {
    const double middle = (low + high) / 2;
    (holds_all(middle) ? high : low) = middle;
  }
  return low - fastest;
}

}  // namespace corro::plan
