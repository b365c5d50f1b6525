// Negotiator: the leader's side of named operations. Members submit names in any order. The leader
// decides in which order they run, each once every member has submitted it. A state machine without
// I/O or clock.
//
//   Negotiator negotiator({0, 1, 2, 3});
//   CORRO_TRY(negotiator.receive(rank, announcement));
//   while (auto decision = negotiator.take_decision()) send_to_every_member(*decision);
//   // The leader itself is a member.
//
// A name on the leader:
//
//   pending     some members have announced it, others have not
//   complete    every member has announced it, with the same operation. The next RUN takes it
//   failed      every member has announced it, and the operations differ: FAIL
//
// A member that has joined counts as if it had announced every name. If the operation has no
// identity for it to give, the name fails. WITHDRAW takes a member's word back, so a complete name
// may be pending again.
//
// The group:
//
//   negotiates  RUN orders names. RoundFinder watches whether a round of them repeats. After enough
//               rounds the leader says PROPOSE, and goes on. A refusal, a join or a broken round
//               drops the proposal
//   planned     all members have accepted, a round has ended, and only names of the plan are
//               pending: ENGAGE. No name is announced while members follow the plan
//   freezing    a member has said FROZEN, since it cannot follow. The leader says FREEZE, and waits
//               until all have said how far they have started. CUT ends the plan
//
// After a refusal, or a CUT that comes early, the leader asks for twice as many rounds (caution_).
// While a rank has joined it proposes no plan. OVER ends the join once all have joined.
//
// The guarantees, and why static plans are safe: docs/design/0003-named-operations.md.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "named/fusion.h"
#include "named/named_join.h"
#include "named/named_messages.h"
#include "named/named_plan.h"

namespace corro::named {

struct NegotiatorOptions {
  FusionOptions fusion = {};
  /// A step that repeats becomes a static plan.
  bool plans = true;
  /// No operation that a member has not begun ends, or changes a caller's memory, on another one:
  /// so every kind can be taken back. Else a plan holds only what travels by way of a buffer.
  bool waits_for_all = true;
};

/// Decides, at the leader, what runs next. Errors of receive() mean that a member does not keep to
/// the protocol: its message was not taken in. Loop-confined.
class Negotiator {
 public:
  /// `members`: the names of ranks 0, 1, ... for messages (their world ranks).
  explicit Negotiator(std::vector<int32_t> members, NegotiatorOptions options = {});

  /// Takes in what `rank` of the group announces. Announcements of one rank come in the order they
  /// were made.
  [[nodiscard]] Status receive(int32_t rank, BytesView announcement);
  /// The next message for every member, this one included; empty if there is nothing to say. All
  /// operations complete so far go into one run: a caller whose lane has no room for it gets larger
  /// buckets later.
  [[nodiscard]] std::optional<Bytes> take_decision(bool room = true);

  /// True while the members follow a plan.
  [[nodiscard]] bool planned() const { return mode_ % 2 == 1; }

 private:
  struct Pending {
    NamedEntry first;
    int32_t first_rank = -1;
    std::vector<std::pair<int32_t, NamedEntry>> others;  ///< Those that differ, by rank.
    std::vector<bool> ready;
    size_t count = 0;
  };
  struct Proposal {
    uint32_t plan = 0;
    size_t length = 0;  ///< Of the round, and how often it had been seen: both must not shrink.
    uint64_t rounds = 0;
    size_t buckets = 0;
    std::set<uint32_t> numbers;
    std::vector<bool> accepted;
  };

  Status receive_ready(int32_t rank, const Announcement& message);
  Status receive_waiting(int32_t rank, const Announcement& message);
  Status receive_withdraw(int32_t rank, const Announcement& message);
  void receive_answer(int32_t rank, const Announcement& message);
  Status receive_frozen(int32_t rank, const Announcement& message);
  Status receive_join(int32_t rank);
  void take_back(Pending& pending, size_t place);
  [[nodiscard]] bool complete(const Pending& pending) const;
  [[nodiscard]] int32_t absent_from(const Pending& pending) const;
  void decide(const std::string& name, const Pending& pending);
  [[nodiscard]] Decision mismatch(const std::string& name, const Pending& pending) const;
  [[nodiscard]] Decision unsupported(const std::string& name, const Pending& pending) const;
  [[nodiscard]] Decision make(Decision::Kind kind) const;
  [[nodiscard]] bool at_round_end() const;
  void add_to_rounds(const NamedEntry& entry, uint32_t number);
  [[nodiscard]] bool may_be_planned(const Fusible& op) const;
  [[nodiscard]] std::optional<Decision> propose();
  [[nodiscard]] bool may_engage() const;
  [[nodiscard]] Decision engage();
  Status cut();
  [[nodiscard]] Decision compose_run();
  [[nodiscard]] Decision end_join();
  [[nodiscard]] std::vector<int32_t> missing(const Pending& pending) const;

  std::vector<int32_t> members_;
  NegotiatorOptions options_;
  NamedCache cache_;
  std::map<std::string, Pending> pending_;
  std::deque<NamedEntry> complete_;  ///< Ready everywhere, in the order in which they became so.
  std::deque<Decision> outbox_;
  RoundFinder rounds_;  ///< Empty while anyone has joined: then no plan is proposed.
  JoinRound joins_;
  std::optional<Proposal> proposal_;
  std::vector<std::optional<uint64_t>> frozen_;  ///< By rank, while a plan is being left.
  uint64_t caution_ = 1;  ///< Doubles when a plan could not be followed or did not last.
  uint64_t caution_before_cut_ = 1;
  uint64_t first_op_ = 0;         ///< Of the plan that is followed.
  uint64_t next_planned_op_ = 0;  ///< Where the next plan begins.
  size_t buckets_ = 0;            ///< Of the plan that is followed.
  uint32_t plans_ = 0;
  uint32_t mode_ = 0;

  static constexpr uint64_t kFirstRounds =
      2;  ///< Times caution: rounds before one is proposed as plan,
  static constexpr uint64_t kEvidence = 64;  ///< and operations in them.
  static constexpr uint64_t kMostCaution = 1024;
  static constexpr uint64_t kGoodRounds = 16;  ///< A plan that lived so long was worth it.
  /// A member further ahead of another one has started what nobody can have submitted.
  static constexpr uint64_t kMostAhead = uint64_t{1} << 20U;
};

}  // namespace corro::named
