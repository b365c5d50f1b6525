// PlanLane: a lane of a loaded plan: what the executor starts there, and what it needs from outside
// until it is over.
//
// CommunicatorLane runs collectives, TransferLane one half of a channel between two ranks, CopyLane
// what threads of the engine copy, PulledLane what threads of the user compute. An owner of a plan
// may give lanes of its own.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "graph/executor.h"
#include "runtime/flight.h"

namespace corro::runtime {

/// The slot of a collective or a copy that has memory, or null.
[[nodiscard]] inline graph::Slot* with_memory(std::span<graph::Slot* const> slots) {
  for (graph::Slot* slot : slots) {
    if (!slot->data.empty()) return slot;
  }
  return nullptr;
}

/// Loop-confined, but for has_news().
class PlanLane : public graph::Lane {
 public:
  /// The executor that starts this lane's firings and hears of their ends. Once, before any.
  virtual void serve(graph::Executor& executor) = 0;
  /// Moves what is in flight; true if anything moved.
  virtual bool poll(Time now) = 0;
  /// Ends what is in flight: the plan has stopped, or its engine goes. Nothing starts afterwards.
  virtual void stop(const Status& cause, Time now) = 0;

  /// Thread-safe: a poll would move something that no peer and no clock tells of.
  [[nodiscard]] virtual bool has_news() const { return false; }
  /// Under which members speak of it, if they do.
  [[nodiscard]] virtual std::optional<LaneKey> key() const { return std::nullopt; }
  virtual void hear(MemberId /*from*/, const wire::Control& /*control*/) {}
  virtual void judge(MemberId /*from*/, uint64_t /*op*/, const SignatureBits& /*signature*/) {}
  /// The first member that has left and that something in flight waits for, or -1.
  [[nodiscard]] virtual MemberId awaited_that_left() const { return -1; }
  /// Looks at deadlines; why the plan cannot go on, if so.
  [[nodiscard]] virtual std::optional<GroupFailure> check(Time /*now*/) { return std::nullopt; }
  [[nodiscard]] virtual Time next_deadline() const { return Time::never(); }
  /// The plan is over here: what others may still read of the lane, with its members.
  struct Rest {
    std::unique_ptr<collective::Fabric> fabric;
    GroupFacts facts;
  };
  [[nodiscard]] virtual std::optional<Rest> take_rest() { return std::nullopt; }
};

}  // namespace corro::runtime
