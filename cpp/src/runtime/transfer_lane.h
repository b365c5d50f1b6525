// TransferLane: one half of a channel between two ranks (graph/cut.h).
//
//   receive half   free -- a slot is free: posts it, says FREE --> moves -- all is there --> free
//   send half      free -- a slot is readable --> waits for FREE --> moves -- all has left --> free
//
// A message has as many bytes as the producer has filled of the slot; so many has the receiver's.
//
// FREE carries the firing's generation, so a sender starts without credit, nothing is sent before
// it has a place, and one rank may load the plan before the other. A FREE that comes before the
// send half fires is remembered. The message's sequence is the generation too, and the key is of
// this channel in this run alone: what an earlier run left on the way fits nowhere.
#pragma once

#include "runtime/firing_records.h"
#include "runtime/plan_lane.h"

namespace corro::runtime {

class TransferLane final : public PlanLane {
 public:
  struct Ends {
    graph::ServiceId half;  ///< In the part.
    bool sends = false;     ///< Else it receives.
    int32_t peer = 0;       ///< Group rank of the other half.
    uint64_t bytes = 0;     ///< Of a slot: the most that a message carries.
    Duration timeout = {};  ///< Of a firing.
  };

  /// Borrows the facts and the records of the plan's firings, which may be null.
  TransferLane(const LaneKey& key, const GroupFacts& facts, EngineParts& parts,
               FiringRecords* records, Ends ends);

  void serve(graph::Executor& executor) override { executor_ = &executor; }
  void start(Time now, const graph::Work& work) override;
  bool poll(Time now) override;
  void stop(const Status& cause, Time now) override;
  [[nodiscard]] std::optional<LaneKey> key() const override { return key_; }
  void hear(MemberId from, const wire::Control& control) override;
  [[nodiscard]] MemberId awaited_that_left() const override;
  [[nodiscard]] std::optional<GroupFailure> check(Time now) override;
  [[nodiscard]] Time next_deadline() const override;
  [[nodiscard]] std::optional<Rest> take_rest() override;

 private:
  enum class State : uint8_t { kFree, kWaitsForSlot, kMoves };
  [[nodiscard]] OpKind kind() const { return ends_.sends ? OpKind::kSend : OpKind::kRecv; }
  void send();
  void end(const Status& status);
  [[nodiscard]] Status mismatch() const;

  const LaneKey key_;
  const GroupFacts& facts_;
  EngineParts& parts_;
  FiringRecords* const records_;
  const Ends ends_;
  transport::Endpoint& endpoint_;
  graph::Executor* executor_ = nullptr;
  State state_ = State::kFree;
  uint64_t granted_ = 0;  ///< Sends: FREE has come for all generations below.
  graph::Ticket ticket_;
  graph::Slot* slot_ = nullptr;  ///< That is sent, or filled.
  Time since_;
  transport::SendRequest send_;
  transport::RecvRequest receive_;
};

}  // namespace corro::runtime
