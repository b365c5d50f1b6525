#include "obs/flight_recorder.h"

#include <unistd.h>

#include <bit>
#include <optional>

#include "obs/flight_layout.h"
#include "obs/sealed_memory.h"

namespace corro::obs {
namespace {

constexpr auto kPublish = std::memory_order_release;

uint64_t ns_of(Time time) { return static_cast<uint64_t>(time.since_start.count()); }

uint64_t now_ns() { return ns_of(monotonic_now()); }

}  // namespace

struct FlightRecorder::Impl {
  [[nodiscard]] std::byte* at(size_t offset) const { return memory.bytes().get() + offset; }
  [[nodiscard]] FlightHeader& header() const { return *reinterpret_cast<FlightHeader*>(at(0)); }
  [[nodiscard]] std::atomic<uint64_t>& operations() const {
    auto& cells = reinterpret_cast<FlightMetrics*>(at(kFlightMetricsAt))->cells;
    return cells[static_cast<size_t>(Metric::kOps)];
  }
  [[nodiscard]] FlightRecord* records() const {
    return reinterpret_cast<FlightRecord*>(at(kFlightRecordsAt));
  }
  /// The handle's record, or null once the ring has gone round and it is another operation's.
  [[nodiscard]] FlightRecord* find(Handle handle) const {
    FlightRecord& record = records()[(handle - 1) & (capacity - 1)];
    return record.sequence.load(std::memory_order_relaxed) == handle ? &record : nullptr;
  }

  SealedMemory memory;  ///< The metrics keep its bytes, too.
  Metrics metrics{nullptr};
  std::optional<StepLog> steps;
  Links links;
  uint32_t capacity = 0;
  uint64_t begun = 0;
};

Result<std::unique_ptr<FlightRecorder>> FlightRecorder::create(Options options) {
  if (!std::has_single_bit(options.capacity) || options.capacity > kMaxFlightCapacity) {
    return Status(Code::kInvalidArgument,
                  fmt::format("flight recorder: capacity {} is not a power of two up to {}",
                              options.capacity, kMaxFlightCapacity));
  }
  auto impl = std::make_unique<Impl>();
  impl->capacity = options.capacity;
  CORRO_ASSIGN(impl->memory, SealedMemory::create(kFlightMemfdName, flight_bytes(options.capacity),
                                                  "flight recorder"));
  const std::shared_ptr<std::byte>& bytes = impl->memory.bytes();
  impl->metrics = Metrics(std::shared_ptr<MetricCells>(
      bytes, reinterpret_cast<MetricCells*>(impl->at(kFlightMetricsAt))));
  impl->steps.emplace(impl->metrics,
                      std::shared_ptr<FlightLogged>(
                          bytes, reinterpret_cast<FlightLogged*>(impl->at(kFlightLoggedAt))),
                      std::shared_ptr<FlightSteps>(
                          bytes, reinterpret_cast<FlightSteps*>(impl->at(kFlightStepsAt))));
  impl->links = Links(std::shared_ptr<FlightLinks>(
      bytes, reinterpret_cast<FlightLinks*>(impl->at(kFlightLinksAt))));
  impl->metrics.set(Metric::kRanks, static_cast<uint64_t>(options.size));
  FlightHeader& header = impl->header();
  header.capacity.store(options.capacity, kPublish);
  header.rank.store(options.rank, kPublish);
  header.size.store(options.size, kPublish);
  header.pid.store(getpid(), kPublish);
  header.metric_count.store(kMetricCount, kPublish);
  header.magic.store(kFlightMagic, kPublish);
  return std::unique_ptr<FlightRecorder>(new FlightRecorder(std::move(impl)));
}

FlightRecorder::FlightRecorder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FlightRecorder::~FlightRecorder() = default;

FlightRecorder::Handle FlightRecorder::begin(const OpRecord& op, Phase phase,
                                             std::optional<Time> since) {
  const uint64_t now = since ? ns_of(*since) : now_ns();
  const Handle handle = ++impl_->begun;
  FlightRecord& record = impl_->records()[(handle - 1) & (impl_->capacity - 1)];
  record.sequence.store(
      0, std::memory_order_relaxed);  // ordered before the fields by their release stores
  impl_->operations().store(handle, kPublish);
  record.op_id.store(op.op_id, kPublish);
  record.count.store(op.count, kPublish);
  record.what.store(pack_what(op, impl_->metrics.value(Metric::kStep)), kPublish);
  record.where.store(uint64_t{op.lane} | uint64_t{static_cast<uint32_t>(op.root)} << 32U, kPublish);
  record.state.store(pack_state({.phase = phase}), kPublish);
  record.queued_ns.store(now, kPublish);
  record.started_ns.store(phase == Phase::kQueued ? 0 : now, kPublish);
  record.done_ns.store(0, kPublish);
  store_text(record.name, op.name);
  store_text(record.plan_lane, op.plan_lane);
  record.sequence.store(handle, kPublish);
  return handle;
}

void FlightRecorder::set_phase(Handle handle, Phase phase, int32_t waiting_for) {
  FlightRecord* record = impl_->find(handle);
  if (record == nullptr) return;
  if (phase != Phase::kQueued && record->started_ns.load(std::memory_order_relaxed) == 0) {
    record->started_ns.store(now_ns(), kPublish);
  }
  record->state.store(pack_state({.phase = phase, .waiting_for = waiting_for}), kPublish);
}

Duration FlightRecorder::end(Handle handle, Code code, std::optional<Time> when) {
  const bool failed = code != Code::kOk;
  if (failed) impl_->metrics.add(Metric::kFailures);
  FlightRecord* record = impl_->find(handle);
  if (record == nullptr) return Duration::zero();
  // A failed operation keeps the peer it was waiting for: that is what one wants to know about it.
  const uint64_t last = record->state.load(std::memory_order_relaxed);
  const int32_t waited_for = failed ? static_cast<int32_t>(last >> 32U) : -1;
  const uint64_t done = when ? ns_of(*when) : now_ns();
  const uint64_t started = record->started_ns.load(std::memory_order_relaxed);
  record->done_ns.store(done, kPublish);
  record->state.store(pack_state({.phase = failed ? Phase::kFailed : Phase::kDone,
                                  .code = code,
                                  .waiting_for = waited_for}),
                      kPublish);
  return started == 0 ? Duration::zero() : Duration(done - started);
}

StepLog& FlightRecorder::steps() const { return *impl_->steps; }

const Links& FlightRecorder::links() const { return impl_->links; }

const Metrics& FlightRecorder::metrics() const { return impl_->metrics; }

int FlightRecorder::fd() const { return impl_->memory.fd(); }

ProcessSnapshot FlightRecorder::snapshot() const {
  return read_memory(impl_->at(0), impl_->capacity);
}

}  // namespace corro::obs
