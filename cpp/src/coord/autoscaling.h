// Autoscaling: how many workers a running elastic job asks for, and why. A pure function of the
// rates that the job was measured at, of the answers of its cluster, and of what its user wants.
//
//   RateHistory history;
//   history.add(4, 31.5);  // with 4 workers the job did 31.5 samples in a second
//   const Sizing sizing = decide_workers(
//       {.now = now, .workers = 4, .wanted = 4, .since = start, .history = &history},
//       {.least = 2, .most = 16, .least_gain = 0.6});
//
// A worker has a price: the throughput that it has to add, as a share of a lone worker's. The worth
// of a size is its throughput, in lone workers, less the price of its workers:
//
//   worth(n) = rate(n) / rate(1) - least_gain * n
//
// The policy asks for the size of most worth. It knows few sizes and guesses the others by a curve
// through those that it knows.
//
// Sources. Optimus (Peng et al., EuroSys 2018): section 3.2 fits the speed of a job by its number of
// workers with non-negative least squares, while the job runs; 4.1 gives a worker where it gains
// most. Optimus compares the jobs of a cluster; here one job is compared with its price. Pollux (Qiao
// et al., OSDI 2021): 4.1 takes a job for perfectly scalable until it has been tried, so that it is
// tried; 4.2 counts against a change of size what it costs. The curve is the Universal Scalability
// Law (Gunther, Guerrilla Capacity Planning, 2007). Limits, rest, refusals and noise are our own.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"

namespace corro::coord {

/// The throughput of a job with so many workers.
struct Rate {
  size_t workers = 0;
  double per_second = 0;  ///< Steps or samples; a job's rates all count the same.
  size_t windows = 0;     ///< Measurements behind it.
  double error = 0;       ///< The standard error of their mean, as a share of the rate.
};

/// The latest measurements of each size. Externally synchronized.
class RateHistory {
 public:
  /// `per_second`: over a window without a change of members. Leaves out what is no positive number.
  void add(size_t workers, double per_second);
  /// The sizes with at least so many measurements, the smallest first. Each rate is the mean of the
  /// middle half, so one slow window (a checkpoint, a neighbour) does not count.
  [[nodiscard]] std::vector<Rate> known(size_t least_windows) const;
  /// How many measurements there are of a size.
  [[nodiscard]] size_t windows(size_t workers) const;

 private:
  std::map<size_t, std::vector<double>> rates_;  ///< The oldest first.
};

/// How long `n` workers take for one step or sample: lone / n + serial * (n - 1) / n + crosstalk *
/// (n - 1). All in seconds, none below 0. Without the last two terms the job scales linearly;
/// without the last one it follows Amdahl's law; with it, too many workers make the job slower.
struct ScalingCurve {
  double lone = 0;
  double serial = 0;
  double crosstalk = 0;
  [[nodiscard]] double rate(size_t workers) const;
};

/// The curve with the least squares of relative errors. Rates are weighted by their measurements. No
/// curve has more terms than there are sizes, so one size gives a linear curve: that is a hope, and
/// decide_workers() measures it. `rates`: at least one, of different sizes.
[[nodiscard]] ScalingCurve fit_curve(std::span<const Rate> rates);

struct AutoscalingOptions {
  size_t least = 1;  ///< 1 or more.
  size_t most = 1;   ///< `least` or more.
  /// The price of a worker: its cost in an hour over the value of what a lone worker does in an
  /// hour. 0: the fastest size; 1 or more: `least` workers.
  double least_gain = 0.5;
  /// A change has to gain this share of the present throughput, and the error of the rates besides,
  /// so noise changes nothing.
  double margin = 0.05;
  /// A change gains within it what its stall costs. Above 0.
  Duration horizon = std::chrono::minutes(10);
  Duration rest = std::chrono::minutes(1);       ///< Between two changes, also by a loss.
  Duration cool_down = std::chrono::minutes(5);  ///< After a refusal, before more are asked for.
  size_t windows = 5;  ///< Measurements that make a size known; 1 or more.
};

/// The cluster did not give what the job asked for: pods are pending, or a quota refuses them.
struct Refusal {
  Time at{};
  size_t had = 0;  ///< Workers that the job could have then.
};

struct Situation {
  Time now{};
  size_t workers = 0;  ///< That there are.
  size_t wanted = 0;   ///< That the job asks for.
  Time since{};        ///< When the number of workers last changed, for whatever reason.
  Duration stall{};    ///< Progress that a change of members costs, as measured of late.
  std::optional<Refusal> refusal = {};  ///< The last one.
  const RateHistory* history = nullptr;
};

struct Sizing {
  size_t workers = 0;  ///< To ask for.
  std::string why;     ///< For people, never empty.
};

/// Keeps `wanted`, or says which size to ask for instead.
///
/// AUTOSCALE-1  The answer is in [least, most].
/// AUTOSCALE-2  Within `cool_down` of a refusal it is no more than the job has or could have then,
///              or `least`.
/// AUTOSCALE-3  Who is lost stays wanted: a loss is no decision.
/// AUTOSCALE-4  No more than twice the largest size that is known, and no less than half the
///              smallest one, but for the limits.
/// AUTOSCALE-5  A change gains `margin` and more than noise explains, and what its stall costs within
///              `horizon`, but for the limits and for one measurement of half the workers (below).
///
/// A job that has been measured at one size alone, and has no reason to grow, measures half as many,
/// once: else it would never know that it wastes workers. Within `cool_down` of a refusal it does not,
/// since it might not get them back.
///
/// Cost: the sizes of AUTOSCALE-4 times those that are known.
[[nodiscard]] Sizing decide_workers(const Situation& situation, const AutoscalingOptions& options);

}  // namespace corro::coord
