// Metrics: what an engine counts, and how much of something it has now. The numbers stand in the
// flight recorder's memory, so others read them while the process runs, hangs, or is gone.
//
//   const Metrics metrics = recorder->metrics();
//   metrics.add(Metric::kFailures);
//   metrics.set(Metric::kGroups, groups.size());
//
// The table of metrics.cc names them all; docs/metrics.md shows it to users. New ones go to the end
// of the list: readers of other releases know a metric by its number.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

namespace corro::obs {

enum class Metric : uint8_t {
  kOps,  ///< The recorder counts these two.
  kFailures,
  kPolls,
  kInFlight,
  kMessagesSentShm,
  kMessagesSentTcp,
  kMessagesReceivedShm,
  kMessagesReceivedTcp,
  kBytesSentShm,
  kBytesSentTcp,
  kBytesReceivedShm,
  kBytesReceivedTcp,
  kBounced,
  kPauses,
  kBouncedBytes,
  kBouncedBytesPeak,
  kNamedMessages,
  kWakeups,
  kSuspects,
  kRanksLost,
  kHandshakesRefused,
  kStep,
  kRanks,
  kGroups,
  kPlans,
  kArenaBytes,
  kGroupPolls,
  kSteps,  ///< StepLog counts these.
  kStepNs,
  kStepWaitNs,
  kWaitNs,
  kRecentStepNs,
  kRecentWaitNs,
  kServed,
  kServedInVain,
};
inline constexpr size_t kMetricCount = static_cast<size_t>(Metric::kServedInVain) + 1;

enum class MetricKind : uint8_t {
  kCounter,  ///< Only grows.
  kGauge,    ///< What there is now.
};

struct MetricInfo {
  std::string_view name;  ///< As in C, Python and JSON; several metrics may share one.
  MetricKind kind;
  std::string_view unit;       ///< "nanoseconds": the name ends in _ns.
  std::string_view transport;  ///< Tells metrics of one name apart; "" if there is only one.
  std::string_view help;       ///< A sentence.
};
/// In the order of Metric.
[[nodiscard]] std::span<const MetricInfo, kMetricCount> all_metrics();

/// Room for all that will ever be.
inline constexpr size_t kMetricCells = 64;
static_assert(kMetricCount <= kMetricCells && std::atomic<uint64_t>::is_always_lock_free);
using MetricCells = std::array<std::atomic<uint64_t>, kMetricCells>;

/// What was read, by Metric. Shorter where the writer, of an older release, knows fewer.
using MetricValues = std::vector<uint64_t>;

/// A handle that keeps the memory; copies write the same numbers. A metric has one writer at a time
/// (the holder of the baton, of the lock, the progress thread): then an update is a load and a
/// store, which nothing orders. Reading is thread-safe. Never blocks or allocates.
class Metrics {
 public:
  /// Numbers that only this process sees.
  Metrics() : cells_(std::make_shared<MetricCells>()) {}
  explicit Metrics(std::shared_ptr<MetricCells> cells) : cells_(std::move(cells)) {}

  void add(Metric metric, uint64_t more = 1) const { set(metric, value(metric) + more); }
  void subtract(Metric metric, uint64_t less) const { set(metric, value(metric) - less); }
  /// Keeps the greatest value that there was.
  void raise(Metric metric, uint64_t seen) const {
    if (seen > value(metric)) set(metric, seen);
  }
  void set(Metric metric, uint64_t value) const {
    cell(metric).store(value, std::memory_order_relaxed);
  }
  /// As add(), of a metric with many writers.
  void add_shared(Metric metric, uint64_t more) const {
    cell(metric).fetch_add(more, std::memory_order_relaxed);
  }
  [[nodiscard]] uint64_t value(Metric metric) const {
    return cell(metric).load(std::memory_order_relaxed);
  }
  /// The sum of all metrics of this name; 0 if there is none.
  [[nodiscard]] uint64_t total(std::string_view name) const;

 private:
  [[nodiscard]] std::atomic<uint64_t>& cell(Metric metric) const {
    return (*cells_)[static_cast<size_t>(metric)];
  }

  std::shared_ptr<MetricCells> cells_;  ///< Shared by whoever counts.
};

}  // namespace corro::obs
