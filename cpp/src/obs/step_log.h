// StepLog: what a program tells of its training, in the flight recorder's memory: which step it is in,
// and values under names (corro.log).
//
//   recorder->steps().set_step(12);
//   CORRO_TRY(recorder->steps().log(12, values, {.steps = 1000}));
//
// A step ends where the next one begins. set_step() adds the time between two calls to the metrics
// steps and step_ns, and what callers have waited in it (add_wait) to step_wait_ns; and both to the
// memory's histograms. A first call, and one with a smaller step (the job has gone back), only begin a
// step.
//
// A program that logs values with their steps, and never calls set_step(), tells its step by them. One
// that does both may count differently (its optimizer begins at 1 again, the program goes on at 5000):
// `progress_step` of the memory is how far the logged step is ahead of the recorder's.
//
// The cells of a value are written as a record is: `sequence` is odd while that goes on, and readers
// take a value if it was even, and the same, before and after.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/duration_histogram.h"
#include "base/guarded.h"
#include "base/status.h"
#include "obs/metrics.h"

namespace corro::obs {

inline constexpr size_t kMostLogged = 16;       ///< Names of a process.
inline constexpr size_t kLoggedNameBytes = 31;  ///< Of UTF-8.

struct FlightLogged;  // flight_layout.h
struct FlightSteps;   // flight_layout.h

/// What a program logs under a name.
struct NamedValue {
  std::string_view name;
  double value = 0;  ///< Finite or not.
};

/// The same as read back: the newest one of this name.
struct LoggedValue {
  std::string name;
  double value = 0;
  uint64_t step = 0;
  bool operator==(const LoggedValue&) const = default;
};

/// How far the training is, where the program has told how long it is.
struct TrainingProgress {
  uint64_t step = 0;
  uint64_t of = 0;  ///< Steps of the whole training; above 0.
  bool operator==(const TrainingProgress&) const = default;
};

/// How long steps take; smoothed over about ten of them.
struct StepTimes {
  uint64_t steps = 0;    ///< That have ended.
  uint64_t step_ns = 0;  ///< A step takes.
  uint64_t wait_ns = 0;  ///< Of that callers wait for collectives; all threads together.
  bool operator==(const StepTimes&) const = default;
};

/// Thread-safe. Never waits for anything but another call of this class; never allocates.
class StepLog {
 public:
  /// The memory is the recorder's, which `cells` and `steps` keep.
  StepLog(Metrics metrics, std::shared_ptr<FlightLogged> cells, std::shared_ptr<FlightSteps> steps);

  void set_step(uint64_t step, Time now = monotonic_now());
  /// 0: none was told.
  [[nodiscard]] uint64_t step() const { return metrics_.value(Metric::kStep); }
  /// Keeps the values, all or none. `of`: steps of the whole training, if that is said. A name that is
  /// empty, too long or no UTF-8 is INVALID_ARGUMENT; one too many RESOURCE_EXHAUSTED.
  Status log(uint64_t step, std::span<const NamedValue> values, std::optional<uint64_t> of = {},
             Time now = monotonic_now());
  /// A thread of the program was inside of a blocking call for so long.
  void add_wait(Duration waited) const;

 private:
  struct State {
    std::optional<Time> began = {};  ///< The step; none: no step was told.
    uint64_t waited_ns = 0;          ///< Until then.
    bool is_told = false;            ///< By set_step().
    size_t names = 0;
  };

  void begin_step(State& state, uint64_t step, Time now) const;
  void end_step(const State& state, uint64_t steps, Time now) const;
  Status check(std::span<const NamedValue> values, size_t names) const;
  [[nodiscard]] size_t find(std::string_view name, size_t names) const;

  const Metrics metrics_;
  const std::shared_ptr<FlightLogged> cells_;
  const std::shared_ptr<FlightSteps> steps_;
  Guarded<State> state_;
};

}  // namespace corro::obs
