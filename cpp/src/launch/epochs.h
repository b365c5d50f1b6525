// Epochs: the members of a job, for its launcher: who they are, which rank each has in the epoch
// that is, and what the agents are told when the roster (coord/roster.h) begins another one.
//
// A member has a *place*: its rank in epoch 0. Logs, and what is said to people, go by places,
// since ranks are numbered anew in each epoch. A member that an epoch has begun without has *left*:
// how it ended is no failure of the job.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "coord/roster.h"
#include "launch/worker_env.h"

namespace corro::launch {

/// Of one a second.
inline constexpr int kFrozenLooks = 3;

/// Pure: time is injected. Loop-confined.
class Epochs {
 public:
  /// What the launcher has to do, in this order.
  struct Orders {
    std::vector<agent::Message> messages;  ///< For all agents.
    std::vector<size_t> fenced;            ///< Places whose processes are to be killed.
    bool begun = false;                    ///< A new epoch has.
    std::string why;    ///< Of a new epoch, begun or not, or of the end; "": nothing changes.
    bool stop = false;  ///< The job cannot go on.
  };

  /// `least`: ranks with which the job goes on; none: every rank is needed.
  Epochs(const JobFacts& job, std::vector<agent::Subject> members, std::optional<int> least);

  /// Whether a rank that ends may leave the others going on.
  [[nodiscard]] bool elastic() const { return elastic_; }
  [[nodiscard]] uint32_t epoch() const { return state_.epoch; }
  [[nodiscard]] size_t places() const { return members_.size(); }
  /// Ranks of the epoch.
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  /// As messages name the member, in the last epoch that it was in.
  [[nodiscard]] const agent::Subject& subject(size_t place) const { return members_[place]; }
  /// Whom a message is about, whatever the epoch it was said in; none: it is of no process of ours.
  [[nodiscard]] std::optional<size_t> place_of(const agent::Subject& about) const;
  /// -1 if the epoch has no such rank.
  [[nodiscard]] int place_of_rank(int rank) const;
  /// Who takes part in the epoch, for all agents.
  [[nodiscard]] agent::Message announce() const;
  [[nodiscard]] bool left(size_t place) const { return left_.contains(place); }

  /// A member's process has ended; `how` is for people.
  Orders end(size_t place, bool well, const std::string& how, Time now);
  /// A look has seen whether a signal has stopped a member, which it may have done for a moment. One
  /// that was stopped in kFrozenLooks looks in a row, beside one that was not, is frozen.
  Orders see(size_t place, bool stopped, Time now);
  /// A member has left its engine and waits for this epoch.
  Orders ready(size_t place, uint32_t epoch, Time now);
  /// Time has passed.
  Orders tick(Time now) { return hear(coord::Tick{}, now); }
  [[nodiscard]] Time wake() const { return state_.until; }

 private:
  Orders hear(const coord::Event& event, Time now);
  void carry_out(const coord::Prepare& prepare, Orders& orders);
  void carry_out(const coord::Commit& commit, Orders& orders);
  void carry_out(const coord::Fence& fence, Orders& orders);
  void carry_out(const coord::Stop& stop, Orders& orders);
  [[nodiscard]] size_t place_of(const coord::MemberUuid& uuid) const;

  JobFacts job_;
  std::vector<agent::Subject> members_;  ///< By place.
  std::vector<size_t> ranks_;            ///< By rank of the epoch: the place.
  std::set<size_t> left_;
  std::vector<int> stopped_;  ///< By place: looks in a row in which it was.
  bool elastic_;
  coord::Options options_;
  coord::State state_;
};

}  // namespace corro::launch
