// How the search works
//
// The time per sample of a pipeline is that of its slowest stage. So the search asks: is there a
// pipeline whose stages all take at most T? With T given, all that matters of the stages behind a
// cut is how many devices they need, and the sum of their data parallel degrees: that sum is the
// number of micro-batches in flight at the cut, and so decides what the stage before the cut has to
// keep in memory. An ideal (of the reversed graph: the layers behind a cut) therefore has a short
// list of labels (sum of degrees, devices), none of which is worse than another one in both.
//
// If there is no pipeline for T, the walk has seen the smallest time above T at which anything
// changes: nothing below that time is possible. If there is one, the walk has seen the largest time
// up to T that it used: T could have been that. Halving the interval between the two ends when they
// meet, at the optimum to the last bit.

#include "plan/partition/piper.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "plan/partition/components.h"
#include "plan/partition/ideals.h"
#include "plan/partition/stage_table.h"

namespace corro::plan {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint64_t kMostSteps = 4'000'000'000;
constexpr double kRise = 1.3;
constexpr double kRounding = 1e-12;

/// One way to run all layers of an ideal.
struct Label {
  uint32_t degree_sum = 0;
  uint32_t devices = 0;
  uint32_t stages = 0;
  // The stage that is before all others, and the label of what is below it.
  uint32_t degrees = 0;
  size_t stage = 0;
  uint32_t below = 0;

  /// Labels with the same sum of degrees are compared.
  [[nodiscard]] bool better_than(const Label& other) const {
    return devices != other.devices ? devices < other.devices : stages < other.stages;
  }
};

class PiperSearch {
 public:
  PiperSearch(const PiperInstance& instance, const Ideals& ideals, StageTable& table,
              const std::vector<uint32_t>& order);

  Result<PartitionResult> run();

 private:
  /// Looks for pipelines whose stages take at most `limit`.
  Status pass(double limit);
  void extend(IdealId ideal, size_t stage);
  void put(IdealId below, const Label& before, uint32_t most_degree_sum);
  void keep_best(IdealId ideal);
  [[nodiscard]] bool found() const { return !labels_.back().empty(); }
  [[nodiscard]] PartitionStage make_stage(IdealId ideal, const Label& label);
  [[nodiscard]] Status no_split() const;

  const PiperInstance& instance_;
  const Ideals& ideals_;
  StageTable& table_;
  std::vector<double> work_;  ///< Device seconds of each ideal, at least.
  double limit_ = 0;
  double next_ = kNever;  ///< Above the limit, the next time at which anything changes.
  double used_ = 0;       ///< The largest time up to the limit of any stage that was tried.
  uint64_t steps_ = 0;
  std::vector<std::vector<Label>> labels_;  ///< By ideal; ascending sums, descending devices.
  std::vector<Label> best_;                 ///< Of the ideal in work, by sum of degrees.
  std::vector<uint32_t> sums_;              ///< The sums of degrees that best_ has.
};

PiperSearch::PiperSearch(const PiperInstance& instance, const Ideals& ideals, StageTable& table,
                         const std::vector<uint32_t>& order)
    : instance_(instance), ideals_(ideals), table_(table), work_(ideals.count(), 0) {
  std::vector<double> work_of(order.size(), kNever);
  for (uint32_t node = 0; node < order.size(); ++node) {
    const auto& choices = instance.nodes[node].choices;
    for (size_t number = 0; number < choices.size(); ++number) {
      for (const auto& choice : choices[number]) {
        work_of[order[node]] =
            std::min(work_of[order[node]], choice.time * instance.degrees[number]);
      }
    }
  }
  for (IdealId ideal = 1; ideal < ideals.count(); ++ideal) {
    const auto link = ideals.links(ideal).front();
    work_[ideal] = work_[link.below] + work_of[link.node];
  }
  best_.resize(table.most_degree_sum() + size_t{1}, {.devices = UINT32_MAX});
  labels_.resize(ideals.count());
  labels_[0].push_back({});
}

/// Puts a stage before all labels of what is below it.
void PiperSearch::put(IdealId below, const Label& before, uint32_t most_degree_sum) {
  for (uint32_t i = 0; i < labels_[below].size(); ++i) {
    ++steps_;
    const Label& after = labels_[below][i];
    Label label = before;
    label.degree_sum += after.degree_sum;
    label.devices += after.devices;
    label.stages += after.stages;
    label.below = i;
    if (label.devices > instance_.devices || label.degree_sum > most_degree_sum) continue;
    Label& best = best_[label.degree_sum];
    if (best.devices == UINT32_MAX) sums_.push_back(label.degree_sum);
    if (label.better_than(best)) best = label;
  }
}

void PiperSearch::extend(IdealId ideal, size_t stage) {
  const IdealId below = table_.below(stage);
  if (labels_[below].empty()) return;
  const uint32_t left = instance_.devices - labels_[below].back().devices;
  const auto& all = table_.degrees();
  for (uint32_t number = 0; number < all.size(); ++number) {
    const auto& degrees = all[number];
    if (degrees.devices() > left) continue;
    const double least = table_.least_time(stage, degrees);
    if (least == kNever) continue;
    if (least > limit_) {
      next_ = std::min(next_, least);
      continue;
    }
    uint64_t in_flight = 0;
    for (const auto& row : table_.rows(ideal, stage, number)) {
      if (row.time > limit_) {
        next_ = std::min(next_, row.time);
        break;
      }
      used_ = std::max(used_, row.time);
      in_flight = row.in_flight;
    }
    if (in_flight == 0) continue;
    const auto most = static_cast<uint32_t>(
        std::min<uint64_t>(in_flight * degrees.data, table_.most_degree_sum()));
    put(below,
        {.degree_sum = degrees.data,
         .devices = degrees.devices(),
         .stages = 1,
         .degrees = number,
         .stage = stage},
        most);
    // More replicas need more of everything, and there is nothing to gain from them.
    if (most < table_.most_degree_sum()) continue;
    while (number + 1 < all.size() && all[number + 1].tensor == degrees.tensor) ++number;
  }
}

/// Keeps the labels that are no worse than others, and with which the layers that are still missing
/// may fit onto the devices that are left.
void PiperSearch::keep_best(IdealId ideal) {
  std::ranges::sort(sums_);
  auto& labels = labels_[ideal];
  const double missing = work_.back() - work_[ideal];
  for (const uint32_t sum : sums_) {
    Label& label = best_[sum];
    const double left = instance_.devices - label.devices;
    if (labels.empty() || label.devices < labels.back().devices) {
      if (missing * (1 - kRounding) <= left * limit_ || missing <= work_.back() * kRounding) {
        labels.push_back(label);
      } else if (left > 0) {
        next_ = std::min(
            next_, std::max(missing * (1 - kRounding) / left, std::nextafter(limit_, kNever)));
      }
    }
    label.devices = UINT32_MAX;
  }
  sums_.clear();
}

Status PiperSearch::pass(double limit) {
  limit_ = limit;
  next_ = kNever;
  used_ = 0;
  for (IdealId ideal = 1; ideal < ideals_.count(); ++ideal) {
    labels_[ideal].clear();
    for (size_t stage = table_.first_stage(ideal); stage < table_.end_stage(ideal); ++stage) {
      extend(ideal, stage);
    }
    keep_best(ideal);
    if (steps_ > kMostSteps || table_.gave_up()) {
      return {Code::kResourceExhausted,
              fmt::format("there are more pipelines than can be looked at: gave up after {} steps",
                          steps_ + table_.tries())};
    }
  }
  return {};
}

Status PiperSearch::no_split() const {
  return {Code::kFailedPrecondition,
          fmt::format("no pipeline fits: {} layers on {} devices of {} bytes",
                      instance_.nodes.size(), instance_.devices, instance_.memory_bytes)};
}

PartitionStage PiperSearch::make_stage(IdealId ideal, const Label& label) {
  const auto& degrees = table_.degrees()[label.degrees];
  StageChoices choices(instance_.memory_bytes);
  const auto nodes = table_.fill(ideal, label.stage, degrees, choices);
  const uint64_t in_flight = (label.degree_sum + degrees.data - 1) / degrees.data;
  const bool fits = choices.find(in_flight);
  CORRO_CHECK(fits, label.degree_sum, degrees.data);
  PartitionStage stage;
  stage.data_parallel = degrees.data;
  stage.tensor_parallel = degrees.tensor;
  stage.time = choices.time();
  stage.memory_bytes = choices.memory(in_flight);
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto& node = instance_.nodes[nodes[i]];
    stage.nodes.push_back(instance_.ids[nodes[i]]);
    stage.choices.push_back(node.choices[degrees.tensor_number][choices.picks()[i]].id);
  }
  return stage;
}

Result<PartitionResult> PiperSearch::run() {
  if (work_.back() == kNever) return no_split();                    // Some layer has no way to run.
  double low = work_.back() * (1 - kRounding) / instance_.devices;  // Nothing is below.
  double high = low * kRise;
  while (true) {
    CORRO_TRY(pass(high));
    if (found()) break;
    if (next_ == kNever) return no_split();
    low = next_;
    high = std::max(high * kRise, low);
  }
  high = used_;
  while (low < high) {
    const double middle = low + (high - low) / 2;
    CORRO_TRY(pass(middle < high ? middle : low));
    (found() ? high : low) = found() ? used_ : next_;
  }
  CORRO_TRY(pass(high));
  PartitionResult result;
  result.steps = steps_ + table_.tries();
  IdealId ideal = ideals_.full();
  Label label = labels_[ideal].back();  // The fewest devices.
  while (ideal != 0) {
    result.stages.push_back(make_stage(ideal, label));
    result.objective = std::max(result.objective, result.stages.back().time);
    ideal = table_.below(label.stage);
    label = labels_[ideal][label.below];
  }
  return result;
}

}  // namespace

Result<PartitionResult> solve_piper(const PiperInstance& instance) {
  const auto count = static_cast<uint32_t>(instance.nodes.size());
  std::vector<std::vector<uint32_t>> next(count);
  for (uint32_t node = 0; node < count; ++node) {
    for (const auto& edge : instance.nodes[node].out) next[node].push_back(edge.node);
  }
  // The last layer first: ideals are the layers behind a cut.
  std::vector<uint32_t> order = find_components(next).of;
  for (uint32_t& number : order) number = count - 1 - number;
  std::vector<std::vector<uint32_t>> predecessors(count);
  for (uint32_t node = 0; node < count; ++node) {
    for (const uint32_t end : next[node]) predecessors[order[node]].push_back(order[end]);
  }
  CORRO_ASSIGN(const Ideals ideals, Ideals::create(predecessors));
  CORRO_ASSIGN(StageTable table, StageTable::create(instance, ideals, order));
  return PiperSearch(instance, ideals, table, order).run();
}

}  // namespace corro::plan
