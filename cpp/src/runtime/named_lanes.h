// NamedLanes: the named operations of a group. It carries the messages of its NamedGroup, and runs
// the group's steps on two lanes: the ordered lane for what is negotiated, and the planned lane for
// what a static plan starts.
//
// A lane is made when it is first needed here: a step runs or is given up on it, or a member speaks
// of it. Its key follows from the group's key, so every member finds it without a message.
//
// poll() moves the lanes, hands back buckets that have run, lets the group decide, sends its
// messages, and takes its steps. A step says one of three things:
//
//   run         the lane gets the work under the step's op id
//   give up     the op id takes its turn here without running, and CANCEL ends the operation on the
//               other members
//   take back   the lane lets go of planned operations that some member has not begun
//
// If a lane cannot be made, or a member breaks the protocol, take_failure() says so. The owner then
// ends everything here by fail().
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "runtime/group_lane.h"
#include "runtime/named_group.h"

namespace corro::runtime {

/// Loop-confined.
class NamedLanes {
 public:
  /// Makes a lane's fabric; fails where memory is short.
  using MakeFabric = std::function<Result<std::unique_ptr<collective::Fabric>>(const LaneKey&)>;

  NamedLanes(const GroupFacts& facts, EngineParts& parts, bool shares_memory,
             MakeFabric make_fabric);

  /// Takes in request `index` of a work; an error is the caller's to end it with.
  [[nodiscard]] Status submit(const std::shared_ptr<WorkState>& work, size_t index, Time now);
  /// READY or ORDER of a member (group rank).
  void hear(int32_t from, const wire::Control& control);
  /// The lane with this key, made if it is one of these two; or null.
  [[nodiscard]] GroupLane* find(const LaneKey& key);
  /// The keys of the lanes, made or not.
  [[nodiscard]] const std::array<LaneKey, 2>& keys() const { return keys_; }

  /// Something waits for its name, runs in a bucket, or is on a lane.
  [[nodiscard]] bool busy() const;
  /// There were named operations here, or others spoke of them.
  [[nodiscard]] bool used() const { return group_.has_value(); }
  bool poll(Time now);
  void check(Time now);
  [[nodiscard]] Time next_deadline() const;
  /// The first member that has left and that an operation waits for, or -1. A submission that has
  /// not started waits for every member.
  [[nodiscard]] int32_t awaited_that_left() const;
  void fail(const Status& cause, Time now);
  void close(const Status& cause);
  [[nodiscard]] std::optional<GroupFailure> take_failure();
  [[nodiscard]] Status take_next_error();
  /// Calls `visit` with each lane that is made.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& lane : lanes_) {
      if (lane != nullptr) visit(*lane);
    }
  }

 private:
  NamedGroup& group();
  GroupLane* open(named::NamedLane which);
  void send(const NamedMessage& message);
  void run(const NamedStep& step, Time now);
  void pass_over(size_t index);

  const GroupFacts& facts_;
  EngineParts& parts_;
  const bool shares_memory_;
  MakeFabric make_fabric_;
  std::array<LaneKey, 2> keys_;                      ///< By NamedLane.
  std::array<std::unique_ptr<GroupLane>, 2> lanes_;  ///< By NamedLane; null until used here.
  std::array<std::set<uint64_t>, 2> given_up_;       ///< Op ids that will not run here.
  std::optional<NamedGroup> group_;                  ///< Made with the first named operation.
  std::optional<GroupFailure> failure_;              ///< Not told to the group yet.
  bool failed_ = false;
};

}  // namespace corro::runtime
