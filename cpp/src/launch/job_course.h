// JobCourse: what the launcher of a job has to do when something happens: when an agent says
// something, a host is lost, a signal comes, or time passes.
//
//   opening   the hosts are being prepared. Whatever fails refuses the job
//   running   from begin() on ranks run. The roster decides who takes part (epochs.h). In a job
//             that is not elastic the first rank that ends badly ends all (stopping.h)
//   resuming  after resume(), in place of opening: another coordinator has led the job, whose ranks
//             run. What is said of them waits until each host has said all, or is lost
//   over      the last rank has ended, and then the table servers (servers.h). What it was all
//             about, result() says
//
// It has no clock and no I/O. Its caller reports, takes the orders, and carries them out in order.
// So a whole job, with its hosts and whatever can happen to them, is a test in one process.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "diagnosis/hang.h"
#include "launch/epochs.h"
#include "launch/events.h"
#include "launch/servers.h"
#include "launch/stack_round.h"
#include "launch/stopping.h"
#include "launch/trace_round.h"

namespace corro::launch {

// -- orders ---------------------------------------------------------------------------------------

/// To the agent of a host.
struct TellHost {
  size_t host = 0;
  agent::Message message;
};
/// To all agents, but the one that it comes from.
struct TellAll {
  agent::Message message;
  std::optional<size_t> from = std::nullopt;
};
/// A process of this member is to be started.
struct StartRank {
  agent::Subject about;
  Seat seat;
  bool joins = false;  ///< The job has begun without it.
};
/// A table server is to be started.
struct StartServer {
  agent::Subject about;
  size_t host = 0;
  size_t server = 0;  ///< Its number.
};
/// Ranks say that they have lost one of this host: it is not waited for as long as others.
struct SuspectHost {
  size_t host = 0;
};
/// For whoever listens to what happens.
struct Announce {
  Event event;
};
/// For people: a line of corro's own.
struct Note {
  std::string line;
};
/// What goes on for a while, and that it does not any more; `over`: in the place of a line that
/// cannot be taken back.
struct ShowStatus {
  std::string line;
};
struct EndStatus {
  std::string over;
};
/// A rank has failed: what others print on stderr from now on may be of no interest.
struct HoldErrors {};
/// To whoever has asked for the ranks' stacks.
struct AnswerStacks {
  std::string text;
};
/// To whoever has asked for a trace of the ranks.
struct AnswerTrace {
  std::string text;
};
/// To be kept for whoever goes on with the job, before anything that is ordered later is done.
struct Remember {
  JobRecord record;  ///< Without the hosts.
};
using JobOrder =
    std::variant<TellHost, TellAll, StartRank, StartServer, SuspectHost, Announce, Note, ShowStatus,
                 EndStatus, HoldErrors, AnswerStacks, AnswerTrace, Remember>;

// -- the course -----------------------------------------------------------------------------------

/// Pure, but that the uuids of joiners are drawn. Loop-confined.
class JobCourse {
 public:
  struct Options {
    std::optional<coord::Options> elastic = std::nullopt;  ///< None: every rank is needed.
    std::optional<Duration> timeout = std::nullopt;
    std::optional<Duration> long_wait = std::nullopt;     ///< None: see diagnosis::kLongWait.
    std::optional<Duration> hang_timeout = std::nullopt;  ///< None: ranks may wait for ever.
    bool several_hosts = false;                           ///< There are, or may be.
    bool remembers = false;                               ///< Others may go on with the job.
    bool quiet = false;
    bool verbose = false;
  };
  /// How the job went.
  struct Result {
    std::vector<diagnosis::RankEnd> ends;  ///< Of those that count, by place.
    bool timed_out = false;                ///< Then as they were when time was over.
    std::optional<int> asked = {};  ///< The first signal by which the user asked for the end.
    bool last = false;              ///< It has ended with its last epoch.
    std::string no_way_on;          ///< Why an elastic job was stopped; "": it was not.
    bool lost_host_last =
        false;           ///< The last rank that was lost was lost with its host, or none was.
    uint32_t epoch = 0;  ///< The last one.
  };

  /// `members`: by place, as new_members() makes them.
  JobCourse(const JobFacts& job, std::vector<agent::Subject> members, Options options, Time now);

  // What happens.
  /// All hosts are prepared.
  void begin(Time now);
  /// Goes on with a job of this record, which has members. Its hosts are those of the job.
  void resume(const JobRecord& record, Time now);
  /// The job cannot begin. The first reason counts. `host`: that cannot be used.
  void refuse(const std::string& why, std::optional<size_t> host = std::nullopt) {
    if (host && (refused_.empty() || !refused_hosts_.empty())) refused_hosts_.emplace(*host, why);
    if (refused_.empty()) refused_ = why;
  }
  /// What an agent says of a rank. What is of no process of this job is dropped, and a process that
  /// is none is ended.
  void hear(size_t host, const agent::Message& message, Time now);
  /// What an agent says of its host, or has for others.
  void hear_host(size_t host, const agent::Message& message, Time now);
  void lose_host(size_t host, const std::string& why, Time now);
  /// So many slots of a host can be used; 0: none any more. A host that is new has the next number.
  void offer_host(size_t host, const std::string& name, int slots, Time now);
  void on_signal(int signal, Time now);
  /// Nobody wants the job any more.
  void on_caller_gone(Time now) { stopping_.on_caller_gone(running_ > 0, now); }
  /// Somebody asks for the ranks' stacks. Whoever asks meanwhile gets the same answer.
  void ask_stacks(Time now);
  /// The same for what ranks did in their last steps.
  void ask_trace(uint32_t steps, Time now);
  /// Now and then, to see who waits too long for whom.
  void look(Time now);
  /// Time has passed.
  void tick(Time now);
  [[nodiscard]] Time wake() const;
  /// Ends what ranks have left running.
  void fence();

  /// What is to be done.
  [[nodiscard]] std::vector<JobOrder> take_orders() { return std::exchange(orders_, {}); }
  /// A line about hosts and members.
  void note(const std::string& line);
  /// The user wants another number of table servers. Returns what is to be told: "no: " and why not,
  /// or what is done.
  [[nodiscard]] std::string change_servers(const ServerChange& change, Time now);
  /// What becomes of a host that is offered, or is not. "": of none, or of all.
  void tell_of_host(const std::string& name, const std::string& text);

  // What is.
  [[nodiscard]] bool begun() const { return begun_; }
  [[nodiscard]] bool resuming() const { return !awaited_hosts_.empty(); }
  [[nodiscard]] int running() const { return running_; }
  /// No rank runs, and no table server is waited for.
  [[nodiscard]] bool over() const { return running_ == 0 && servers_.over(); }
  /// Why it cannot begin; "": it can.
  [[nodiscard]] const std::string& refused() const { return refused_; }
  /// Why these hosts cannot be used, if that is why.
  [[nodiscard]] const std::map<size_t, std::string>& refused_hosts() const {
    return refused_hosts_;
  }
  /// What is known of the process in each place; without a pid there was none yet.
  [[nodiscard]] const std::vector<diagnosis::RankEnd>& ends() const { return ends_; }
  /// Who waits too long for whom; "": nobody does.
  [[nodiscard]] const std::string& long_wait() const { return long_wait_; }
  /// What ranks have said of the plan that they follow, as JSON; "": nothing.
  [[nodiscard]] const std::string& plan() const { return plan_; }
  /// Processes that have failed by themselves, or were lost with their host, ever.
  [[nodiscard]] uint64_t lost() const { return lost_; }
  /// The signal by which the user has asked for the end first.
  [[nodiscard]] std::optional<int> asked() const { return stopping_.asked(); }
  /// The user waits for nothing any more.
  [[nodiscard]] bool impatient() const { return stopping_.impatient(); }
  /// Ranks run, and nobody ends them.
  [[nodiscard]] bool goes_on() const { return running_ > 0 && stopping_.undisturbed(); }
  /// Ranks may come and go: the job is elastic, and nobody has ended it. After SIGTERM ranks go, in
  /// their own time.
  [[nodiscard]] bool evolves() const {
    return members_.elastic() && begun_ && !resuming() && stopping_.undisturbed() &&
           stopping_.asked().value_or(SIGTERM) == SIGTERM;
  }
  [[nodiscard]] bool elastic() const { return members_.elastic(); }
  [[nodiscard]] uint32_t epoch() const { return members_.epoch(); }
  /// The place of the process that an agent means; none: it is of no process of this job there.
  [[nodiscard]] std::optional<size_t> place_of(size_t host, const agent::Subject& about) const;
  /// The number of the table server that an agent means; none: it means no such one there.
  [[nodiscard]] std::optional<size_t> server_of(size_t host, const agent::Subject& about) const {
    return servers_.find(host, about);
  }
  [[nodiscard]] const Servers& servers() const { return servers_; }
  /// The places of the epoch's members, by rank.
  [[nodiscard]] const std::vector<size_t>& ranks() const { return members_.ranks(); }
  [[nodiscard]] const agent::Subject& subject(size_t place) const {
    return members_.subject(place);
  }
  [[nodiscard]] size_t host_of(size_t place) const { return members_.seat(place).host; }
  /// To be called once all is over, or nothing is waited for any more.
  [[nodiscard]] Result result(Time now);

 private:
  void on(size_t place, const agent::Started& started, Time now);
  void on(size_t place, const agent::Refused& refused, Time now);
  void on(size_t place, const agent::Joined& joined, Time now);
  void on(size_t place, const agent::Ended& ended, Time now);
  void on(size_t place, const agent::Seen& seen, Time now);
  void on(size_t place, const agent::ReadyForEpoch& ready, Time now);
  void on(size_t place, const agent::Leaving& leaving, Time now);
  void on(size_t place, const agent::Notice& notice, Time now);
  void keep_plan(const agent::Notice& notice, Time now);
  void on(size_t place, const agent::Stack& stack, Time /*now*/) { stacks_.take(place, stack); }
  void on(size_t place, const agent::Traced& traced, Time now);
  /// What is about a host, or for others.
  void on(size_t /*place*/, const auto& /*other*/, Time /*now*/) {}

  void hear_server(size_t host, size_t server, const agent::Message& message, Time now);
  void refuse_server(size_t server, const std::string& why, Time now);
  void lose_server(size_t server, const std::string& how, Time now);
  void replace_servers(Time now);
  void tell_of_server(EventKind kind, size_t server, const std::string& text);
  void end_servers(Time now);

  void start_rank(size_t place);
  void expect_rank(size_t place);
  void go_on(Time now);
  void lose_rank(size_t place, Time now);
  void leave_host(size_t host, Time now);
  void dismiss_those_that_leave();
  void learn(size_t place, const diagnosis::RankEnd& said, Duration clock, Time now);
  /// Gives an operation that an agent has read of times of this clock, and places for ranks.
  void translate(obs::OpSnapshot& op, Duration clock, Time now) const;
  void saw(size_t place, Time now);
  void on_rank_end(const diagnosis::RankEnd& end, Time now);
  [[nodiscard]] bool ends_well(const diagnosis::RankEnd& end) const;
  [[nodiscard]] bool lost_host_last() const;
  [[nodiscard]] bool goes_on_without(const diagnosis::RankEnd& end, Time now);
  [[nodiscard]] bool is_leaving(const diagnosis::RankEnd& witness) const;
  void ask_missing(const diagnosis::RankEnd& end);
  void end_hang(const diagnosis::LongWait& wait, Time now);
  void show_wait(const diagnosis::LongWait& wait, Time now);
  void carry_out(const Epochs::Orders& orders, Time now);
  void tell_people(const Epochs::News& news);
  void carry_out(Stopping::Order order);
  [[nodiscard]] Time next_epoch_at() const { return evolves() ? members_.wake() : Time::never(); }

  void order(JobOrder what) { orders_.push_back(std::move(what)); }
  void tell(size_t place, agent::MessageBody body) {
    order(TellHost{host_of(place), {members_.subject(place), std::move(body)}});
  }
  void tell_all(agent::MessageBody body) {
    order(TellAll{{{.job = job_, .epoch = members_.epoch()}, std::move(body)}});
  }
  [[nodiscard]] Event event_of(EventKind kind, size_t place, const std::string& cause) const;
  void emit(EventKind kind, size_t place, const std::string& cause = "") {
    order(Announce{event_of(kind, place, cause)});
  }
  [[nodiscard]] bool runs(int place) const {
    return place >= 0 && static_cast<size_t>(place) < ends_.size() &&
           !ends_[static_cast<size_t>(place)].ended;
  }

  const Options options_;
  const wire::Digest job_;
  const Time started_;
  Epochs members_;
  Servers servers_;
  std::vector<diagnosis::RankEnd> ends_;  ///< By place.
  Stopping stopping_;
  StackRound stacks_;
  TraceRound trace_;
  diagnosis::HangWatch hang_watch_;
  diagnosis::HangWatch fatal_watch_;
  int awaited_ = -1;  ///< People were told that ranks wait for it; -1: for none.
  Time awaited_since_{};
  std::string long_wait_;  ///< What people were told of it.
  std::string plan_;
  Time plan_told_{};  ///< That.
  uint64_t lost_ = 0;
  bool begun_ = false;  ///< Ranks were started.
  int running_ = 0;
  std::string refused_;
  std::map<size_t, std::string> refused_hosts_;
  std::string no_way_on_;                       ///< Why an elastic job was stopped; "": it was not.
  std::set<size_t> seen_;                       ///< Have said what they do since time is over.
  std::vector<diagnosis::RankEnd> at_timeout_;  ///< As they were then.
  std::set<size_t> awaited_hosts_;              ///< Have not said all yet, since resume().
  uint32_t prepared_ = 0;                       ///< The newest epoch that one of them was told of.
  bool forgotten_ = false;  ///< An agent was started anew, and knows nothing of its ranks.
  bool retold_ = false;     ///< What is heard was said before, to another coordinator.
  std::vector<std::function<void(Time)>> later_;  ///< Once they all have.
  /// Are about to go: whether the agent was told to end, since nothing runs there any more.
  std::map<size_t, bool> leaving_hosts_;
  std::vector<JobOrder> orders_;
};

}  // namespace corro::launch
