// Switchboard: what the head of a job decides. Without I/O and without a clock of its own.
//
// A worker's or launcher's agent
//   there      from ENLIST on. An agent of an older generation than the member's newest is refused
//   leaving    from LEAVE on: no session is sent there any more, and its failures count as a loss
//   gone       its connection has ended. It was lost, unless it had been dismissed. The launcher's
//              agent hears of an agent that has fallen silent (HOST_LOST)
//
// A remote shell
//   waiting    from REACH on, until an agent of that host is there. It is refused if the launcher
//              says meanwhile that its hostfile names the host no more (HOST_LOST): the job was
//              made smaller. The head itself is not told how many workers are wanted
//   attended   that agent was asked (ATTEND); it dials in time, or the shell is refused
//   joined     with that connection (SESSION), which is the end of this part of the story
//
// Ranks that mpirun has started meet through the agents of their pods: each has the secret
// (MEETING) and hears what ranks of the others have put (RECORD), also before it was there.
//
// After a failure a roll is called before anything is decided: each worker's agent has to answer a
// LOOK that was sent after it, or be gone, so that a loss that is under way is seen. Then
//   mpirun     a worker was lost since it was started, and not long ago (kLossCounts), for some
//              commands survive losses and fail for another reason later: what sessions have left
//              is ended (RESET), and once all that were lost are back, or after a while, it runs
//              once more (PROCEED): its remote shells wait by themselves. If its hostfile is still
//              that from before the loss, a shell of it is refused, it fails, and runs once more.
//              None was: the launcher's pod ends (DISMISS)
//   the ranks of a CorroJob, which run while all of its workers are there
//              a worker was lost: they start again when all are there. None was: all pods end, with
//              the lack of memory that an agent has seen before it answered, else with their status
//              alone. So it does not matter whose end is seen first
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agent/messages.h"
#include "base/clock.h"
#include "secure/credentials.h"

namespace corro::pod {

/// After a loss an end of a launcher's command counts for so long as its consequence. mpirun ends
/// at once; an elastic horovodrun waits for 10 min for hosts enough, or goes on.
inline constexpr Duration kLossCounts = std::chrono::minutes(15);

/// Names a connection to the head for as long as that runs.
using ConnectionId = uint64_t;

/// The next thing that the head has to do.
struct Order {
  enum class Kind : uint8_t {
    kSay,         ///< `body` to `to`.
    kSayAndEnd,   ///< The same, and it is closed once it has that.
    kJoin,        ///< READY to `to` and `with`; from then on what one says is the other's.
    kStartRanks,  ///< All workers of a CorroJob are there.
  };
  Kind kind = Kind::kSay;
  ConnectionId to = 0;
  ConnectionId with = 0;
  agent::MessageBody body = agent::Ready{};
};

/// Loop-confined.
class Switchboard {
 public:
  struct Options {
    std::string job;
    bool runs_ranks = false;
    int workers = 0;        ///< Of a CorroJob.
    Duration silence;       ///< So long an agent may say nothing.
    wire::Secret secret{};  ///< Of ranks that mpirun starts.
  };
  explicit Switchboard(Options options) : options_(std::move(options)) {}

  // Events. An agent's words on other connections than its own are dropped.
  void enlist(ConnectionId from, const secure::PodIdentity& who, const agent::Enlist& enlist,
              Time now);
  void reach(ConnectionId from, const secure::PodIdentity& who, const std::string& host, Time now);
  void meet(ConnectionId from, const secure::PodIdentity& who, const agent::SessionId& session);
  void hear_alive(ConnectionId from, Time now);
  void hear_leave(ConnectionId from);
  /// A lack of memory in the agent's pod.
  void hear_trouble(ConnectionId from, const std::string& text);
  /// A launcher's word: shells that wait for this host would wait for ever.
  void hear_host_lost(ConnectionId from, const std::string& host);
  void record(ConnectionId from, const agent::Record& record);
  void propose(ConnectionId from, const agent::Propose& proposal, Time now);
  void end(ConnectionId connection);
  /// The ranks that kStartRanks has asked for have ended, with this status as of a shell.
  void end_ranks(int status, Time now);
  /// Once a second, or sooner: LOOKs are sent, and silence ends.
  void tick(Time now);

  [[nodiscard]] std::vector<Order> take_orders() { return std::exchange(orders_, {}); }
  /// Of the agent of worker 0; what ranks run.
  [[nodiscard]] const agent::Enlist* enlisted() const;
  /// Members that something waits for, and that are not there: of a CorroJob its workers, else those
  /// that remote shells want to reach.
  [[nodiscard]] std::vector<std::string> missing() const;
  [[nodiscard]] size_t agents() const { return agents_.size(); }

 private:
  struct Agent {
    std::string member;
    uint32_t generation = 0;
    agent::Enlist enlist;
    bool leaving = false;
    std::string trouble = {};  ///< Since ranks were started last.
    uint64_t looks = 0;        ///< LOOKs that it was sent...
    uint64_t answers = 0;      ///< ...and answers to them.
    Time heard{};
  };
  struct Shell {
    ConnectionId connection = 0;
    std::string member;
    std::optional<agent::SessionId> session = {};  ///< Once attended, by `attendant`.
    ConnectionId attendant = 0;
    Time asked = Time::never();
  };
  /// Whose failure is looked into.
  struct Failure {
    ConnectionId launcher = 0;  ///< 0: the ranks'.
    int status = 0;
    bool saw_loss = false;
    Time since{};
    std::map<ConnectionId, uint64_t> awaited = {};  ///< Which answer of whom.
  };

  void say(ConnectionId to, agent::MessageBody body) {
    orders_.push_back({.kind = Order::Kind::kSay, .to = to, .with = 0, .body = std::move(body)});
  }
  void refuse(ConnectionId to, Code code, std::string why);
  void look(ConnectionId to, Agent& agent);
  [[nodiscard]] bool is_old(const secure::PodIdentity& who);
  [[nodiscard]] ConnectionId agent_of(const std::string& member) const;
  void serve_waiting();
  void lose(const std::string& member);
  void tell_of_meeting(ConnectionId to);
  void tell_launcher(const std::string& lost);
  void call_roll(Failure failure);
  void go_on();
  [[nodiscard]] bool is_called(const Failure& failure) const;
  [[nodiscard]] bool all_back() const;
  [[nodiscard]] bool settle(const Failure& failure);
  [[nodiscard]] std::string why_ranks_failed() const;
  void dismiss_all(int status, const std::string& why);
  void start_ranks_if_all_there();
  [[nodiscard]] bool all_there() const;

  Options options_;
  Time now_{};
  std::vector<Order> orders_;
  std::map<ConnectionId, Agent> agents_;
  std::map<std::string, ConnectionId> by_member_;
  std::map<std::string, uint32_t> newest_;  ///< Generation of each member.
  std::deque<agent::Record> records_;       ///< Of ranks that mpirun has started.
  size_t record_bytes_ = 0;
  std::list<Shell> shells_;           ///< Not joined yet.
  std::map<std::string, Time> lost_;  ///< Workers, since something was started last, and when.
  std::vector<Failure> failures_;
  bool is_over_ = false;    ///< All agents were dismissed, and none has come since.
  bool ranks_run_ = false;  ///< Or have failed, and it is not settled what follows.
  uint64_t sessions_ = 0;   ///< So many were named.
};

}  // namespace corro::pod
