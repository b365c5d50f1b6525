// Every layer starts with its fastest way. If that does not fit, some layers have to change to ways
// that save memory and cost time, and the cheapest set of changes that saves enough is searched
// for. Layers of a model are alike: of those that save the same, the cheapest are taken first, so
// that the search chooses only how many. It branches over groups of such layers, the best price per
// byte first, and turns back where even that price for all that is still missing is no improvement.

#include "plan/partition/stage_choices.h"

#include <algorithm>
#include <cmath>

namespace corro::plan {
namespace {

constexpr uint64_t kMostTries = 1'000'000;  // Of one find().
constexpr double kRounding = 1e-12;

}  // namespace

void StageChoices::clear() {
  ways_.clear();
  begin_.assign(1, 0);
  fastest_.clear();
}

void StageChoices::add_node(std::span<const LayerWay> ways) {
  const auto fastest = std::ranges::min_element(ways, {}, &LayerWay::time);
  fastest_.push_back(static_cast<uint32_t>(fastest - ways.begin()));
  ways_.insert(ways_.end(), ways.begin(), ways.end());
  begin_.push_back(ways_.size());
}

uint64_t StageChoices::fits_up_to(uint64_t most) const {
  if (sum_.memory_in_flight <= 0) return most;
  const double fits = std::floor((memory_ - sum_.memory_fixed) / sum_.memory_in_flight);
  return fits >= static_cast<double>(most) ? most : static_cast<uint64_t>(std::max(fits, 0.0));
}

void StageChoices::take_picks() {
  sum_ = {};
  for (size_t node = 0; node < picks_.size(); ++node) {
    const LayerWay& way = ways_[begin_[node] + picks_[node]];
    sum_.time += way.time;
    sum_.memory_in_flight += way.memory_in_flight;
    sum_.memory_fixed += way.memory_fixed;
  }
}

bool StageChoices::find(uint64_t in_flight) {
  ++tries_;
  picks_ = fastest_;
  take_picks();
  const double need = memory_of(sum_, in_flight) - memory_;
  if (need <= 0) return true;
  find_savings(in_flight);
  if (groups_.empty() || groups_.front().most_saved < need) return false;
  best_cost_ = std::numeric_limits<double>::infinity();
  taken_.assign(groups_.size(), 0);
  best_taken_.clear();
  budget_ = kMostTries;
  search(0, need, 0);
  if (gave_up_ || best_taken_.empty()) return false;
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (best_taken_[i] == 0) continue;
    const size_t last = groups_[i].begin + best_taken_[i] - 1;
    for (size_t at = groups_[i].of_many ? groups_[i].begin : last; at <= last; ++at) {
      picks_[savings_[at].node] = savings_[at].way;
    }
  }
  take_picks();
  return true;
}

void StageChoices::find_savings(uint64_t in_flight) {
  single_.clear();
  savings_.clear();
  groups_.clear();
  std::vector<Saving> layer;
  for (uint32_t node = 0; node < fastest_.size(); ++node) {
    const auto ways = ways_of(node);
    const LayerWay& fastest = ways[fastest_[node]];
    layer.clear();
    for (uint32_t way = 0; way < ways.size(); ++way) {
      const double saved = memory_of(fastest, in_flight) - memory_of(ways[way], in_flight);
      if (saved > 0) layer.push_back({saved, ways[way].time - fastest.time, node, way});
    }
    if (layer.size() == 1) single_.push_back(layer.front());
    if (layer.size() > 1) add_layer_with_several(layer);
  }
  group_layers_alike();
  std::ranges::sort(groups_, {}, &Group::least_ratio);
  double most_saved = 0;
  for (size_t i = groups_.size(); i-- > 0;) {
    most_saved += savings_[groups_[i].end - 1].saved;
    groups_[i].most_saved = most_saved;
  }
}

/// Drops the ways that save less and cost more than another one.
void StageChoices::add_layer_with_several(std::vector<Saving>& layer) {
  std::ranges::sort(layer, [](const Saving& a, const Saving& b) {
    return a.saved != b.saved ? a.saved < b.saved : a.cost > b.cost;
  });
  const size_t begin = savings_.size();
  for (const Saving& saving : layer) {
    while (savings_.size() > begin && savings_.back().cost >= saving.cost) savings_.pop_back();
    savings_.push_back(saving);
  }
  close_group(begin, false);
}

void StageChoices::group_layers_alike() {
  std::ranges::sort(single_, [](const Saving& a, const Saving& b) {
    return a.saved != b.saved ? a.saved > b.saved : a.cost < b.cost;
  });
  for (size_t i = 0; i < single_.size();) {
    const double alike = single_[i].saved;
    const size_t begin = savings_.size();
    double cost = 0;
    for (double saved = alike; i < single_.size() && single_[i].saved == alike; ++i) {
      cost += single_[i].cost;
      savings_.push_back({saved, cost, single_[i].node, single_[i].way});
      saved += alike;
    }
    close_group(begin, true);
  }
}

void StageChoices::close_group(size_t begin, bool of_many) {
  Group group{.begin = begin, .end = savings_.size(), .of_many = of_many};
  group.least_ratio = std::numeric_limits<double>::infinity();
  for (size_t at = begin; at < group.end; ++at) {
    group.least_ratio = std::min(group.least_ratio, savings_[at].cost / savings_[at].saved);
  }
  groups_.push_back(group);
}

void StageChoices::search(size_t number, double need, double cost) {
  if (need <= 0) {
    if (cost < best_cost_) {
      best_cost_ = cost;
      best_taken_ = taken_;
    }
    return;
  }
  if (number == groups_.size()) return;
  const Group& group = groups_[number];
  if (group.most_saved * (1 + kRounding) < need) return;
  if (cost + need * group.least_ratio * (1 - kRounding) >= best_cost_) return;
  ++tries_;
  if (gave_up_ || budget_-- == 0) {
    gave_up_ = true;
    return;
  }
  // More than enough is never better, so the first saving that is enough is the largest to try.
  const auto begin = savings_.begin() + static_cast<ptrdiff_t>(group.begin);
  const auto end = savings_.begin() + static_cast<ptrdiff_t>(group.end);
  const auto enough = std::partition_point(
      begin, end, [need](const Saving& saving) { return saving.saved < need; });
  auto most = static_cast<size_t>(enough - begin) + (enough == end ? 0 : 1);
  for (size_t count = most; count > 0; --count) {
    const Saving& saving = savings_[group.begin + count - 1];
    taken_[number] = count;
    search(number + 1, need - saving.saved, cost + saving.cost);
  }
  taken_[number] = 0;
  search(number + 1, need, cost);
}

}  // namespace corro::plan
