// The flight recorder: a ring of per-operation records in a memfd, written by the engine with plain
// atomics and read from outside (corro doctor, the agent) while the process hangs or after it was
// killed. The engine's metrics stand in the same memory.
//
//   auto recorder = FlightRecorder::create({.rank = 0, .size = 4}).value();
//   auto record = recorder->begin({.op_id = 7, .kind = OpKind::kAllreduce, .count = 1000});
//   recorder->set_phase(record, Phase::kTransfer, /*waiting_for=*/2);
//   recorder->end(record, Code::kOk);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/dtype.h"
#include "base/status.h"
#include "obs/links.h"
#include "obs/metrics.h"
#include "obs/step_log.h"

namespace corro::obs {

enum class Phase : uint8_t {
  kNone,
  kQueued,
  kExchange,
  kTransfer,
  kReduce,
  kFinish,
  kDone,
  kFailed,
  kRun,  ///< A firing of a plan that is no operation: its lane has it.
};
inline constexpr Phase kLastPhase = Phase::kRun;
[[nodiscard]] std::string_view name_of(Phase phase);

/// Of an operation that has no number yet: it waits for its name's turn.
inline constexpr uint64_t kNoOpId = UINT64_MAX;

/// What an operation, or a firing of a plan, is; fixed at begin().
struct OpRecord {
  uint64_t op_id = 0;  ///< Of a firing: its micro-batch.
  uint32_t lane = 0;
  std::optional<OpKind> kind = OpKind::kBarrier;  ///< None: a firing that is no operation.
  DType dtype = DType::kU8;
  ReduceOp reduce_op = ReduceOp::kSum;
  int32_t root = -1;
  uint64_t count = 0;
  std::string_view name = {};       ///< Truncated to 31 bytes.
  std::string_view plan_lane = {};  ///< Of a firing, never empty: its lane; truncated to 23 bytes.
};

/// A record as read back.
struct OpSnapshot {
  uint64_t sequence = 0;  ///< 1 for the first operation of the process.
  OpRecord op;            ///< Its texts are empty; they are here.
  std::string name;
  std::string plan_lane;
  Phase phase = Phase::kNone;
  int32_t waiting_for = -1;  ///< World rank whose data or arrival is awaited, or -1.
  Code code = Code::kOk;
  uint64_t queued_ns = 0, started_ns = 0, done_ns = 0;  ///< CLOCK_MONOTONIC; 0 = not yet.

  [[nodiscard]] bool is_firing() const { return !plan_lane.empty(); }
};

struct ProcessSnapshot {
  int32_t rank = -1, size = 0, pid = 0;
  uint64_t step = 0;                    ///< As told by corro_engine_set_step.
  uint64_t operations = 0;              ///< Begun so far.
  std::vector<OpSnapshot> recent = {};  ///< Oldest first; at most the ring's capacity.
  MetricValues metrics = {};
  StepTimes times = {};
  StepHistograms steps = {};                      ///< That have ended.
  std::optional<TrainingProgress> progress = {};  ///< None: how long the training is was not told.
  std::vector<LoggedValue> logged = {};           ///< At most kMostLogged.
  std::vector<LinkTraffic> links = {};            ///< That something went over; at most kMostLinks.
};

/// The operation that has waited longest for another rank, or null.
[[nodiscard]] const OpSnapshot* longest_wait(const ProcessSnapshot& process);

/// begin/set_phase/end: one writer at a time (the holder of the baton). Never blocks or allocates.
class FlightRecorder {
 public:
  struct Options {
    int32_t rank = 0;
    int32_t size = 1;
    uint32_t capacity = 1024;  ///< Records; a power of two.
  };
  using Handle = uint64_t;  ///< The record's sequence.

  static Result<std::unique_ptr<FlightRecorder>> create(Options options);
  ~FlightRecorder();

  /// `phase`: kQueued, or a later one for an operation that starts at once, or has `since`.
  Handle begin(const OpRecord& op, Phase phase = Phase::kQueued, std::optional<Time> since = {});
  void set_phase(Handle handle, Phase phase, int32_t waiting_for = -1);
  /// Counts a failure, whether the record is still there or not. None: it is over now. Returns how
  /// long the operation has run; zero if the record is another one's.
  Duration end(Handle handle, Code code, std::optional<Time> when = {});
  /// What the program tells of its steps. Thread-safe.
  [[nodiscard]] StepLog& steps() const;
  /// What goes to peers, in the same memory, which they keep. One writer at a time, as begin().
  [[nodiscard]] const Links& links() const;
  /// The numbers in the same memory, which they keep.
  [[nodiscard]] const Metrics& metrics() const;
  /// The sealed memfd named "corro-flight"; pass it on to let others read. Owned by the recorder.
  [[nodiscard]] int fd() const;
  [[nodiscard]] ProcessSnapshot snapshot() const;

 private:
  struct Impl;
  explicit FlightRecorder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Reads a recorder's memory through its descriptor; foreign bytes, so everything is checked. Does
/// not keep the fd.
[[nodiscard]] Result<ProcessSnapshot> read_flight(int fd);
/// Finds the "corro-flight" memfd of a process under /proc/<pid>/fd and reads it.
[[nodiscard]] Result<ProcessSnapshot> read_flight_of(int pid);

}  // namespace corro::obs
