// GroupTable: the groups of one engine by their keys, and what others say of groups that are not
// made yet, or no more.
//
// Every member computes a group's key from the epoch, from the group's name or, without one, from
// its members, and from how many groups of that name or of these members this engine has asked for
// in this epoch, calls that failed included. So only members call, and members that make the same
// calls agree without a word. A member may be faster than this rank: what it says of a group is
// kept until the group is made here. A destroyed group's keys are remembered, so that late words of
// it are dropped; of epochs that are over, Peers drops everything.
//
// A job may hold thousands of groups of which few do something. So a group is either idle or
// active, and what is done in every poll is done with the active ones alone:
//
//   idle -- something is submitted to it, a plan is loaded on it, a member says something to it or
//           is lost --> active
//   active -- polled, and not busy any more --> idle
//
// A busy group is always active: nothing but these calls begins something in a group. An active
// group is polled at least once, so it takes in whatever made it active.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/group.h"

namespace corro::runtime {

/// Loop-confined.
class GroupTable {
 public:
  explicit GroupTable(EngineParts& parts) : parts_(parts) {}

  /// Makes the world of an epoch: its members by rank. Groups of earlier epochs fail with
  /// CANCELLED, and are kept until they are destroyed; an earlier world is kept while it has plans.
  [[nodiscard]] Status start_epoch(uint32_t epoch, std::vector<MemberId> members, Time now);
  [[nodiscard]] Group& world() { return *world_; }

  /// Makes a group of world ranks of this epoch, in the given rank order; null if this rank is no
  /// member. INVALID_ARGUMENT for ranks that are none, or twice there.
  [[nodiscard]] Result<Group*> create(const std::string& name,
                                      const std::vector<int32_t>& world_ranks, Time now);
  /// FAILED_PRECONDITION while it is busy.
  [[nodiscard]] Status destroy(Group& group);

  /// See PlanPart::make(). Others speak of the group by the keys of the plan, too.
  [[nodiscard]] Result<LoadedPlan*> load(Group& group, const graph::Plan& plan,
                                         const LoadOptions& options, Time now);
  /// Stops the plan if something is in flight, forgets it with its keys, and keeps what others may
  /// still read.
  void unload(Group& group, LoadedPlan& plan, Time now);

  /// Queues a work on the group.
  void submit(Group& group, const std::shared_ptr<WorkState>& work, Time now);
  /// The group has got something to move by another way than this table.
  void activate(Group& group);

  /// Tells the groups that it concerns what a member has said, or that it is lost. What is said of
  /// a group that is not made yet is kept until then.
  void hear(const PeerEvent& event, Time now);

  /// Moves the active groups; true if anything moved.
  bool poll(Time now);
  /// The same for those that have this member.
  bool poll_with(MemberId member, Time now);
  /// Looks at what waits for members that have left, and at deadlines.
  void check_departed(Time now);
  void check(Time now);
  /// Calls `visit` with every group.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& group : groups_) visit(*group);
  }
  /// Names wait: then what others say counts even where no message is awaited.
  [[nodiscard]] bool names_wait() const;
  /// A started operation waits for a line that others have to free.
  [[nodiscard]] bool waits_for_lines() const;
  /// A poll would move a plan by something that no peer and no clock tells of.
  [[nodiscard]] bool plans_have_news() const;
  [[nodiscard]] Time next_deadline() const;

 private:
  /// What was said of a group before it was made.
  struct Early {
    std::vector<PeerSaid> said;
    MemberId too_much_from = -1;  ///< A member that said more than is kept, or -1.
  };
  /// The memory of a destroyed group's lane.
  struct Quiet {
    std::unique_ptr<collective::Fabric> fabric;
    std::map<int32_t, MemberId> members;  ///< By world rank.
  };
  [[nodiscard]] Result<Group*> open(LaneKey key, std::string name,
                                    const std::vector<int32_t>& world_ranks, Time now);
  [[nodiscard]] Group* find(const LaneKey& key) const;
  void keep_early(const PeerSaid& said);
  void add_keys(Group& group, const std::vector<LaneKey>& keys, Time now);
  void free_quiet_fabrics();
  void forget(Group& group);
  void forget_ended_worlds();
  void forget_keys(const std::vector<LaneKey>& keys);

  EngineParts& parts_;
  uint32_t epoch_ = 0;
  std::vector<MemberId> members_;  ///< By world rank of this epoch.
  Group* world_ = nullptr;
  std::vector<Group*> ended_worlds_;  ///< Of earlier epochs, with plans that are still loaded.
  std::vector<std::unique_ptr<Group>> groups_;
  std::vector<Group*> active_;
  size_t plans_ = 0;  ///< Loaded on all groups.
  std::unordered_map<LaneKey, Group*, LaneKeyHash> by_key_;
  std::map<std::string, uint64_t> asked_;  ///< Groups of this epoch by name or members.
  std::unordered_map<LaneKey, Early, LaneKeyHash> early_;
  size_t kept_early_ = 0;
  std::vector<LaneKey> closed_;  ///< A ring of the keys of groups destroyed last.
  size_t next_closed_ = 0;
  std::vector<Quiet> quiet_;
};

}  // namespace corro::runtime
