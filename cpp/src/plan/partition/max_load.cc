// How the search works
//
// best[ideal][p][a] is the smallest largest load of all splits of `ideal` over at most p processors
// and a accelerators. One more stage takes the ideal from one of its parts:
//
//   best[ideal][p][a] = min over parts of
//                         max(best[part][p][a-1], load of the rest on an accelerator) or
//                         max(best[part][p-1][a], load of the rest on a processor)
//
// Nearly all parts are useless. A pass of the search has a limit, and everything above the limit is
// dropped: while nodes are removed from an ideal one by one, the computing time of the removed
// nodes only grows, so the walk turns back when it exceeds the limit. (The time to send outputs may
// fall again, so it ends no walk.) An ideal whose work, or whose missing work, is more than the
// devices can do within the limit is left out altogether. What a pass finds below its limit is the
// optimum; if a pass finds nothing, the next one has a larger limit. The first limit is just above
// what perfectly balanced devices without any sending would need.

#include "plan/partition/max_load.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "plan/partition/ideals.h"
#include "plan/partition/max_load_graph.h"

namespace corro::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint64_t kMostSteps = 4'000'000'000;
constexpr size_t kMostTable = size_t{1} << 26U;  // 512 MiB.
/// The limit of a pass beside the last one's. A pass whose limit is too large costs more than one
/// that finds nothing.
constexpr double kRise = 1.15;
/// Sums of the same numbers in another order differ by less.
constexpr double kRounding = 1e-9;

/// A set of units that grows and shrinks one by one, and its load.
class Load {
 public:
  Load(const MaxLoadGraph& graph, double memory)
      : graph_(graph), memory_(memory), units_of_net_(graph.nets.size(), 0) {
    sums_.reserve(graph.units.size() + 1);
    clear();
  }

  void clear() { sums_.assign(1, {}); }

  void add(uint32_t number) {
    const auto& unit = graph_.units[number];
    Sums sums = sums_.back();
    sums.processor_time += unit.processor_time;
    sums.accelerator_time += unit.accelerator_time;
    sums.size += unit.size;
    sums.bytes += unit.bytes;
    sums.fits = sums.fits && unit.on_accelerator && sums.size <= memory_;
    for (const uint32_t net : unit.nets) {
      const auto& [send_time, units] = graph_.nets[net];
      const uint32_t before = units_of_net_[net]++;
      if (before == 0) sums.send_time += send_time;
      if (before + 1 == units) sums.send_time -= send_time;
    }
    sums_.push_back(sums);
  }

  /// Takes back the last add().
  void remove(uint32_t number) {
    for (const uint32_t net : graph_.units[number].nets) --units_of_net_[net];
    sums_.pop_back();
  }

  [[nodiscard]] double processor() const { return sums_.back().processor_time; }
  [[nodiscard]] double accelerator() const {
    return accelerator_without_sending() + sums_.back().send_time;
  }
  /// Only grows with the set.
  [[nodiscard]] double accelerator_without_sending() const {
    return sums_.back().fits ? sums_.back().accelerator_time : kNever;
  }
  [[nodiscard]] double bytes() const { return sums_.back().bytes; }

 private:
  struct Sums {
    double processor_time = 0;
    double accelerator_time = 0;
    double send_time = 0;
    double size = 0;
    double bytes = 0;
    bool fits = true;
  };
  const MaxLoadGraph& graph_;
  double memory_;
  std::vector<uint32_t> units_of_net_;
  std::vector<Sums> sums_;  ///< After each add().
};

/// What devices can do at most within a limit.
class Capacity {
 public:
  Capacity(const MaxLoadGraph& graph, uint32_t processors, uint32_t accelerators)
      : processors_(processors), accelerators_(accelerators) {
    for (const auto& unit : graph.units) {
      const double work = work_of(unit);
      if (work > 0) units_.emplace_back(unit.processor_time, work);
    }
    std::ranges::sort(units_, [](const auto& a, const auto& b) {
      return a.first * b.second < b.first * a.second;
    });
  }

  /// Accelerator time that a unit needs for sure, unless a processor takes the unit.
  static double work_of(const MaxLoadGraph::Unit& unit) {
    return unit.on_accelerator ? unit.accelerator_time : 0;
  }

  /// The most work that processors can take away: as if units could be broken, the best ones first.
  [[nodiscard]] double of_processors(double limit) const {
    double time = limit * processors_;
    double work = 0;
    if (processors_ == 0) return 0;
    for (const auto& [processor_time, unit_work] : units_) {
      if (processor_time >= time) return work + (time > 0 ? unit_work * time / processor_time : 0);
      time -= processor_time;
      work += unit_work;
    }
    return work;
  }

  /// No split has a smaller load: even with units that can be broken and outputs that need no time.
  [[nodiscard]] double least_limit() const {
    double total = 0;
    for (const auto& [processor_time, work] : units_) total += work;
    if (total <= of_processors(0)) return 0;
    double low = 0;
    double high = accelerators_ > 0 ? total / accelerators_ : total;
    while (accelerators_ == 0 && of_processors(high) < total * (1 - kRounding) && high < 1e300) {
      high *= 2;
    }
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      const double done = middle * accelerators_ + of_processors(middle);
      (done < total ? low : high) = middle;
    }
    return low;
  }

 private:
  uint32_t processors_;
  uint32_t accelerators_;
  std::vector<std::pair<double, double>> units_;  ///< Processor time and work, by their ratio.
};

class MaxLoadSearch {
 public:
  MaxLoadSearch(const MaxLoadInstance& instance, const MaxLoadGraph& graph, const Ideals& ideals)
      : instance_(instance), graph_(graph), ideals_(ideals), load_(graph, instance.memory_bytes) {
    const auto units = static_cast<uint32_t>(graph.units.size());
    processors_ = std::min(instance.processors, units);  // More devices than units are idle.
    accelerators_ = std::min(instance.accelerators, units);
    row_ = (processors_ + size_t{1}) * (accelerators_ + size_t{1});
  }

  Result<PartitionResult> run();

 private:
  Status pass(double limit);
  void compute(IdealId ideal, double limit);
  void take(double* row, const double* part, double limit) const;
  void drop_hopeless(IdealId ideal, double limit, double spared);
  void add_work();
  [[nodiscard]] double least_accelerators(double work, double limit, double spared) const {
    return work <= spared ? 0 : (work - spared) / limit * (1 - kRounding);
  }
  [[nodiscard]] double& best(IdealId ideal, uint32_t p, uint32_t a) {
    return best_[ideal * row_ + p * (accelerators_ + size_t{1}) + a];
  }
  [[nodiscard]] Status no_split() const;
  PartitionStage last_stage(IdealId& ideal, uint32_t& p, uint32_t& a);
  PartitionStage make_stage(const std::vector<uint32_t>& units, bool on_accelerator);

  const MaxLoadInstance& instance_;
  const MaxLoadGraph& graph_;
  const Ideals& ideals_;
  Load load_;
  uint32_t processors_ = 0;
  uint32_t accelerators_ = 0;
  size_t row_ = 0;
  std::vector<double> best_;
  std::vector<bool> alive_;   ///< Whether some entry of the ideal is within the limit.
  std::vector<double> work_;  ///< Of each ideal.
  uint64_t steps_ = 0;
};

void MaxLoadSearch::add_work() {
  work_.assign(ideals_.count(), 0);
  for (IdealId ideal = 1; ideal < ideals_.count(); ++ideal) {
    const auto link = ideals_.links(ideal).front();
    work_[ideal] = work_[link.below] + Capacity::work_of(graph_.units[link.node]);
  }
}

/// Puts one more stage, whose load is in load_, onto a part.
void MaxLoadSearch::take(double* row, const double* part, double limit) const {
  const size_t columns = accelerators_ + size_t{1};
  const double accelerator = load_.accelerator();
  if (accelerator <= limit) {
    for (size_t at = 0; at < row_; at += columns) {
      for (size_t a = 1; a < columns; ++a) {
        row[at + a] = std::min(row[at + a], std::max(part[at + a - 1], accelerator));
      }
    }
  }
  const double processor = load_.processor();
  if (processors_ > 0 && processor <= limit) {
    for (size_t at = columns; at < row_; ++at) {
      row[at] = std::min(row[at], std::max(part[at - columns], processor));
    }
  }
}

void MaxLoadSearch::compute(IdealId ideal, double limit) {
  double* row = &best_[ideal * row_];
  load_.clear();
  ideals_.visit_below(
      ideal,
      [&](uint32_t node, IdealId part) {
        ++steps_;
        load_.add(node);
        if (alive_[part]) take(row, &best_[part * row_], limit);
        return load_.accelerator_without_sending() <= limit ||
               (processors_ > 0 && load_.processor() <= limit);
      },
      [&](uint32_t node) { load_.remove(node); });
  for (uint32_t p = 0; p <= processors_; ++p) {
    for (uint32_t a = 0; a <= accelerators_; ++a) {
      double& value = best(ideal, p, a);
      if (p > 0) value = std::min(value, best(ideal, p - 1, a));
      if (a > 0) value = std::min(value, best(ideal, p, a - 1));
    }
  }
}

/// Forgets what leaves more work than the devices that are left can do.
void MaxLoadSearch::drop_hopeless(IdealId ideal, double limit, double spared) {
  const double missing = least_accelerators(work_.back() - work_[ideal], limit, spared);
  bool alive = false;
  for (uint32_t a = 0; a <= accelerators_; ++a) {
    for (uint32_t p = 0; p <= processors_; ++p) {
      double& value = best(ideal, p, a);
      if (missing > accelerators_ - a) value = kNever;
      alive = alive || value <= limit;
    }
  }
  alive_[ideal] = alive;
}

Status MaxLoadSearch::pass(double limit) {
  const Capacity capacity(graph_, processors_, accelerators_);
  const double spared = capacity.of_processors(limit) * (1 + kRounding);
  best_.assign(ideals_.count() * row_, kNever);
  alive_.assign(ideals_.count(), false);
  std::fill_n(best_.begin(), row_, 0.0);
  alive_[0] = true;
  for (IdealId ideal = 1; ideal < ideals_.count(); ++ideal) {
    const double before = std::ceil(least_accelerators(work_[ideal], limit, spared));
    const double after = std::ceil(least_accelerators(work_.back() - work_[ideal], limit, spared));
    if (before + after > accelerators_) continue;
    compute(ideal, limit);
    drop_hopeless(ideal, limit, spared);
    if (steps_ > kMostSteps) {
      return {Code::kResourceExhausted,
              fmt::format("the graph has more contiguous splits than can be looked at: gave up "
                          "after {} of them",
                          kMostSteps)};
    }
  }
  return {};
}

Status MaxLoadSearch::no_split() const {
  double size = 0;
  for (const auto& unit : graph_.units) size += unit.size;
  return {Code::kFailedPrecondition,
          fmt::format("no contiguous split fits: {} bytes in {} parts on {} accelerators of {} "
                      "bytes and {} processors",
                      size, graph_.units.size(), instance_.accelerators, instance_.memory_bytes,
                      instance_.processors)};
}

PartitionStage MaxLoadSearch::make_stage(const std::vector<uint32_t>& units, bool on_accelerator) {
  PartitionStage stage;
  load_.clear();
  std::vector<uint32_t> nodes;
  for (const uint32_t unit : units) {
    load_.add(unit);
    nodes.insert(nodes.end(), graph_.units[unit].nodes.begin(), graph_.units[unit].nodes.end());
  }
  std::ranges::sort(nodes);
  for (const uint32_t node : nodes) stage.nodes.push_back(instance_.ids[node]);
  stage.on_accelerator = on_accelerator;
  stage.time = on_accelerator ? load_.accelerator() : load_.processor();
  stage.memory_bytes = load_.bytes();
  for (const uint32_t unit : units) load_.remove(unit);
  return stage;
}

/// Finds the stage that made best[ideal][p][a], and steps back over it. The walk adds the same
/// numbers in the same order as compute(), so the values are equal to the last bit.
PartitionStage MaxLoadSearch::last_stage(IdealId& ideal, uint32_t& p, uint32_t& a) {
  const double value = best(ideal, p, a);
  while (a > 0 && best(ideal, p, a - 1) == value) --a;
  while (p > 0 && best(ideal, p - 1, a) == value) --p;
  std::vector<uint32_t> units;
  std::vector<uint32_t> found;
  IdealId before = ideal;
  bool on_accelerator = false;
  load_.clear();
  ideals_.visit_below(
      ideal,
      [&](uint32_t node, IdealId part) {
        load_.add(node);
        units.push_back(node);
        if (!found.empty()) return false;
        const bool accelerator =
            a > 0 && std::max(best(part, p, a - 1), load_.accelerator()) == value;
        const bool processor = p > 0 && std::max(best(part, p - 1, a), load_.processor()) == value;
        if (accelerator || processor) {
          found = units;
          before = part;
          on_accelerator = accelerator;
        }
        return found.empty() && (load_.accelerator_without_sending() <= value ||
                                 (processors_ > 0 && load_.processor() <= value));
      },
      [&](uint32_t node) {
        load_.remove(node);
        units.pop_back();
      });
  ideal = before;
  --(on_accelerator ? a : p);
  return make_stage(found, on_accelerator);
}

Result<PartitionResult> MaxLoadSearch::run() {
  if (ideals_.count() * row_ > kMostTable) {
    return Status(Code::kResourceExhausted,
                  fmt::format("the graph can be cut in {} ways, too many for {} devices",
                              ideals_.count(), processors_ + accelerators_));
  }
  add_work();
  double everything = 0;  // No load is larger.
  for (const auto& unit : graph_.units) {
    everything += unit.processor_time + unit.accelerator_time;
  }
  for (const auto& net : graph_.nets) everything += net.send_time;
  const double least = Capacity(graph_, processors_, accelerators_).least_limit();
  double limit = std::max(least * kRise, everything / 4096);
  while (true) {
    CORRO_TRY(pass(limit));
    if (best(ideals_.full(), processors_, accelerators_) <= limit) break;
    if (limit > everything) return no_split();
    limit *= kRise;
    if (limit >= everything) limit = everything * 2 + 1;
  }
  PartitionResult result;
  IdealId ideal = ideals_.full();
  uint32_t p = processors_;
  uint32_t a = accelerators_;
  while (ideal != 0) {
    result.stages.push_back(last_stage(ideal, p, a));
    result.objective = std::max(result.objective, result.stages.back().time);
  }
  std::ranges::reverse(result.stages);
  result.steps = steps_;
  return result;
}

}  // namespace

Result<PartitionResult> solve_max_load(const MaxLoadInstance& instance) {
  const auto optimum_of = [&instance](IdleSizes idle_sizes) -> Result<PartitionResult> {
    const MaxLoadGraph graph = contract(instance, idle_sizes);
    CORRO_ASSIGN(const Ideals ideals, Ideals::create(graph.predecessors));
    return MaxLoadSearch(instance, graph, ideals).run();
  };
  CORRO_ASSIGN(PartitionResult result, optimum_of(IdleSizes::kIgnored));
  const bool fits = std::ranges::all_of(result.stages, [&instance](const PartitionStage& stage) {
    return !stage.on_accelerator || stage.memory_bytes <= instance.memory_bytes;
  });
  if (fits) return result;
  return optimum_of(IdleSizes::kCount);
}

}  // namespace corro::plan
