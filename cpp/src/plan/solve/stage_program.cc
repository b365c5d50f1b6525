#include "plan/solve/stage_program.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace corro::plan {
namespace {

bool is_state(double sum) { return sum < StageProgram::kNone; }

/// The cells from the first state to the last one.
StageProgram::Cells states_of(const std::vector<double>& row) {
  const auto first = std::ranges::find_if(row, is_state);
  const auto behind = std::find_if(row.rbegin(), row.rend(), is_state);
  return {static_cast<size_t>(first - row.begin()), static_cast<size_t>(row.rend() - behind)};
}

}  // namespace

StageCosts::StageCosts(const StageProblem& problem)
    : problem_(problem), layers_(std::accumulate(problem.runs.begin(), problem.runs.end(), 0U)) {
  number_ranges();
}

void StageCosts::number_ranges() {
  std::vector<uint32_t> run_of;
  std::vector<uint32_t> run_begin{0};
  for (uint32_t run = 0; run < problem_.runs.size(); ++run) {
    run_of.insert(run_of.end(), problem_.runs[run], run);
    run_begin.push_back(run_begin.back() + problem_.runs[run]);
  }
  // By first and last run: one class for each number of layers of the first and of the last.
  const auto runs = problem_.runs.size();
  std::vector<uint32_t> offsets(runs * runs);
  for (uint32_t first = 0; first < runs; ++first) {
    for (uint32_t last = first; last < runs; ++last) {
      offsets[first * runs + last] = classes_;
      classes_ += problem_.runs[first] * (first == last ? 1 : problem_.runs[last]);
    }
  }
  class_of_.resize(size_t{layers_} * (layers_ + 1));
  for (uint32_t begin = 0; begin < layers_; ++begin) {
    for (uint32_t end = begin + 1; end <= layers_; ++end) {
      const uint32_t first = run_of[begin];
      const uint32_t last = run_of[end - 1];
      const uint32_t place = first == last
                                 ? end - begin - 1
                                 : (run_begin[first + 1] - begin - 1) * problem_.runs[last] + end -
                                       run_begin[last] - 1;
      class_of_[size_t{begin} * (layers_ + 1) + end] = offsets[first * runs + last] + place;
    }
  }
}

const StageCost& StageCosts::of(uint32_t begin, uint32_t end, uint32_t mesh, uint32_t from_end) {
  const size_t place = std::min(from_end, problem_.last_class) - size_t{1};
  if (memo_.size() <= place) memo_.resize(place + 1);
  const size_t meshes = problem_.meshes.size();
  if (memo_[place].empty()) memo_[place].assign(classes_ * meshes, StageCost(-1));
  StageCost& cost = memo_[place][class_of_[size_t{begin} * (layers_ + 1) + end] * meshes + mesh];
  if (cost.time < 0) {
    ++asked_;
    cost = problem_.cost({begin, end}, problem_.meshes[mesh], static_cast<uint32_t>(place + 1));
    CORRO_CHECK(cost.time >= 0 && cost.fill >= 0, cost.time, cost.fill);
    raise(place, class_of_[size_t{begin} * (layers_ + 1) + end] * meshes + mesh);
  }
  return cost;
}

void StageCosts::raise(size_t place, size_t cell) {
  if (place < 2 || memo_[1].empty() || memo_[1][cell].time < 0) return;
  // What a quick choice under a limit of memory may miss.
  constexpr double kMissed = 0.9;
  const StageCost& late = memo_[1][cell];
  StageCost& early = memo_[place][cell];
  CORRO_CHECK(early.time >= late.time * kMissed && early.fill >= late.fill * kMissed,
              "a stage costs less with more stages behind it", early.time, late.time, early.fill,
              late.fill);
  early.time = std::max(early.time, late.time);
  early.fill = std::max(early.fill, late.fill);
}

StageProgram::StageProgram(const StageProblem& problem) : problem_(problem), costs_(problem) {
  std::vector<size_t> strides;
  for (const uint32_t units : problem.devices) {
    strides.push_back(cells_);
    cells_ *= units + size_t{1};
  }
  for (const Mesh& mesh : problem.meshes) {
    const size_t units = problem.devices[mesh.type];
    const size_t stride = strides[mesh.type];
    shifts_.push_back({.distance = stride * mesh.units,
                       .block = stride * (units + 1),
                       .length = mesh.units > units ? 0 : stride * (units + 1 - mesh.units)});
  }
  const auto units = std::accumulate(problem.devices.begin(), problem.devices.end(), uint64_t{0});
  most_stages_ = static_cast<uint32_t>(std::min<uint64_t>(costs_.layers(), units));
  if (problem.stages > 0) most_stages_ = std::min(most_stages_, problem.stages);
}

double StageProgram::weighted(const StageCost& cost, uint32_t from_end) const {
  return cost.fill * (from_end == 1 ? problem_.weights.last : problem_.weights.others);
}

void StageProgram::add(const Row& from, Cells cells, double cost, const Shift& shift,
                       Row& to) const {
  for (size_t base = cells.begin - cells.begin % shift.block; base < cells.end;
       base += shift.block) {
    const double* in = from.data() + base;
    double* out = to.data() + base + shift.distance;
    const size_t end = std::min(shift.length, cells.end - base);
    for (size_t i = std::max(cells.begin, base) - base; i < end; ++i)
      out[i] = in[i] + cost < out[i] ? in[i] + cost : out[i];
  }
}

double StageProgram::shortest_limit() {
  const uint32_t layers = costs_.layers();
  std::vector<Row> limit(layers + 1, Row(cells_, kNone));
  limit[0].assign(cells_, 0);
  for (uint32_t end = 1; end <= layers; ++end) {
    for (uint32_t begin = 0; begin < end; ++begin) {
      for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
        if (shifts_[mesh].length == 0) continue;
        const double time = costs_.of(begin, end, mesh, end == layers ? 1 : 2).time;
        if (time == kNone) continue;
        const Shift& shift = shifts_[mesh];
        for (size_t base = 0; base < cells_; base += shift.block) {
          const double* in = limit[begin].data() + base;
          double* out = limit[end].data() + base + shift.distance;
          for (size_t i = 0; i < shift.length; ++i) {
            const double longest = in[i] > time ? in[i] : time;
            out[i] = longest < out[i] ? longest : out[i];
          }
        }
      }
    }
  }
  return limit[layers].back();
}

std::vector<size_t> StageProgram::spared(double limit) {
  const uint32_t layers = costs_.layers();
  std::vector<size_t> spare(layers + 1, 0);
  spare[layers] = cells_;
  for (uint32_t begin = layers; begin-- > 0;) {
    for (uint32_t end = begin + 1; end <= layers; ++end) {
      for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
        const size_t units = shifts_[mesh].distance;
        if (spare[end] <= spare[begin] + units) continue;
        if (costs_.of(begin, end, mesh, end == layers ? 1 : 2).time <= limit)
          spare[begin] = spare[end] - units;
      }
    }
  }
  return spare;
}

bool StageProgram::fill_rest(double limit) {
  const uint32_t layers = costs_.layers();
  const bool one_type = problem_.devices.size() == 1;
  const std::vector<size_t> spare =
      one_type ? spared(limit) : std::vector<size_t>(layers + 1, cells_);
  if (spare[0] == 0) return false;
  rest_.assign(layers + 1, Row(cells_, kNone));
  rest_[0].assign(cells_, 0);
  std::vector<Cells> states(layers + 1);
  states[0] = {0, spare[0]};
  for (uint32_t end = 1; end < layers; ++end) {
    for (uint32_t begin = 0; begin < end; ++begin) {
      for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
        const Shift& shift = shifts_[mesh];
        if (shift.length == 0 || spare[end] <= states[begin].begin + shift.distance) continue;
        const StageCost& cost = costs_.of(begin, end, mesh, 2);
        if (cost.time > limit || cost.time == kNone) continue;
        const Cells from{states[begin].begin,
                         std::min(states[begin].end, spare[end] - shift.distance)};
        add(rest_[begin], from, weighted(cost, 2), shift, rest_[end]);
      }
    }
    states[end] = states_of(rest_[end]);
  }
  return true;
}

void StageProgram::begin_rows(double limit) {
  const uint32_t layers = costs_.layers();
  fewest_.assign(layers + 1, Row(cells_, kNone));
  rows_.assign(most_stages_, std::vector<Row>(layers + 1));
  for (uint32_t begin = 0; begin < layers; ++begin) {
    for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
      if (shifts_[mesh].length == 0) continue;
      const StageCost& cost = costs_.of(begin, layers, mesh, 1);
      if (cost.time > limit || cost.time == kNone) continue;
      Row& row = rows_[0][begin];
      if (row.empty()) row.assign(cells_, kNone);
      double& cell = row[shifts_[mesh].distance];
      cell = std::min(cell, weighted(cost, 1));
    }
  }
}

bool StageProgram::prune(uint32_t stages, uint32_t layer, double cut) {
  Row& row = rows_[stages - 1][layer];
  if (row.empty()) return false;
  const Row& rest = rest_[layer];
  Row& fewest = fewest_[layer];
  const bool any_number = problem_.stages == 0;
  const size_t inner = problem_.devices[0] + size_t{1};
  bool alive = false;
  for (size_t base = 0; base < cells_; base += inner) {
    double least = kNone;  // With no more units of the first type.
    for (size_t i = base; i < base + inner; ++i) {
      if (any_number) least = std::min(least, fewest[i]);
      const bool keep = row[i] < least && row[i] + rest[cells_ - 1 - i] < cut;
      if (!keep) {
        row[i] = kNone;
        continue;
      }
      least = row[i];
      if (any_number) fewest[i] = row[i];
      alive = true;
    }
  }
  if (!alive) row.clear();
  return alive;
}

void StageProgram::expand(uint32_t stages, uint32_t layer, double limit) {
  const Row& from = rows_[stages - 1][layer];
  const Cells states = states_of(from);
  std::vector<Row>& to = rows_[stages];
  for (uint32_t begin = 0; begin < layer; ++begin) {
    for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
      if (shifts_[mesh].length == 0) continue;
      const StageCost& cost = costs_.of(begin, layer, mesh, stages + 1);
      if (cost.time > limit || cost.time == kNone) continue;
      if (to[begin].empty()) to[begin].assign(cells_, kNone);
      add(from, states, weighted(cost, stages + 1), shifts_[mesh], to[begin]);
    }
  }
}

std::optional<StageProgram::Plan> StageProgram::least_sum(double limit, double cut) {
  if (!fill_rest(limit)) return std::nullopt;
  begin_rows(limit);
  uint32_t found_stages = 0;
  size_t found_units = 0;
  for (uint32_t stages = 1; stages <= most_stages_; ++stages) {
    const Row& whole = rows_[stages - 1][0];
    const bool counts = problem_.stages == 0 || problem_.stages == stages;
    for (size_t units = 0; counts && units < whole.size(); ++units) {
      if (whole[units] >= cut) continue;
      cut = whole[units];
      found_stages = stages;
      found_units = units;
    }
    if (stages == most_stages_) break;
    bool alive = false;
    for (uint32_t layer = costs_.layers() - 1; layer > 0; --layer) {
      if (!prune(stages, layer, cut)) continue;
      alive = true;
      expand(stages, layer, limit);
    }
    if (!alive) break;
  }
  if (found_stages == 0) return std::nullopt;
  return trace(found_stages, found_units, limit);
}

StageProgram::Plan StageProgram::trace(uint32_t stages, size_t units, double limit) {
  Plan plan{.sum = rows_[stages - 1][0][units], .slowest = 0, .stages = {}};
  uint32_t begin = 0;
  const auto take = [&](uint32_t end, uint32_t mesh, uint32_t from_end) {
    const StageCost& cost = costs_.of(begin, end, mesh, from_end);
    plan.stages.push_back({{begin, end}, problem_.meshes[mesh], cost.time, cost.fill});
    plan.slowest = std::max(plan.slowest, cost.time);
    units -= shifts_[mesh].distance;
    begin = end;
  };
  // Finds the step whose sum is this very number.
  const auto step = [&](uint32_t from_end) {
    const double sum = rows_[from_end - 1][begin][units];
    for (uint32_t mesh = 0; mesh < shifts_.size(); ++mesh) {
      const size_t distance = shifts_[mesh].distance;
      if (shifts_[mesh].length == 0 || distance > units) continue;
      if (from_end == 1) {
        const StageCost& cost = costs_.of(begin, costs_.layers(), mesh, 1);
        if (distance == units && cost.time <= limit && weighted(cost, 1) == sum)
          return take(costs_.layers(), mesh, 1);
        continue;
      }
      if (units % shifts_[mesh].block < distance) continue;
      for (uint32_t end = begin + 1; end < costs_.layers(); ++end) {
        const Row& before = rows_[from_end - 2][end];
        if (before.empty()) continue;
        const StageCost& cost = costs_.of(begin, end, mesh, from_end);
        if (cost.time <= limit && before[units - distance] + weighted(cost, from_end) == sum)
          return take(end, mesh, from_end);
      }
    }
    CORRO_CHECK(false, from_end, begin, units, sum);
  };
  for (uint32_t from_end = stages; from_end >= 1; --from_end) step(from_end);
  return plan;
}

}  // namespace corro::plan
