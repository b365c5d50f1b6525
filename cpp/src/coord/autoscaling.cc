// The questions of decide_workers(), in their order. The first one with an answer decides.
//
//   decide_by_limits    does the job ask for what it may not have: by its limits, or by a refusal?
//   decide_to_wait      is it too early: a change is on its way, or this size is not known?
//   decide_by_worth     is another size worth enough more than this one?
//   decide_to_explore   is this the only size that is known? Then the curve through it says nothing
#include "coord/autoscaling.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace corro::coord {
namespace {

/// Of a size. Enough against noise, and few enough to follow a job that changes.
constexpr size_t kMostWindows = 15;

double seconds_of(Duration span) { return std::chrono::duration<double>(span).count(); }

double middle_of(std::vector<double> rates) {
  std::ranges::sort(rates);
  const auto cut = static_cast<std::ptrdiff_t>(rates.size() / 4);
  const auto begin = rates.begin() + cut;
  const auto end = rates.end() - cut;
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

/// The standard error of the mean of `rates`, as a share of `middle`.
double error_of(const std::vector<double>& rates, double middle) {
  const auto count = static_cast<double>(rates.size());
  double squares = 0;
  for (const double rate : rates) squares += (rate / middle - 1) * (rate / middle - 1);
  return std::sqrt(squares / count / count);
}

// ---------------------------------------------------------------------------------------- the fit

constexpr size_t kTerms = 3;
using Terms = std::array<double, kTerms>;
/// Which terms a curve has: the first `size` of `terms`, by their numbers.
struct Shape {
  size_t size = 0;
  std::array<size_t, kTerms> terms{};
};
/// A row for each term, and in its last column the right side.
using Equations = std::array<std::array<double, kTerms + 1>, kTerms>;

/// Each term of a ScalingCurve is multiplied with one of these.
Terms factors_of(size_t workers) {
  const auto n = static_cast<double>(workers);
  return {1 / n, (n - 1) / n, n - 1};
}

double squares_of(const Terms& terms, std::span<const Rate> rates) {
  double sum = 0;
  for (const Rate& rate : rates) {
    const Terms factors = factors_of(rate.workers);
    const double seconds = std::inner_product(terms.begin(), terms.end(), factors.begin(), 0.0);
    const double error = seconds * rate.per_second - 1;
    sum += static_cast<double>(rate.windows) * error * error;
  }
  return sum;
}

/// Of one measurement, as a share of its rate squared: the mean of all sizes.
double variance_of(std::span<const Rate> rates) {
  double sum = 0;
  for (const Rate& rate : rates) sum += rate.error * rate.error * static_cast<double>(rate.windows);
  return sum / static_cast<double>(rates.size());
}

/// The normal equations of a shape.
Equations equations_of(const Shape& shape, std::span<const Rate> rates) {
  Equations rows{};
  for (const Rate& rate : rates) {
    const Terms factors = factors_of(rate.workers);
    const auto weight = static_cast<double>(rate.windows);
    for (size_t i = 0; i < shape.size; ++i) {
      const double left = weight * factors[shape.terms[i]] * rate.per_second;
      for (size_t j = 0; j < shape.size; ++j) {
        rows[i][j] += left * factors[shape.terms[j]] * rate.per_second;
      }
      rows[i].back() += left;
    }
  }
  return rows;
}

/// Gauss-Jordan. Normal equations of independent columns are positive definite: no pivoting.
Terms solve(Equations rows, size_t size) {
  for (size_t pivot = 0; pivot < size; ++pivot) {
    for (size_t row = 0; row < size; ++row) {
      if (row == pivot) continue;
      const double factor = rows[row][pivot] / rows[pivot][pivot];
      for (size_t column = 0; column <= kTerms; ++column) {
        rows[row][column] -= factor * rows[pivot][column];
      }
    }
  }
  Terms solution{};
  for (size_t i = 0; i < size; ++i) solution[i] = rows[i].back() / rows[i][i];
  return solution;
}

/// Nothing if the best terms of this shape are no times: one is below 0, or a lone worker takes none.
std::optional<Terms> fit_shape(const Shape& shape, std::span<const Rate> rates) {
  const Terms solution = solve(equations_of(shape, rates), shape.size);
  Terms terms{};
  for (size_t i = 0; i < shape.size; ++i) {
    if (!std::isfinite(solution[i]) || solution[i] < 0) return std::nullopt;
    terms[shape.terms[i]] = solution[i];
  }
  return terms.front() > 0 ? std::optional(terms) : std::nullopt;
}

// ----------------------------------------------------------------------------------- the decision

/// The worth of each size of a job, by the rates that are known of it.
class Worths {
 public:
  Worths(std::vector<Rate> known, double least_gain)
      : known_(std::move(known)), curve_(fit_curve(known_)), least_gain_(least_gain) {}

  /// The throughput of so many workers, in lone workers: as measured, else as the curve has it.
  [[nodiscard]] double speed(size_t workers) const {
    const auto found = std::ranges::find(known_, workers, &Rate::workers);
    const double rate = found == known_.end() ? curve_.rate(workers) : found->per_second;
    return rate * curve_.lone;
  }
  /// The error of `speed`, in lone workers; 0 where nothing was measured.
  [[nodiscard]] double error(size_t workers) const {
    const auto found = std::ranges::find(known_, workers, &Rate::workers);
    return found == known_.end() ? 0 : found->error * found->per_second * curve_.lone;
  }
  [[nodiscard]] double worth(size_t workers) const {
    return speed(workers) - least_gain_ * static_cast<double>(workers);
  }
  /// The size of most worth in [first, last], the smallest of several.
  [[nodiscard]] size_t best(size_t first, size_t last) const {
    size_t best = first;
    double most = worth(first);
    for (size_t workers = first + 1; workers <= last; ++workers) {
      const double candidate = worth(workers);
      if (candidate > most) {
        most = candidate;
        best = workers;
      }
    }
    return best;
  }
  [[nodiscard]] const std::vector<Rate>& known() const { return known_; }

 private:
  std::vector<Rate> known_;
  ScalingCurve curve_;
  double least_gain_;
};

bool is_cooling(const Situation& now, const AutoscalingOptions& options) {
  return now.refusal && now.now - now.refusal->at < options.cool_down;
}

/// How many the job may ask for.
size_t ceiling_of(const Situation& now, const AutoscalingOptions& options) {
  if (!is_cooling(now, options)) return options.most;
  return std::clamp(std::max(now.refusal->had, now.workers), options.least, options.most);
}

Sizing keep(const Situation& now, const std::string& why) {
  return {.workers = now.wanted, .why = fmt::format("keeps {} workers: {}", now.wanted, why)};
}

std::string text_of_refusal(const Refusal& refusal, Time now) {
  return fmt::format("the cluster had {} workers for this job {:.0f} s ago", refusal.had,
                     seconds_of(now - refusal.at));
}

std::optional<Sizing> decide_by_limits(const Situation& now, const AutoscalingOptions& options) {
  const size_t allowed = std::clamp(now.wanted, options.least, ceiling_of(now, options));
  if (allowed == now.wanted) return std::nullopt;
  const std::string why = now.wanted < options.least  ? "that is the least it may have"
                          : now.wanted > options.most ? "that is the most it may have"
                                                      : text_of_refusal(*now.refusal, now.now);
  return Sizing{.workers = allowed,
                .why = fmt::format("asks for {} workers, not {}: {}", allowed, now.wanted, why)};
}

std::optional<Sizing> decide_to_wait(const Situation& now, const AutoscalingOptions& options) {
  if (now.workers != now.wanted) {
    return keep(now, fmt::format("there are {} until now", now.workers));
  }
  if (now.now - now.since < options.rest) {
    return keep(now, fmt::format("their number changed {:.0f} s ago, and rests for {:.0f} s",
                                 seconds_of(now.now - now.since), seconds_of(options.rest)));
  }
  const size_t windows = now.history->windows(now.workers);
  if (windows < options.windows) {
    return keep(now, fmt::format("{} of {} measurements are there", windows, options.windows));
  }
  return std::nullopt;
}

/// How much worth a change has to gain.
double needed_gain(const Situation& now, size_t to, const Worths& worths,
                   const AutoscalingOptions& options) {
  const double stall = seconds_of(now.stall) / seconds_of(options.horizon);
  return std::max(options.margin, stall) * worths.speed(now.workers) +
         std::hypot(worths.error(now.workers), worths.error(to));
}

std::optional<Sizing> decide_to_explore(const Situation& now, const Worths& worths,
                                        const AutoscalingOptions& options) {
  const size_t half = std::max((now.workers + 1) / 2, options.least);
  if (worths.known().size() > 1 || half == now.workers || is_cooling(now, options)) {
    return std::nullopt;
  }
  return Sizing{.workers = half,
                .why = fmt::format("shrinks from {} to {} workers: no other size has been "
                                   "measured, so nobody knows what the others add",
                                   now.workers, half)};
}

std::string text_of_growth(size_t from, size_t to, const Worths& worths, double gain_needed,
                           double least_gain) {
  const double price = least_gain * static_cast<double>(to - from);
  const double speed = worths.speed(from);
  return fmt::format("{:.2f} times as fast is expected, at least {:.2f} is wanted",
                     worths.speed(to) / speed, 1 + (price + gain_needed) / speed);
}

std::string text_of_shrinking(size_t from, size_t to, const Worths& worths, double least_gain) {
  const size_t fewer = from - to;
  const double added = (worths.speed(from) - worths.speed(to)) / static_cast<double>(fewer);
  const std::string who =
      fewer == 1 ? "the last one adds" : fmt::format("the last {} each add", fewer);
  return fmt::format("{} {:.2f} of a lone worker's throughput, {:.2f} is wanted", who, added,
                     least_gain);
}

Sizing decide_by_worth(const Situation& now, const Worths& worths,
                       const AutoscalingOptions& options) {
  const size_t first = std::max((worths.known().front().workers + 1) / 2, options.least);
  const size_t last = std::min(worths.known().back().workers * 2, ceiling_of(now, options));
  const size_t best = worths.best(first, last);
  if (best == now.workers) return keep(now, "no other size is expected to be worth more");

  const double needed = needed_gain(now, best, worths, options);
  const std::string why =
      best > now.workers ? text_of_growth(now.workers, best, worths, needed, options.least_gain)
                         : text_of_shrinking(now.workers, best, worths, options.least_gain);
  if (worths.worth(best) - worths.worth(now.workers) < needed) {
    return keep(now, fmt::format("{} would gain too little: {}", best, why));
  }
  return {.workers = best,
          .why = fmt::format("{} from {} to {} workers: {}",
                             best > now.workers ? "grows" : "shrinks", now.workers, best, why)};
}

}  // namespace

void RateHistory::add(size_t workers, double per_second) {
  if (workers == 0 || !std::isfinite(per_second) || per_second <= 0) return;
  std::vector<double>& rates = rates_[workers];
  if (rates.size() == kMostWindows) rates.erase(rates.begin());
  rates.push_back(per_second);
}

std::vector<Rate> RateHistory::known(size_t least_windows) const {
  std::vector<Rate> known;
  for (const auto& [workers, rates] : rates_) {
    if (rates.size() < least_windows) continue;
    const double middle = middle_of(rates);
    known.push_back({.workers = workers,
                     .per_second = middle,
                     .windows = rates.size(),
                     .error = error_of(rates, middle)});
  }
  return known;
}

size_t RateHistory::windows(size_t workers) const {
  const auto found = rates_.find(workers);
  return found == rates_.end() ? 0 : found->second.size();
}

double ScalingCurve::rate(size_t workers) const {
  const Terms factors = factors_of(workers);
  return 1 / (lone * factors[0] + serial * factors[1] + crosstalk * factors[2]);
}

// Non-negative least squares: with three terms it is enough to try each shape, the simplest first. A
// later one has to explain more than noise does: two standard deviations of one measurement.
ScalingCurve fit_curve(std::span<const Rate> rates) {
  constexpr std::array<Shape, 4> kShapes = {{{1, {0}}, {2, {0, 1}}, {2, {0, 2}}, {3, {0, 1, 2}}}};
  constexpr double kRounding = 1e-9;
  const double noise = 4 * variance_of(rates) + kRounding;
  Terms best{};
  double least = std::numeric_limits<double>::infinity();
  for (const Shape& shape : kShapes) {
    if (shape.size > rates.size()) continue;
    const std::optional<Terms> terms = fit_shape(shape, rates);
    if (!terms) continue;
    const double squares = squares_of(*terms, rates);
    if (squares < least - noise) {
      least = squares;
      best = *terms;
    }
  }
  return {.lone = best[0], .serial = best[1], .crosstalk = best[2]};
}

Sizing decide_workers(const Situation& situation, const AutoscalingOptions& options) {
  if (std::optional<Sizing> limited = decide_by_limits(situation, options)) return *limited;
  if (std::optional<Sizing> waiting = decide_to_wait(situation, options)) return *waiting;
  const Worths worths(situation.history->known(options.windows), options.least_gain);
  Sizing sizing = decide_by_worth(situation, worths, options);
  if (sizing.workers != situation.workers) return sizing;
  return decide_to_explore(situation, worths, options).value_or(sizing);
}

}  // namespace corro::coord
