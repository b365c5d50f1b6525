#include "plan/solve/stages.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "base/check.h"
#include "plan/solve/stage_program.h"

namespace corro::plan {
namespace {

Status bad_problem(std::string_view what) {
  return {Code::kInvalidArgument, fmt::format("stages: {}", what)};
}

Status check_problem(const StageProblem& problem) {
  if (problem.cost == nullptr) return bad_problem("there is no cost");
  if (problem.runs.empty() || std::ranges::count(problem.runs, 0U) > 0)
    return bad_problem("there must be layers, and some in each run");
  if (problem.devices.empty() || problem.devices.size() > kMostStageTypes)
    return bad_problem(fmt::format("{} device types; must be 1 to 3", problem.devices.size()));
  if (problem.last_class == 0) return bad_problem("last_class must be at least 1");
  if (problem.meshes.empty()) return bad_problem("there are no meshes");
  for (const Mesh& mesh : problem.meshes) {
    if (mesh.type >= problem.devices.size() || mesh.units == 0)
      return bad_problem(fmt::format("mesh of {} units of type {}; there are {} types", mesh.units,
                                     mesh.type, problem.devices.size()));
  }
  const auto layers = std::accumulate(problem.runs.begin(), problem.runs.end(), uint64_t{0});
  if (layers > kMostStageLayers)
    return bad_problem(fmt::format("{} layers, more than {}", layers, kMostStageLayers));
  auto cells = static_cast<double>(layers + 1);
  for (const uint32_t units : problem.devices) cells *= units + 1.0;
  if (cells > static_cast<double>(kMostStageCells))
    return bad_problem(fmt::format("layers x units are {:.0f}, more than {}; use larger units",
                                   cells, kMostStageCells));
  return {};
}

/// Plans by their longest stage. A plan's step is its sum + w x its longest stage, so a stretch of
/// longest stages (above, upto] holds nothing below least_sum + w x above, where least_sum is the
/// least sum of plans whose stages are no longer than upto.
struct Stretch {
  double above;
  double upto;
  double least_sum;
  double bound;
  bool operator<(const Stretch& other) const { return bound > other.bound; }  // Least on top.
};

/// Best first over stretches of the longest stage: asks for the least sum up to the stretch's end,
/// which closes the stretch, or gives a plan and leaves the part below that plan's longest stage,
/// in two halves if the plan was no better than the best one.
class Sweep {
 public:
  Sweep(const StageProblem& problem, const StageOptions& options)
      : weights_(problem.weights), most_(options.most_bounds), program_(problem) {
    best_.step = options.cut;
  }

  std::optional<StagePlan> run() {
    const double shortest = program_.shortest_limit();
    if (shortest == StageProgram::kNone) return std::nullopt;
    // Often the best one where there are many micro-batches, and then a good start.
    if (weights_.constant + weights_.slowest * shortest < best_.step) {
      try_limit({shortest, shortest, 0, 0});
    }
    push({shortest, StageProgram::kNone, 0, 0});
    while (!open_.empty() && !closed(open_.top())) {
      if (tried_ >= most_ && best_.step < StageProgram::kNone) break;
      const Stretch stretch = open_.top();
      open_.pop();
      refine(stretch);
    }
    if (best_.step == StageProgram::kNone) return std::nullopt;
    best_.bound = open_.empty() ? best_.step : std::min(best_.step, open_.top().bound);
    best_.exact = open_.empty() || closed(open_.top());
    if (best_.exact) best_.bound = best_.step;
    best_.bounds_tried = tried_;
    best_.costs_asked = program_.costs_asked();
    return std::move(best_);
  }

 private:
  [[nodiscard]] bool closed(const Stretch& stretch) const {
    return stretch.bound >= best_.step * (1 - 1e-12);
  }

  void push(Stretch stretch) {
    // Longer stages than these cost more than the best plan, or the cut, even with the least sum.
    if (weights_.slowest > 0) {
      const double useful = (best_.step - weights_.constant - stretch.least_sum) / weights_.slowest;
      stretch.upto = std::min(stretch.upto, useful);
    }
    if (stretch.above > stretch.upto) return;
    stretch.bound = weights_.constant + stretch.least_sum + weights_.slowest * stretch.above;
    open_.push(stretch);
  }

  /// The plan of least sum up to the stretch's end, if that may be better than the best one.
  std::optional<StageProgram::Plan> try_limit(const Stretch& stretch) {
    ++tried_;
    const double cut = best_.step - weights_.constant - weights_.slowest * stretch.above;
    std::optional<StageProgram::Plan> plan = program_.least_sum(stretch.upto, cut);
    if (!plan) return std::nullopt;
    const double step = weights_.constant + plan->sum + weights_.slowest * plan->slowest;
    better_ = step < best_.step;
    if (better_) {
      best_.step = step;
      best_.stages = plan->stages;
    }
    return plan;
  }

  void refine(const Stretch& stretch) {
    const auto plan = try_limit(stretch);
    if (!plan) return;                  // Whatever ends in this stretch is no better.
    if (weights_.slowest <= 0) return;  // The least sum is all that counts.
    const double upto = std::nextafter(plan->slowest, 0.0);
    const double least_sum = std::max(stretch.least_sum, plan->sum);
    const double middle = std::sqrt(stretch.above) * std::sqrt(upto);
    if (better_ || !(middle > stretch.above && middle < upto)) {
      push({stretch.above, upto, least_sum, 0});
    } else {
      push({stretch.above, middle, least_sum, 0});
      push({middle, upto, least_sum, 0});
    }
  }

  ScheduleWeights weights_;
  size_t most_;
  StageProgram program_;
  std::priority_queue<Stretch> open_;
  StagePlan best_;  ///< Until there is one, its step is the cut.
  size_t tried_ = 0;
  bool better_ = false;
};

}  // namespace

Result<StagePlan> place_stages(const StageProblem& problem, const StageOptions& options) {
  CORRO_TRY(check_problem(problem));
  std::optional<StagePlan> plan = Sweep(problem, options).run();
  if (!plan)
    return Status(Code::kResourceExhausted,
                  "stages: no division of the layers over the devices fits");
  return std::move(*plan);
}

}  // namespace corro::plan
