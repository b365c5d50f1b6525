// Group: a communicator on one rank. It owns its lanes: one of collectives in the order of the
// calls (one-shots), one for send and recv, those of named operations, and those of loaded plans.
// It routes what comes in to them, and fails them together.
//
//   Group group(facts, parts);
//   CORRO_TRY(group.open());
//   group.submit(work, now);
//   while (!work->done()) group.poll(now);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/group_lane.h"
#include "runtime/loaded_plans.h"
#include "runtime/named_lanes.h"
#include "runtime/pair_lane.h"

namespace corro::runtime {

/// Loop-confined, but for facts() and describe_selection(). Made and destroyed by the engine.
class Group {
 public:
  Group(GroupFacts facts, EngineParts& parts);
  /// Opens the lane of one-shots; fails where memory is short. Call first.
  [[nodiscard]] Status open();

  /// The engine has got aggregators: those that were made before this group have none. Before
  /// anything is submitted to it.
  void serve();

  [[nodiscard]] const GroupFacts& facts() const { return facts_; }
  /// OK, or why the group is dead.
  [[nodiscard]] const Status& failure() const { return failed_; }
  /// How operations of each size run, as text for people.
  [[nodiscard]] std::string describe_selection() const;
  /// One-shots travel over endpoints.
  [[nodiscard]] bool by_messages() const { return by_messages_; }
  /// The keys under which others speak of it: its own, and those of its named lanes. Plans have
  /// their own.
  [[nodiscard]] std::vector<LaneKey> keys() const;
  [[nodiscard]] LoadedPlans& plans() { return plans_; }

  /// Queues the work's operations in order or, if the work is named, by their names; those that are
  /// invalid, and those of a group that has failed, make it done at once.
  void submit(const std::shared_ptr<WorkState>& work, Time now);
  /// Starts one small collective at once; false if it has to go through submit().
  bool begin_now(const collective::OpRequest& request, NowOperation& now);
  /// Moves everything; true if anything moved.
  bool poll(Time now);

  /// What a member says, and a message of it that nothing waits for here.
  void hear(MemberId from, const wire::Control& control, Time now);
  void judge(MemberId from, const transport::MessageKey& key, const SignatureBits& signature);
  /// A member was lost: the group fails.
  void lose(MemberId member, Time now);
  /// Members have left. What waits for one of them waits for ever, and ends: a send, a receive or a
  /// plan alone, a collective with the group, since all members take part in it. The others hear
  /// of that as of a loss, so with it end also sends, receives and plans of members that are there.
  void check_departed(Time now);
  /// Who has to say that a group has failed.
  enum class News : uint8_t {
    kFound,  ///< This rank has found it: the others are told.
    kHeard,  ///< The others learn it from their kernels, or from whom this rank has it.
  };
  /// Ends everything with this cause, here and for whoever waits on this rank. `culprit`: world
  /// rank.
  void fail(const GroupFailure& failure, News news, Time now);
  /// This engine is going: ends everything without a word.
  void close(const Status& cause);
  /// Looks at deadlines.
  void check(Time now);

  /// Operations are in flight, or wait for their names, or a plan is loaded. Only then does time
  /// alone change anything.
  [[nodiscard]] bool busy() const;
  /// Notes whether the table has it among its active groups; returns what was noted before.
  bool set_active(bool active) { return std::exchange(active_, active); }
  /// Names wait here: then what others say counts even where no message is awaited.
  [[nodiscard]] bool listens() const { return named_.busy(); }
  [[nodiscard]] bool waits_for_lines() const;
  [[nodiscard]] Time next_deadline() const;
  /// The lanes are over: what others may still read of them. Nothing may be called afterwards.
  [[nodiscard]] std::vector<std::unique_ptr<collective::Fabric>> take_fabrics();

 private:
  void close_lane(const LaneKey& lane);
  [[nodiscard]] Status refuse(const collective::OpRequest& request);
  void take_failures(Time now);
  void meet(MemberId from, const wire::Control& members, Time now);

  const GroupFacts facts_;
  EngineParts& parts_;
  bool by_messages_ = false;
  bool introduced_ = false;  ///< The next member knows of whom this rank made the group.
  std::unique_ptr<GroupLane> one_shots_;
  PairLane pairs_;
  NamedLanes named_;
  LoadedPlans plans_;
  Status failed_;  ///< Not OK: the group is dead, with this cause.
  bool active_ = false;
};

}  // namespace corro::runtime
