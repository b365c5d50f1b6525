// PulledLane: a lane of a loaded plan whose firings run on threads of the user, the main one
// perhaps.
//
//   thread: while (lane.next(timeout)) { compute; lane.done(firing, {}); }
//
// The executor's start() puts a firing into a queue, from which next() takes it; done() puts it on
// a list, and the next poll tells the executor. So the progress thread never runs the user's code,
// and a thread of the user never touches the executor.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/guarded.h"
#include "runtime/firing_records.h"
#include "runtime/plan_lane.h"

namespace corro::runtime {

/// One firing in the hands of the user. Its slots are valid until done().
struct PulledFiring {
  graph::ServiceId service = 0;  ///< In the whole plan.
  graph::Generation generation;
  std::span<graph::Slot* const> inputs;
  std::span<graph::Slot* const> outputs;
  graph::Ticket ticket;
};

/// Loop-confined; next(), fill(), done(), has_news() and what only looks are thread-safe.
class PulledLane final : public PlanLane {
 public:
  /// `services`: by number in the part, those in the whole plan. Borrows the records of the plan's
  /// firings, which may be null.
  PulledLane(std::vector<graph::ServiceId> services, FiringRecords* records);

  /// next() would block.
  [[nodiscard]] bool waits() {
    auto waiting = waiting_.lock();
    return waiting->count == 0 && waiting->stopped.ok();
  }
  /// Firings that next() has given out and that are not done. A poll takes in what is not counted
  /// any more.
  [[nodiscard]] uint32_t computing() const { return computing_.load(std::memory_order_acquire); }
  /// The firing that has waited longest for a next(), if any.
  [[nodiscard]] std::optional<PulledFiring> oldest();
  /// Takes the firing that has waited longest; blocks until there is one. DEADLINE_EXCEEDED after
  /// `timeout` (zero: does not block), and why the plan has stopped if it has.
  [[nodiscard]] Result<PulledFiring> next(Duration timeout);
  /// Says how many bytes of an output the firing has filled, instead of all. INVALID_ARGUMENT where
  /// there is no such output, or not so much room; FAILED_PRECONDITION as done().
  [[nodiscard]] Status fill(const PulledFiring& firing, size_t output, uint64_t bytes);
  /// The firing is complete, or has failed, which stops the plan. Does not block or wait; the
  /// engine has to be woken. FAILED_PRECONDITION for one that is not in anybody's hands.
  [[nodiscard]] Status done(const PulledFiring& firing, const Status& status);

  void serve(graph::Executor& executor) override { executor_ = &executor; }
  void start(Time now, const graph::Work& work) override;
  bool poll(Time now) override;
  void stop(const Status& cause, Time now) override;
  [[nodiscard]] bool has_news() const override {
    return done_.load(std::memory_order_seq_cst) != nullptr;
  }

 private:
  /// A service never overlaps itself, so one of these each is enough.
  struct Done {
    std::atomic<uint32_t> held{0};  ///< The sequence of the firing in the user's hands; 0: none.
    Time since;                     ///< next() gave it out.
    Time until;                     ///< done().
    graph::Ticket ticket;
    Status status;
    Done* next = nullptr;
  };
  struct Waiting {
    std::vector<PulledFiring> ring;  ///< One place for each service.
    size_t first = 0;
    size_t count = 0;
    Status stopped;
  };

  const std::vector<graph::ServiceId> services_;
  FiringRecords* const records_;
  std::unique_ptr<Done[]> slots_;  ///< By service of the part.
  std::atomic<Done*> done_{nullptr};
  std::atomic<uint32_t> computing_{0};
  Guarded<Waiting> waiting_;
  graph::Executor* executor_ = nullptr;
};

}  // namespace corro::runtime
