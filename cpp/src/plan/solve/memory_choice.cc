#include "plan/solve/memory_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"

namespace corro::plan {
namespace {

constexpr double kTooMuch = std::numeric_limits<double>::infinity();

void check_types(std::span<const LayerChoices> types) {
  for (const LayerChoices& type : types) {
    CORRO_CHECK(!type.options.empty(), "a layer type has no options");
    for (const LayerOption& option : type.options)
      CORRO_CHECK(option.time >= 0 && option.time < kTooMuch && option.memory >= 0 &&
                      option.memory < kTooMuch,
                  option.time, option.memory);
  }
}

/// Options of which none is beaten in both, by growing memory and falling time.
std::vector<uint32_t> frontier_of(const std::vector<LayerOption>& options) {
  std::vector<uint32_t> order(options.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, [&](uint32_t a, uint32_t b) {
    return std::pair(options[a].memory, options[a].time) <
           std::pair(options[b].memory, options[b].time);
  });
  std::vector<uint32_t> frontier;
  for (const uint32_t option : order) {
    if (frontier.empty() || options[option].time < options[frontier.back()].time)
      frontier.push_back(option);
  }
  return frontier;
}

/// Time saved for each unit of memory by going from one option to a larger one.
double gain_between(const LayerOption& from, const LayerOption& to) {
  return (from.time - to.time) / (to.memory - from.memory);
}

/// The frontier's convex part: gains fall along it.
std::vector<uint32_t> hull_of(const std::vector<LayerOption>& options) {
  std::vector<uint32_t> hull;
  for (const uint32_t next : frontier_of(options)) {
    while (hull.size() > 1 && gain_between(options[hull[hull.size() - 2]], options[hull.back()]) <=
                                  gain_between(options[hull.back()], options[next]))
      hull.pop_back();
    hull.push_back(next);
  }
  return hull;
}

/// One step up the hull of a type.
struct Upgrade {
  double gain;
  size_t type;
  uint32_t from;
  uint32_t to;
};

/// All steps of all types, the best gain first; along one hull in its order.
std::vector<Upgrade> upgrades_of(std::span<const LayerChoices> types) {
  std::vector<Upgrade> upgrades;
  for (size_t type = 0; type < types.size(); ++type) {
    const auto& options = types[type].options;
    const std::vector<uint32_t> hull = hull_of(options);
    for (size_t i = 1; i < hull.size(); ++i)
      upgrades.push_back(
          {gain_between(options[hull[i - 1]], options[hull[i]]), type, hull[i - 1], hull[i]});
  }
  std::ranges::stable_sort(upgrades, std::ranges::greater(), &Upgrade::gain);
  return upgrades;
}

/// Adds up what the counts take.
void total(std::span<const LayerChoices> types, MemoryChoice& choice) {
  choice.time = choice.memory = 0;
  for (size_t type = 0; type < types.size(); ++type) {
    for (size_t option = 0; option < types[type].options.size(); ++option) {
      choice.time += choice.counts[type][option] * types[type].options[option].time;
      choice.memory += choice.counts[type][option] * types[type].options[option].memory;
    }
  }
}

/// All layers on their smallest option.
MemoryChoice smallest_choice(std::span<const LayerChoices> types) {
  MemoryChoice choice;
  for (const LayerChoices& type : types) {
    choice.counts.emplace_back(type.options.size());
    choice.counts.back()[frontier_of(type.options).front()] = type.count;
  }
  total(types, choice);
  return choice;
}

/// Sums of the same numbers in another order differ by this.
double tolerance_of(double limit) { return 1e-12 * std::abs(limit); }

/// The best two options of a type, and how many layers take the second, within a limit of its own.
struct Pair {
  double time = kTooMuch;
  uint32_t first = 0;
  uint32_t second = 0;
  uint32_t split = 0;
};

Pair best_pair(const LayerChoices& type, double limit) {
  const std::vector<uint32_t> frontier = frontier_of(type.options);
  Pair best;
  const double room = limit + tolerance_of(limit);
  for (size_t i = 0; i < frontier.size(); ++i) {
    const LayerOption& small = type.options[frontier[i]];
    if (small.memory * type.count > room) break;
    for (size_t j = i; j < frontier.size(); ++j) {
      const LayerOption& large = type.options[frontier[j]];
      const double step = large.memory - small.memory;
      const double fits = step > 0 ? std::floor((room - small.memory * type.count) / step) : 0;
      const auto split = static_cast<uint32_t>(std::min<double>(fits, type.count));
      const double time = small.time * (type.count - split) + large.time * split;
      if (time < best.time)
        best = {.time = time, .first = frontier[i], .second = frontier[j], .split = split};
    }
  }
  return best;
}

/// Chooses each type's pair anew in what the others leave, while that helps.
void refine_pairs(std::span<const LayerChoices> types, double limit, MemoryChoice& choice) {
  constexpr int kMostPasses = 8;
  bool better = true;
  for (int pass = 0; better && pass < kMostPasses; ++pass) {
    better = false;
    for (size_t type = 0; type < types.size(); ++type) {
      double memory = 0;
      double time = 0;
      for (size_t option = 0; option < types[type].options.size(); ++option) {
        memory += choice.counts[type][option] * types[type].options[option].memory;
        time += choice.counts[type][option] * types[type].options[option].time;
      }
      const Pair pair = best_pair(types[type], limit - choice.memory + memory);
      if (pair.time >= time * (1 - 1e-12)) continue;
      better = true;
      std::ranges::fill(choice.counts[type], 0U);
      choice.counts[type][pair.first] = types[type].count - pair.split;
      choice.counts[type][pair.second] += pair.split;
      total(types, choice);
    }
  }
}

/// A partial choice: the first layers, in one way.
struct Point {
  double memory;
  double time;
  uint32_t before;  ///< Number of the point it adds a layer to, in the list named by `added`.
  bool added;       ///< True: one layer more of this option; false: the same without the option.
};
using Front = std::vector<Point>;

/// Sorts by memory, drops what is beaten, and keeps at most `most` points: the fastest of each
/// stretch of memory, and the smallest one, so that what fits is never lost.
bool thin(Front& front, double limit, size_t most) {
  std::ranges::stable_sort(front, [](const Point& a, const Point& b) {
    return a.memory != b.memory ? a.memory < b.memory : a.time < b.time;
  });
  Front kept;
  for (const Point& point : front) {
    if (kept.empty() || point.time < kept.back().time) kept.push_back(point);
  }
  const bool whole = kept.size() <= most;
  if (!whole) {
    const double stretch = limit / static_cast<double>(most - 1);
    Front thinned{kept.front()};
    for (size_t i = 1; i < kept.size(); ++i) {
      const bool last = i + 1 == kept.size();
      if (last || std::floor(kept[i].memory / stretch) != std::floor(kept[i + 1].memory / stretch))
        thinned.push_back(kept[i]);
    }
    kept = std::move(thinned);
  }
  front = std::move(kept);
  return whole;
}

/// fronts[type][option][layers]: the best sums of all types before, and of so many layers of this
/// type that take one of its first options. Either a layer more takes the option, or none does.
class FrontProgram {
 public:
  FrontProgram(std::span<const LayerChoices> types, double limit, size_t most)
      : types_(types), limit_(limit + tolerance_of(limit)), most_(std::max<size_t>(most, 3)) {
    for (const LayerChoices& type : types) {
      frontiers_.push_back(frontier_of(type.options));
      needed_after_.push_back(0);
      for (double& needed : needed_after_) needed += smallest_of(needed_after_.size() - 1);
      needed_after_.back() = 0;
    }
  }

  /// False for `exact` once points had to be dropped.
  std::optional<MemoryChoice> run() {
    const Front nothing{{.memory = 0, .time = 0, .before = 0, .added = false}};
    const Front* start = &nothing;
    for (size_t type = 0; type < types_.size(); ++type) {
      steps_.emplace_back();
      for (size_t option = 0; option < frontiers_[type].size(); ++option) add_option(type, *start);
      start = &steps_.back().back().back();
    }
    if (start->empty()) return std::nullopt;
    return trace(static_cast<uint32_t>(start->size() - 1));
  }

 private:
  double smallest_of(size_t type) const {
    return types_[type].options[frontiers_[type].front()].memory * types_[type].count;
  }

  void add_option(size_t type, const Front& start) {
    auto& rows = steps_[type];
    const std::vector<Front>* before = rows.empty() ? nullptr : &rows.back();
    const LayerOption& option = types_[type].options[frontiers_[type][rows.size()]];
    const double least = types_[type].options[frontiers_[type].front()].memory;
    std::vector<Front> row;
    for (uint32_t layers = 0; layers <= types_[type].count; ++layers) {
      Front front;
      if (layers == 0) front = unchanged(start);
      if (layers > 0 && before != nullptr) front = unchanged((*before)[layers]);
      const double needed = needed_after_[type] + least * (types_[type].count - layers);
      if (layers > 0) {
        const Front& fewer = row.back();
        for (uint32_t i = 0; i < fewer.size(); ++i) {
          const double memory = fewer[i].memory + option.memory;
          if (memory + needed <= limit_)
            front.push_back({memory, fewer[i].time + option.time, i, true});
        }
      }
      exact_ = thin(front, limit_, most_) && exact_;
      row.push_back(std::move(front));
    }
    rows.push_back(std::move(row));
  }

  static Front unchanged(const Front& front) {
    Front same = front;
    for (uint32_t i = 0; i < same.size(); ++i) {
      same[i].before = i;
      same[i].added = false;
    }
    return same;
  }

  MemoryChoice trace(uint32_t point) const {
    MemoryChoice choice;
    for (const LayerChoices& type : types_) choice.counts.emplace_back(type.options.size());
    for (size_t type = types_.size(); type-- > 0;) {
      size_t layers = types_[type].count;
      size_t option = frontiers_[type].size() - 1;
      while (true) {
        const Point& at = steps_[type][option][layers][point];
        point = at.before;
        if (at.added) {
          ++choice.counts[type][frontiers_[type][option]];
          --layers;
        } else if (option == 0 || layers == 0) {
          break;
        } else {
          --option;
        }
      }
    }
    total(types_, choice);
    choice.exact = exact_;
    return choice;
  }

  std::span<const LayerChoices> types_;
  double limit_;
  size_t most_;
  std::vector<std::vector<uint32_t>> frontiers_;
  std::vector<double> needed_after_;  ///< By type: the least that the types after it take.
  std::vector<std::vector<std::vector<Front>>> steps_;
  bool exact_ = true;
};

}  // namespace

double least_memory(std::span<const LayerChoices> types) {
  check_types(types);
  return smallest_choice(types).memory;
}

double memory_bound(std::span<const LayerChoices> types, double limit) {
  check_types(types);
  const MemoryChoice smallest = smallest_choice(types);
  if (smallest.memory > limit + tolerance_of(limit)) return kTooMuch;
  double time = smallest.time;
  double room = std::max(limit - smallest.memory, 0.0);
  for (const Upgrade& upgrade : upgrades_of(types)) {
    const auto& options = types[upgrade.type].options;
    const double whole =
        types[upgrade.type].count * (options[upgrade.to].memory - options[upgrade.from].memory);
    const double used = std::min(room, whole);
    time -= used * upgrade.gain;
    room -= used;
  }
  return time;
}

std::optional<MemoryChoice> choose_quickly(std::span<const LayerChoices> types, double limit) {
  check_types(types);
  MemoryChoice choice = smallest_choice(types);
  const double room = limit + tolerance_of(limit);
  if (choice.memory > room) return std::nullopt;
  for (const Upgrade& upgrade : upgrades_of(types)) {
    const auto& options = types[upgrade.type].options;
    const double step = options[upgrade.to].memory - options[upgrade.from].memory;
    auto& counts = choice.counts[upgrade.type];
    const double fits = std::max(std::floor((room - choice.memory) / step), 0.0);
    const auto moved = static_cast<uint32_t>(std::min<double>(fits, counts[upgrade.from]));
    counts[upgrade.from] -= moved;
    counts[upgrade.to] += moved;
    choice.memory += moved * step;
    if (counts[upgrade.from] > 0) break;  // The linear program would split a layer here.
  }
  total(types, choice);
  refine_pairs(types, limit, choice);
  choice.bound = std::min(memory_bound(types, limit), choice.time);
  choice.exact = choice.bound >= choice.time * (1 - 1e-12);
  return choice;
}

std::optional<MemoryChoice> choose_exactly(std::span<const LayerChoices> types, double limit,
                                           size_t most_points) {
  std::optional<MemoryChoice> quick = choose_quickly(types, limit);
  if (!quick || quick->exact) return quick;
  std::optional<MemoryChoice> choice = FrontProgram(types, limit, most_points).run();
  if (!choice) return quick;
  if (choice->time > quick->time) return quick;
  choice->bound = choice->exact ? choice->time : std::min(quick->bound, choice->time);
  return choice;
}

}  // namespace corro::plan
