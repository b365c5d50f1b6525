#include "plan/solve/memory_choice.h"

#include <algorithm>
#include <cmath>
#include <iterator>
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

/// Sums of the same numbers in another order differ by this.
double tolerance_of(double limit) { return 1e-12 * std::abs(limit); }

std::vector<uint32_t> layers_of(std::span<const LayerChoices> types) {
  std::vector<uint32_t> layers;
  for (const LayerChoices& type : types) layers.push_back(type.count);
  return layers;
}

MemoryOptions options_of(std::span<const LayerChoices> types) {
  std::vector<std::vector<LayerOption>> options;
  for (const LayerChoices& type : types) options.push_back(type.options);
  return MemoryOptions(std::move(options));
}

}  // namespace

MemoryOptions::MemoryOptions(std::vector<std::vector<LayerOption>> types) {
  for (size_t type = 0; type < types.size(); ++type) {
    const auto begin = static_cast<uint32_t>(options_.size());
    const auto placed = [&](std::vector<uint32_t> options) {
      for (uint32_t& option : options) option += begin;
      return options;
    };
    const std::vector<uint32_t> hull = placed(hull_of(types[type]));
    std::ranges::copy(types[type], std::back_inserter(options_));
    types_.push_back({begin, options_.size(), placed(frontier_of(types[type]))});
    for (size_t i = 1; i < hull.size(); ++i) {
      upgrades_.push_back(
          {gain_between(options_[hull[i - 1]], options_[hull[i]]), type, hull[i - 1], hull[i]});
    }
  }
  std::ranges::stable_sort(upgrades_, std::ranges::greater(), &Upgrade::gain);
}

void MemoryOptions::total(Choice& choice) const {
  choice.time = choice.memory = 0;
  for (size_t i = 0; i < options_.size(); ++i) {
    choice.time += choice.counts[i] * options_[i].time;
    choice.memory += choice.counts[i] * options_[i].memory;
  }
}

double MemoryOptions::bound(std::span<const uint32_t> layers, double limit) const {
  double time = 0;
  double memory = 0;
  for (size_t type = 0; type < types_.size(); ++type) {
    const LayerOption& smallest = options_[types_[type].frontier.front()];
    time += layers[type] * smallest.time;
    memory += layers[type] * smallest.memory;
  }
  if (memory > limit + tolerance_of(limit)) return kTooMuch;
  double room = std::max(limit - memory, 0.0);
  for (const Upgrade& upgrade : upgrades_) {
    const double whole =
        layers[upgrade.type] * (options_[upgrade.to].memory - options_[upgrade.from].memory);
    const double used = std::min(room, whole);
    time -= used * upgrade.gain;
    room -= used;
  }
  return time;
}

bool MemoryOptions::choose(std::span<const uint32_t> layers, double limit, Choice& choice) const {
  choice.counts.assign(options_.size(), 0);
  choice.memory = 0;
  for (size_t type = 0; type < types_.size(); ++type) {
    const uint32_t smallest = types_[type].frontier.front();
    choice.counts[smallest] = layers[type];
    choice.memory += layers[type] * options_[smallest].memory;
  }
  const double room = limit + tolerance_of(limit);
  if (choice.memory > room) return false;
  for (const Upgrade& upgrade : upgrades_) {
    const double step = options_[upgrade.to].memory - options_[upgrade.from].memory;
    uint32_t& from = choice.counts[upgrade.from];
    const double fits = std::max(std::floor((room - choice.memory) / step), 0.0);
    const auto moved = static_cast<uint32_t>(std::min<double>(fits, from));
    from -= moved;
    choice.counts[upgrade.to] += moved;
    choice.memory += moved * step;
    if (from > 0) break;  // The linear program would split a layer here.
  }
  total(choice);
  refine_pairs(layers, limit, choice);
  return true;
}

MemoryOptions::Pair MemoryOptions::best_pair(const Type& type, uint32_t layers,
                                             double limit) const {
  Pair best{.time = kTooMuch};
  const double room = limit + tolerance_of(limit);
  for (size_t i = 0; i < type.frontier.size(); ++i) {
    const LayerOption& small = options_[type.frontier[i]];
    if (small.memory * layers > room) break;
    for (size_t j = i; j < type.frontier.size(); ++j) {
      const LayerOption& large = options_[type.frontier[j]];
      const double step = large.memory - small.memory;
      const double fits = step > 0 ? std::floor((room - small.memory * layers) / step) : 0;
      const auto split = static_cast<uint32_t>(std::min<double>(fits, layers));
      const double time = small.time * (layers - split) + large.time * split;
      if (time < best.time) {
        best = {
            .time = time, .first = type.frontier[i], .second = type.frontier[j], .split = split};
      }
    }
  }
  return best;
}

/// Chooses each type's pair anew in what the others leave, while that helps.
void MemoryOptions::refine_pairs(std::span<const uint32_t> layers, double limit,
                                 Choice& choice) const {
  constexpr int kMostPasses = 8;
  bool better = true;
  for (int pass = 0; better && pass < kMostPasses; ++pass) {
    better = false;
    for (size_t type = 0; type < types_.size(); ++type) {
      double memory = 0;
      double time = 0;
      for (size_t i = types_[type].begin; i < types_[type].end; ++i) {
        memory += choice.counts[i] * options_[i].memory;
        time += choice.counts[i] * options_[i].time;
      }
      const Pair pair = best_pair(types_[type], layers[type], limit - choice.memory + memory);
      if (pair.time >= time * (1 - 1e-12)) continue;
      better = true;
      for (size_t i = types_[type].begin; i < types_[type].end; ++i) choice.counts[i] = 0;
      choice.counts[pair.first] = layers[type] - pair.split;
      choice.counts[pair.second] += pair.split;
      total(choice);
    }
  }
}

double least_memory(std::span<const LayerChoices> types) {
  check_types(types);
  double memory = 0;
  for (const LayerChoices& type : types) {
    memory += type.count * type.options[frontier_of(type.options).front()].memory;
  }
  return memory;
}

std::optional<MemoryChoice> choose_quickly(std::span<const LayerChoices> types, double limit) {
  check_types(types);
  const MemoryOptions options = options_of(types);
  const std::vector<uint32_t> layers = layers_of(types);
  MemoryOptions::Choice quick;
  if (!options.choose(layers, limit, quick)) return std::nullopt;
  MemoryChoice choice{.counts = {}, .time = quick.time, .memory = quick.memory};
  for (size_t type = 0; type < types.size(); ++type) {
    const auto begin = quick.counts.begin() + static_cast<ptrdiff_t>(options.begin_of(type));
    choice.counts.emplace_back(begin, begin + static_cast<ptrdiff_t>(types[type].options.size()));
  }
  choice.bound = std::min(options.bound(layers, limit), choice.time);
  choice.exact = choice.bound >= choice.time * (1 - 1e-12);
  return choice;
}

}  // namespace corro::plan
