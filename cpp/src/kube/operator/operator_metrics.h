// OperatorMetrics: what the operator counts, as Prometheus reads it (text format 0.0.4).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/guarded.h"

namespace corro::kube {

/// How many observations were at most so many seconds, and their sum. Externally synchronized.
class SecondsHistogram {
 public:
  void observe(double seconds);
  /// Adds the lines of the metric `name`; `labels` as in R"(verb="create")", or "".
  void write(std::string& text, std::string_view name, std::string_view labels) const;

 private:
  static constexpr std::array kBounds = {0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,  1.0,
                                         2.5,   5.0,  10.0,  30.0, 60., 300., 1800.};
  std::array<uint64_t, kBounds.size()> counts_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
};

/// What is counted where it is read.
struct OperatorGauges {
  bool leads = false;
  /// By kind and state: {"MPIJob", "Running"}.
  std::map<std::pair<std::string, std::string>, int64_t> jobs;
  size_t due = 0;
  Duration oldest = Duration::zero();
};

/// Thread-safe.
class OperatorMetrics {
 public:
  /// An API call of a kind ("create") took so long and ended so ("done", "failed", ...).
  void called(std::string_view verb, Duration took, std::string_view result);
  /// A job restarted because of "userError", "lostPod" or "outOfMemory".
  void restarted(std::string_view cause, int64_t times);
  /// A job ran for the first time, so long after it was made.
  void started(Duration after);
  /// A decision came so long after its job was due.
  void looked(Duration waited);

  [[nodiscard]] std::string text(const OperatorGauges& gauges) const;

 private:
  struct State {
    std::map<std::string, SecondsHistogram> calls;
    std::map<std::pair<std::string, std::string>, uint64_t> results;
    std::map<std::string, int64_t> restarts;
    SecondsHistogram starts;
    SecondsHistogram looks;
  };
  mutable Guarded<State> state_;
};

}  // namespace corro::kube
