// AgentCourse: what the agent of a host does about its ranks when its commander says something, or
// something becomes of them.
//
//   watching   ranks are started, and take part in epoch after epoch; who is no member is ended
//   fencing    from FENCE: what ranks have left running may go on for its grace; then it is killed
//   draining   the output that is still on its way is read: until every stream is closed, or for
//              0.3 s in which it may be sent. RELEASE leads here at once, and what is left goes on
//   fenced     every end was said again, and FENCED: nothing comes after it
//
// Table servers are processes of the host as ranks are, and are ended with what ranks have left. They
// are members of no epoch, and signals for all ranks pass them by, unless they stop or kill whoever
// gets them. They are looked at as ranks are: for their tables.
//
// Its commander may be lost, and another one come (follow()). That is told all once more: it knows
// who the members are, and what they have said it hears from those who have heard it.
//
// It has no clock and no I/O. Its caller reports, takes the orders, and carries them out in order.
// Ranks have numbers in the order in which they were started.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "agent/membership.h"
#include "agent/messages.h"
#include "agent/silence.h"
#include "wire/server_number.h"

namespace corro::agent {

// -- orders ---------------------------------------------------------------------------------------

/// To the commander.
struct Say {
  Message message;
};
/// To the commander: what a rank does, or how it has ended.
struct Report {
  size_t rank = 0;
  bool ended = false;
};
/// A rank, or all of them, gets a signal.
struct SendSignal {
  std::optional<size_t> rank;  ///< None: all.
  int number = 0;
};
/// The rank takes no part any more: it is killed, with what is below it.
struct KillRank {
  size_t rank = 0;
};
/// What ranks have left running is killed.
struct KillRest {
  std::vector<pid_t> processes;
};
/// For the worker of a rank: an epoch comes.
struct PrepareWorker {
  size_t rank = 0;
  uint32_t epoch = 0;
  Prepare how;
};
/// For all workers: an epoch of so many ranks has begun, and for each of its members, who it is.
struct StartEpoch {
  int32_t size = 0;
};
struct CommitWorker {
  size_t rank = 0;
  uint32_t epoch = 0;
  int32_t number = 0;  ///< Its rank in the epoch.
  bool last = false;
};
/// For all workers: what one of another host has put into the bootstrap.
struct Supply {
  Record record;
};
/// For all workers: this rank of the epoch has ended in good order, and joins no more.
struct EndRank {
  int32_t number = 0;
  std::string host;  ///< "": this one.
};
/// For all workers: nobody leads, and no epoch comes any more.
struct EndEpochs {};
using AgentOrder = std::variant<Say, Report, SendSignal, KillRank, KillRest, PrepareWorker,
                                StartEpoch, CommitWorker, Supply, EndRank, EndEpochs>;

// -- the course -----------------------------------------------------------------------------------

/// Pure. Loop-confined.
class AgentCourse {
 public:
  enum class State : uint8_t { kWatching, kFencing, kDraining, kFenced };

  /// `far`: the commander is on another host.
  AgentCourse(std::string host, bool far, Time now) : host_(std::move(host)), silence_(far, now) {}

  // Who commands.
  /// A coordinator says that it leads in this term. False: another one leads in a later one, or the
  /// same in this one. Else it is told what processes there are, and what each of them has said.
  [[nodiscard]] bool follow(uint64_t term, Time now);
  /// Of the coordinator that it had last; 0: it had none.
  [[nodiscard]] uint64_t term() const { return term_; }
  /// The newest epoch that it was told of.
  [[nodiscard]] uint32_t prepared() const { return std::max(prepared_, membership_.epoch()); }

  // What the commander says.
  /// Whether a message is of this job, and not of an epoch that is over; what is not is dropped. The
  /// first one says which job it is.
  [[nodiscard]] bool accepts(const Subject& about);
  /// Takes one that was accepted.
  void hear(const Message& message, Time now);
  /// The commander lives.
  void hear_life(Time now) { silence_.hear(now); }
  /// Then the commander is gone, if nothing was heard of it.
  [[nodiscard]] Time silent_at() const { return silence_.deadline(); }
  /// Whether a process may be started. FAILED_PRECONDITION if it is no member.
  [[nodiscard]] Status admit(const Subject& about) const;

  // What becomes of ranks.
  /// It was started: the next number is its own.
  void on_start(const Subject& about, int32_t pid);
  /// Its worker has met the agent.
  void on_join(size_t rank);
  /// Its worker has left its engine.
  void on_ready(size_t rank, const ReadyForEpoch& ready);
  /// Its worker was asked to end.
  void on_leave(size_t rank);
  /// Its worker tells people.
  void on_notice(size_t rank, const wire::Notice& notice, Time now);
  /// The agent was: the host is about to go, and its ranks are to leave before.
  void on_leave();
  [[nodiscard]] bool leaves() const { return leaves_; }
  /// No commander takes that up: the ranks are asked to end, and know that no epoch comes.
  void end_ranks();
  /// Some worker has put this into the bootstrap, for those of other hosts too.
  void on_put(Record record);
  /// Its process has ended; `well`: in good order.
  void on_end(size_t rank, bool well);
  /// Tells of those that have ended well and will not join: each that has never done so, unless
  /// something is left that may do it for them. `joined`: whether the rank of the epoch has.
  /// Neither is asked unless it matters.
  void tell_departures(const std::function<bool(int32_t)>& joined,
                       const std::function<bool()>& anything_left);

  // While it fences.
  /// What is left of all that ranks have started.
  void see_rest(const std::vector<pid_t>& rest, Time now);
  /// `open`: some stream of a rank is not at its end; `held`: nothing is read from ranks now.
  void drain(bool open, bool held, Time now);
  /// Output is read again, after it was held: the time for it begins anew.
  void resume(Time now);
  [[nodiscard]] Time next_state(bool held, Time now) const;

  [[nodiscard]] std::vector<AgentOrder> take_orders() { return std::exchange(orders_, {}); }

  [[nodiscard]] State state() const { return state_; }
  /// Ranks were told that the job is being ended.
  [[nodiscard]] bool ending() const { return ending_; }
  /// How a message of this host begins, and one about a rank.
  [[nodiscard]] Subject here() const { return {.job = job_, .epoch = membership_.epoch()}; }
  [[nodiscard]] const Subject& about(size_t rank) const { return ranks_[rank].about; }
  [[nodiscard]] size_t size() const { return ranks_.size(); }
  [[nodiscard]] bool runs(size_t rank) const { return ranks_[rank].runs; }
  /// It is a table server.
  [[nodiscard]] bool serves(size_t rank) const { return wire::is_server(about(rank).rank); }
  [[nodiscard]] bool any_runs() const { return std::ranges::any_of(ranks_, &Rank::runs); }
  /// It was killed, since it is no member: what it prints is nobody's concern.
  [[nodiscard]] bool is_fenced(size_t rank) const { return ranks_[rank].fenced; }
  /// Whom a message is about.
  [[nodiscard]] std::optional<size_t> find(const Subject& about) const;
  /// The rank of this number in the newest epoch that has one.
  [[nodiscard]] std::optional<size_t> find_number(int32_t number) const;

 private:
  struct Rank {
    Subject about;
    int32_t pid = 0;
    bool runs = true;
    bool fenced = false;
    bool killed = false;   ///< By the commander, who knows why.
    bool departs = false;  ///< It has ended well, and the workers do not know.
    // What it has said, and nothing that came later has answered.
    bool joined = false;
    bool leaves = false;
    bool left = false;
    std::optional<ReadyForEpoch> ready = std::nullopt;
    /// The last one of each kind, and when it was told.
    std::map<wire::NoticeKind, std::pair<wire::Notice, Time>> notices = {};
  };

  void on(const Subject& about, const Signal& signal, Time now);
  void on(const Subject& about, const Look& look, Time now);
  void on(const Subject& about, const Prepare& prepare, Time now);
  void on(const Subject& about, const Members& members, Time now);
  void on(const Subject& about, const Record& record, Time now);
  void on(const Subject& about, const Left& left, Time now);
  void on(const Subject& about, const Fence& fence, Time now);
  void on(const Subject& about, const Release& release, Time now);
  /// What only agents say, and what is not about ranks.
  void on(const Subject& /*about*/, const auto& /*other*/, Time /*now*/) {}

  [[nodiscard]] Status stranger(const Subject& about) const;
  void expel(Rank& rank, size_t number);
  void signal_ranks(int number);
  void drain_until(Time until);
  void order(AgentOrder what) { orders_.push_back(std::move(what)); }
  void say(MessageBody body) { order(Say{{here(), std::move(body)}}); }
  void say(size_t rank, MessageBody body) { order(Say{{about(rank), std::move(body)}}); }

  const std::string host_;
  Silence silence_;
  bool has_heard_ = false;  ///< A message, which has named job and epoch.
  uint64_t term_ = 0;
  uint32_t prepared_ = 0;
  wire::Digest job_{};
  Membership membership_;
  std::vector<Rank> ranks_;
  State state_ = State::kWatching;
  Time until_ = Time::never();  ///< Of fencing and draining.
  bool ending_ = false;
  bool leaves_ = false;        ///< The host does.
  bool left_ = false;          ///< Processes are left that should not be.
  std::vector<Record> early_;  ///< Of other hosts, before a rank was started.
  std::vector<Record> put_;    ///< In this epoch.
  std::vector<AgentOrder> orders_;
};

}  // namespace corro::agent
