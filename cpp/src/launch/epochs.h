// Epochs: the members of a job, for its launcher: who they are, which rank each has in the epoch
// that is, and what the agents are told when the roster (coord/roster.h) begins another one.
//
// A member has a *place*: its rank in epoch 0, or one behind these. Logs, and what is said to
// people, go by places, since ranks are numbered anew in each epoch. A place is taken by a process
// in one of the *slots* of the job's hosts, and then by another one, perhaps elsewhere. Who takes
// no part in the epoch that is has *left*, or has not joined yet: how it ended is no failure of the
// job.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "coord/roster.h"
#include "launch/job_record.h"
#include "launch/worker_env.h"

namespace corro::launch {

/// Of one a second.
inline constexpr int kFrozenLooks = 3;

/// Pure, but that a joiner's uuid is drawn: time is injected. Loop-confined.
class Epochs {
 public:
  /// What people and --events are told.
  struct News {
    enum class Kind : uint8_t {
      kComes,   ///< A new epoch.
      kBegun,   ///< It has.
      kPolicy,  ///< Says how long is waited, or who goes.
      kFenced,  ///< A process takes no part any more.
    };
    Kind kind = Kind::kComes;
    uint32_t epoch = 0;
    std::string why;
    std::optional<size_t> host = std::nullopt;   ///< Of the slot that the policy speaks of.
    std::optional<size_t> place = std::nullopt;  ///< Of the process that is fenced.
  };
  /// What the launcher has to do, in this order.
  struct Orders {
    std::vector<agent::Message> fenced;    ///< Each ends a process.
    std::vector<agent::Message> messages;  ///< For all agents.
    std::vector<size_t> started;           ///< Places in which a process is to be started.
    std::vector<News> news;
    std::string stop;  ///< Why the job cannot go on; "": it does.
  };

  /// `members`: by place; those of the job's ranks take part from the beginning on. No `options`:
  /// every rank is needed.
  Epochs(const JobFacts& job, std::vector<agent::Subject> members,
         const std::optional<coord::Options>& options);

  /// Goes on with a job that another coordinator has led: to be called at first.
  void resume(const JobRecord& record, Time now);
  /// For the one that goes on with this job. Hosts are the caller's to say.
  [[nodiscard]] JobRecord record() const;

  /// Whether a rank that ends may leave the others going on.
  [[nodiscard]] bool elastic() const { return elastic_; }
  [[nodiscard]] uint32_t epoch() const { return state_.epoch; }
  /// All its members save what they have, and end.
  [[nodiscard]] bool last() const { return state_.last; }
  [[nodiscard]] size_t places() const { return members_.size(); }
  /// Whoever was not lost has done its work: nobody waits for an epoch without the others any more.
  [[nodiscard]] bool done() const {
    return state_.done > 0 && state_.members.empty() && !state_.stopped;
  }
  /// A member has done its work, or all are to end: nobody joins any more.
  [[nodiscard]] bool closing() const { return state_.done > 0 || state_.last; }
  /// Ranks of the epoch.
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  /// The places of the epoch's members, by rank.
  [[nodiscard]] const std::vector<size_t>& ranks() const { return ranks_; }
  /// As the user has named it.
  [[nodiscard]] const std::string& host_name(size_t host) const { return job_.hosts[host].name; }
  /// Where the process in this place is, or was last.
  [[nodiscard]] Seat seat(size_t place) const;
  /// As messages name the member, in the last epoch that it was in.
  [[nodiscard]] const agent::Subject& subject(size_t place) const { return members_[place]; }
  /// Whom a message is about, whatever the epoch it was said in; none: it is of no process of ours.
  [[nodiscard]] std::optional<size_t> place_of(const agent::Subject& about) const;
  /// -1 if the epoch has no such rank.
  [[nodiscard]] int place_of_rank(int rank) const;
  /// Who takes part in the epoch, for all agents.
  [[nodiscard]] agent::Message announce() const;
  [[nodiscard]] bool left(size_t place) const { return members_[place].epoch != state_.epoch; }
  /// The process in this place has never been a member, or there was none yet.
  [[nodiscard]] bool joins(size_t place) const {
    return members_[place].epoch == agent::kNoEpochYet;
  }

  /// A process has ended; `how` is for people.
  Orders end(size_t place, bool well, const std::string& how, bool host_lost, Time now);
  /// A look has seen whether a signal has stopped a process, which it may have done for a moment. One
  /// that was stopped in kFrozenLooks looks in a row, beside one that was not, is frozen.
  Orders see(size_t place, bool stopped, Time now);
  /// A process has left its engine and waits for this epoch; 0: it joins. `steps`: that it has
  /// applied. `lost`: whose loss, by place, has made it leave the epoch that is; -1: nobody's.
  Orders ready(size_t place, uint32_t epoch, uint64_t steps, int lost, Time now);
  /// The others have waited too long for this process.
  Orders hang(size_t place, const std::string& how, Time now) {
    return hear(coord::Frozen{.member = members_[place].member, .how = how}, now);
  }
  /// resume() is over: this is the newest epoch that an agent was told of.
  Orders go_on(uint32_t prepared, Time now) {
    return hear(coord::Resumed{.prepared = prepared}, now);
  }
  /// A process was asked to end; `is_all`: since the job was.
  Orders leave(size_t place, bool is_all, Time now);
  /// All processes of a host were, and nobody is started on it any more.
  Orders leave_host(size_t host, Time now);
  /// The job is to end: no more processes are started.
  void close() { options_.most = 0; }
  /// So many slots of a host can be used from now on; 0: who is there has to leave. `host`: its
  /// number, which may be new.
  Orders offer(size_t host, const std::string& name, int slots, Time now);
  /// Nobody is started on this host any more. Of the processes there end() tells.
  Orders lose_host(size_t host, Time now);
  /// Time has passed.
  Orders tick(Time now) { return hear(coord::Tick{}, now); }
  [[nodiscard]] Time wake() const {
    return elastic_ ? coord::wake(state_, options_) : Time::never();
  }

 private:
  Orders hear(const coord::Event& event, Time now);
  void hear(const coord::Event& event, Time now, Orders& orders);
  void begin(size_t slot, Time now, Orders& orders);
  void carry_out(const coord::Prepare& prepare, Orders& orders);
  void carry_out(const coord::Commit& commit, Orders& orders);
  void carry_out(const coord::Fence& fence, Orders& orders);
  /// begin() does, once all else is carried out.
  void carry_out(const coord::Start& /*start*/, Orders& /*orders*/) {}
  void carry_out(const coord::Stop& stop, Orders& orders);
  void carry_out(const coord::Tell& tell, Orders& orders);
  [[nodiscard]] size_t place_of(const coord::MemberUuid& uuid) const;
  [[nodiscard]] size_t free_place(size_t slot) const;
  [[nodiscard]] size_t slot_of(size_t host, int number);

  /// Of a host.
  struct Slot {
    size_t host = 0;
    int number = 0;
  };

  JobFacts job_;
  std::vector<agent::Subject> members_;  ///< By place.
  std::vector<Slot> slots_;
  std::vector<size_t> slot_of_;  ///< By place.
  std::vector<bool> runs_;       ///< By place: there is a process.
  std::vector<size_t> ranks_;    ///< By rank of the epoch: the place.
  std::vector<int> stopped_;     ///< By place: looks in a row in which it was.
  bool elastic_;
  coord::Options options_;
  coord::State state_;
};

}  // namespace corro::launch
