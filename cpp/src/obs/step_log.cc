#include "obs/step_log.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <tuple>
#include <utility>

#include "obs/characters.h"
#include "obs/flight_layout.h"

namespace corro::obs {
namespace {

constexpr auto kOrdered = std::memory_order_release;

/// The mean of about ten, moved towards a new one.
uint64_t smoothed(uint64_t before, uint64_t now) {
  constexpr double kWeight = 0.1;
  const auto old = static_cast<double>(before);
  return static_cast<uint64_t>(old + kWeight * (static_cast<double>(now) - old));
}

/// A reader that sees a field of now also sees an odd sequence, or the last one.
void store_value(LoggedCell& cell, double value, uint64_t step) {
  const uint64_t sequence = cell.sequence.load(std::memory_order_relaxed);
  cell.sequence.store(sequence + 1, std::memory_order_relaxed);
  cell.value.store(std::bit_cast<uint64_t>(value), kOrdered);
  cell.step.store(step, kOrdered);
  cell.sequence.store(sequence + 2, kOrdered);
}

bool is_called(const LoggedCell& cell, std::string_view name) {
  std::array<uint64_t, std::tuple_size_v<decltype(cell.name)>> words{};
  for (size_t i = 0; i < words.size(); ++i) words[i] = cell.name[i].load(std::memory_order_relaxed);
  const auto bytes = std::bit_cast<std::array<char, sizeof words>>(words);
  return bytes[name.size()] == 0 && name == std::string_view(bytes.data(), name.size());
}

}  // namespace

StepLog::StepLog(Metrics metrics, std::shared_ptr<FlightLogged> cells,
                 std::shared_ptr<FlightSteps> steps)
    : metrics_(std::move(metrics)), cells_(std::move(cells)), steps_(std::move(steps)) {}

void StepLog::set_step(uint64_t step, Time now) {
  auto state = state_.lock();
  state->is_told = true;
  begin_step(*state, step, now);
}

void StepLog::begin_step(State& state, uint64_t step, Time now) const {
  const uint64_t before = metrics_.value(Metric::kStep);
  if (state.began && step == before) return;
  if (state.began && step > before) end_step(state, step - before, now);
  metrics_.set(Metric::kStep, step);
  state.began = now;
  state.waited_ns = metrics_.value(Metric::kWaitNs);
}

/// `steps`: that have ended since the last one was told.
void StepLog::end_step(const State& state, uint64_t steps, Time now) const {
  const auto took = static_cast<uint64_t>((now - *state.began).count());
  const uint64_t waited = metrics_.value(Metric::kWaitNs) - state.waited_ns;
  const bool is_first = metrics_.value(Metric::kSteps) == 0;
  const auto keep_recent = [&](Metric metric, uint64_t value) {
    metrics_.set(metric, is_first ? value : smoothed(metrics_.value(metric), value));
  };
  keep_recent(Metric::kRecentStepNs, took / steps);
  keep_recent(Metric::kRecentWaitNs, waited / steps);
  metrics_.add(Metric::kStepNs, took);
  metrics_.add(Metric::kStepWaitNs, waited);
  metrics_.add(Metric::kSteps, steps);
  const auto count = [steps](StepBuckets& buckets, uint64_t ns) {
    auto& bucket = buckets[bucket_of(Duration(static_cast<int64_t>(ns / steps)))];
    bucket.store(bucket.load(std::memory_order_relaxed) + steps, std::memory_order_relaxed);
  };
  count(steps_->taken, took);
  count(steps_->waited, waited);
}

void StepLog::add_wait(Duration waited) const {
  metrics_.add_shared(Metric::kWaitNs, static_cast<uint64_t>(waited.count()));
}

Status StepLog::log(uint64_t step, std::span<const NamedValue> values, std::optional<uint64_t> of,
                    Time now) {
  auto state = state_.lock();
  CORRO_TRY(check(values, state->names));
  if (!state->is_told && step > 0) begin_step(*state, step, now);
  for (const NamedValue& one : values) {
    const size_t at = find(one.name, state->names);
    LoggedCell& cell = cells_->cells[at];
    if (at == state->names) {
      store_text(cell.name, one.name);
      ++state->names;
    }
    store_value(cell, one.value, step);
  }
  if (of) {
    cells_->ahead.store(step - metrics_.value(Metric::kStep), kOrdered);
    cells_->steps.store(*of, kOrdered);
  }
  return {};
}

/// The number of the cell with this name; `names`: there is none.
size_t StepLog::find(std::string_view name, size_t names) const {
  size_t at = 0;
  while (at < names && !is_called(cells_->cells[at], name)) ++at;
  return at;
}

Status StepLog::check(std::span<const NamedValue> values, size_t names) const {
  size_t more = 0;
  for (const NamedValue& one : values) {
    if (one.name.empty() || one.name.size() > kLoggedNameBytes || !is_shown(one.name)) {
      return {Code::kInvalidArgument,
              fmt::format("log: a name has 1 to {} bytes of UTF-8 without control characters, "
                          "'{}' has {}",
                          kLoggedNameBytes, is_shown(one.name) ? one.name : "?", one.name.size())};
    }
    if (find(one.name, names) < names) continue;
    if (names + ++more > kMostLogged) {
      return {Code::kResourceExhausted,
              fmt::format("log: '{}' would be name {} of this process, and it has {} at most: give "
                          "values that change the same name each time",
                          one.name, kMostLogged + 1, kMostLogged)};
    }
  }
  return {};
}

}  // namespace corro::obs
