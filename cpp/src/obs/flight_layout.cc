#include "obs/flight_layout.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>

#include "obs/characters.h"
#include "obs/metrics_reader.h"

namespace corro::obs {
namespace {

constexpr auto kNewest = std::memory_order_acquire;

/// The kind of what has none, as pack_what() stores it.
constexpr uint8_t kNoKind = 0xFF;
constexpr unsigned kStepShift = 24;

/// Up to the first 0.
std::string read_bytes(std::span<const std::atomic<uint64_t>> words) {
  std::string text;
  const size_t most = words.size_bytes() - 1;
  for (const auto& word : words) {
    uint64_t rest = word.load(kNewest);
    for (size_t i = 0; i < sizeof(rest); ++i, rest >>= 8U) {
      const char byte = static_cast<char>(rest & 0xFFU);
      if (byte == 0 || text.size() == most) return text;
      text += byte;
    }
  }
  return text;
}

std::string read_text(std::span<const std::atomic<uint64_t>> words) {
  std::string text = read_bytes(words);
  const auto is_harmful = [](char c) { return c < ' ' || c > '~'; };  // On a terminal.
  std::ranges::replace_if(text, is_harmful, '?');
  return text;
}

/// None: there is no name, or its writer is at it.
std::optional<LoggedValue> read_cell(const LoggedCell& cell) {
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i) {
    const uint64_t sequence = cell.sequence.load(kNewest);
    if (sequence == 0) return std::nullopt;
    LoggedValue read{.name = read_bytes(cell.name),
                     .value = std::bit_cast<double>(cell.value.load(kNewest)),
                     .step = cell.step.load(kNewest)};
    if (sequence % 2 != 0 || cell.sequence.load(std::memory_order_relaxed) != sequence) continue;
    if (!read.name.empty() && is_shown(read.name)) return read;
    return std::nullopt;
  }
  return std::nullopt;
}

std::optional<TrainingProgress> read_progress(const FlightLogged& logged, uint64_t step) {
  const uint64_t of = logged.steps.load(kNewest);
  if (of == 0) return std::nullopt;
  return TrainingProgress{.step = step + logged.ahead.load(kNewest), .of = of};
}

DurationHistogram read_histogram(const StepBuckets& buckets, uint64_t sum_ns) {
  DurationHistogram histogram{.counts = {}, .sum_ns = sum_ns};
  for (size_t i = 0; i < buckets.size(); ++i)
    histogram.counts[i] = buckets[i].load(std::memory_order_relaxed);
  return histogram;
}

bool unpack_what(uint64_t what, OpRecord& op) {
  const auto kind = static_cast<uint8_t>(what);
  const auto dtype = static_cast<uint8_t>(what >> 8U);
  const auto reduce_op = static_cast<uint8_t>(what >> 16U);
  const bool known = kind < kOpKindCount || kind == kNoKind;
  if (!known || dtype >= kDTypeCount || reduce_op >= kReduceOpCount) return false;
  op.kind = kind == kNoKind ? std::optional<OpKind>() : static_cast<OpKind>(kind);
  op.dtype = static_cast<DType>(dtype);
  op.reduce_op = static_cast<ReduceOp>(reduce_op);
  return true;
}

bool unpack_state(uint64_t packed, OpSnapshot& snapshot) {
  const auto phase = static_cast<uint8_t>(packed);
  const auto code = static_cast<uint8_t>(packed >> 8U);
  if (phase > static_cast<uint8_t>(kLastPhase) ||
      code > static_cast<uint8_t>(Code::kUnauthenticated))
    return false;
  snapshot.phase = static_cast<Phase>(phase);
  snapshot.code = static_cast<Code>(code);
  snapshot.waiting_for = static_cast<int32_t>(packed >> 32U);
  return true;
}

}  // namespace

const OpSnapshot* longest_wait(const ProcessSnapshot& process) {
  const OpSnapshot* longest = nullptr;
  for (const OpSnapshot& op : process.recent) {
    const bool over = op.phase == Phase::kDone || op.phase == Phase::kFailed;
    if (over || op.waiting_for < 0 || op.started_ns == 0) continue;
    if (longest == nullptr || op.started_ns < longest->started_ns) longest = &op;
  }
  return longest;
}

std::string_view name_of(Phase phase) {
  static constexpr std::array<std::string_view, 9> kNames = {
      "none", "queued", "exchange", "transfer", "reduce", "finish", "done", "failed", "run"};
  const auto index = static_cast<size_t>(phase);
  return index < kNames.size() ? kNames[index] : "unknown";
}

uint64_t pack_state(FlightState state) {
  return uint64_t{static_cast<uint8_t>(state.phase)} |
         uint64_t{static_cast<uint8_t>(state.code)} << 8U |
         uint64_t{static_cast<uint32_t>(state.waiting_for)} << 32U;
}

uint64_t pack_what(const OpRecord& op, uint64_t step) {
  const uint8_t kind = op.kind ? static_cast<uint8_t>(*op.kind) : kNoKind;
  return uint64_t{kind} | uint64_t{static_cast<uint8_t>(op.dtype)} << 8U |
         uint64_t{static_cast<uint8_t>(op.reduce_op)} << 16U | step << kStepShift;
}

std::optional<TracedOp> read_record(const FlightRecord& record) {
  OpSnapshot snapshot;
  snapshot.sequence = record.sequence.load(kNewest);
  if (snapshot.sequence == 0) return std::nullopt;
  snapshot.op.op_id = record.op_id.load(kNewest);
  snapshot.op.count = record.count.load(kNewest);
  const uint64_t where = record.where.load(kNewest);
  snapshot.op.lane = static_cast<uint32_t>(where);
  snapshot.op.root = static_cast<int32_t>(where >> 32U);
  snapshot.queued_ns = record.queued_ns.load(kNewest);
  snapshot.started_ns = record.started_ns.load(kNewest);
  snapshot.done_ns = record.done_ns.load(kNewest);
  snapshot.name = read_text(record.name);
  snapshot.plan_lane = read_text(record.plan_lane);
  const uint64_t what = record.what.load(kNewest);
  if (!unpack_what(what, snapshot.op)) return std::nullopt;
  if (!unpack_state(record.state.load(kNewest), snapshot)) return std::nullopt;
  if (record.sequence.load(std::memory_order_relaxed) != snapshot.sequence) return std::nullopt;
  return TracedOp{.op = std::move(snapshot), .step = what >> kStepShift};
}

std::vector<LoggedValue> read_logged(const FlightLogged& logged) {
  std::vector<LoggedValue> values;
  for (const LoggedCell& cell : logged.cells)
    if (auto value = read_cell(cell)) values.push_back(std::move(*value));
  return values;
}

std::vector<LinkTraffic> read_links(const FlightLinks& links) {
  std::vector<LinkTraffic> traffic;
  for (const LinkCell& cell : links.cells) {
    const int64_t peer = cell.peer.load(kNewest);
    const uint64_t sent = cell.sent.load(std::memory_order_relaxed);
    const bool is_known = peer == kOthersCell || (peer > 0 && peer <= INT32_MAX);
    if (!is_known || sent == 0) continue;
    traffic.push_back(
        {.peer = peer == kOthersCell ? kOtherPeers : static_cast<int32_t>(peer - 1), .sent = sent});
  }
  return traffic;
}

ProcessSnapshot read_memory(const std::byte* memory, uint32_t capacity) {
  const auto& header = *reinterpret_cast<const FlightHeader*>(memory);
  const auto& cells = reinterpret_cast<const FlightMetrics*>(memory + kFlightMetricsAt)->cells;
  const auto& logged = *reinterpret_cast<const FlightLogged*>(memory + kFlightLoggedAt);
  const auto value_of = [&cells](Metric metric) {
    return cells[static_cast<size_t>(metric)].load(std::memory_order_relaxed);
  };
  ProcessSnapshot snapshot;
  snapshot.rank = header.rank.load(kNewest);
  snapshot.size = header.size.load(kNewest);
  snapshot.pid = header.pid.load(kNewest);
  snapshot.step = value_of(Metric::kStep);
  snapshot.progress = read_progress(logged, snapshot.step);
  snapshot.times = {.steps = value_of(Metric::kSteps),
                    .step_ns = value_of(Metric::kRecentStepNs),
                    .wait_ns = value_of(Metric::kRecentWaitNs)};
  const auto& steps = *reinterpret_cast<const FlightSteps*>(memory + kFlightStepsAt);
  snapshot.steps = {.taken = read_histogram(steps.taken, value_of(Metric::kStepNs)),
                    .waited = read_histogram(steps.waited, value_of(Metric::kStepWaitNs))};
  snapshot.logged = read_logged(logged);
  snapshot.links = read_links(*reinterpret_cast<const FlightLinks*>(memory + kFlightLinksAt));
  for (TracedOp& one : trace_memory(memory, capacity).operations)
    snapshot.recent.push_back(std::move(one.op));
  snapshot.metrics = read_metrics(cells, header.metric_count.load(kNewest));
  snapshot.operations = cells[static_cast<size_t>(Metric::kOps)].load(kNewest);
  return snapshot;
}

ProcessTrace trace_memory(const std::byte* memory, uint32_t capacity) {
  const auto& cells = reinterpret_cast<const FlightMetrics*>(memory + kFlightMetricsAt)->cells;
  const auto* records = reinterpret_cast<const FlightRecord*>(memory + kFlightRecordsAt);
  ProcessTrace trace;
  // First: the steps before it are all there.
  trace.step = cells[static_cast<size_t>(Metric::kStep)].load(kNewest);
  for (uint32_t i = 0; i < capacity; ++i) {
    auto record = read_record(records[i]);
    if (record && (record->op.sequence - 1) % capacity == i)
      trace.operations.push_back(std::move(*record));
  }
  // Last: no record read above is newer.
  const uint64_t newest = cells[static_cast<size_t>(Metric::kOps)].load(kNewest);
  std::erase_if(trace.operations,
                [newest](const TracedOp& one) { return one.op.sequence > newest; });
  std::ranges::sort(trace.operations, {}, [](const TracedOp& one) { return one.op.sequence; });
  return trace;
}

}  // namespace corro::obs
