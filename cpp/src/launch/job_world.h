// JobWorld: a whole job in one process and in virtual time: the course of its launcher, that of the
// agent on each host, and ranks that train together.
//
//   Links between launcher and agents bring messages in order, late, and sometimes twice. They can
//   be cut, also in one direction alone: what is said then arrives once they are mended. Ranks of
//   two hosts can be cut off from each other. Ranks are killed, stopped and continued, asked to end,
//   or end by themselves; so are hosts.
//
//   A rank trains as python/corro/elastic does: in an epoch it meets the others, gets the state of
//   whoever has applied most steps, and applies step after step, each once all have come to it. It
//   takes one sample for a step, by its number, from where the step before has ended. It leaves when
//   it has lost another one, and when an epoch comes: at once, or at its next step.
//
//   A standalone launcher is a coordinator that agents have dialled. It crashes between any two of
//   its messages, and another one leads a moment later. A host whose link was cut dials, too: to the
//   launcher that has taken it for lost it is a stranger.
//
// While it goes on: an epoch has one map, ranks keep their order, epochs never go back, a step that
// all members of its epoch have applied is never lost, and members of a step take samples that follow
// each other. What holds in the end is in check_end().
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agent/agent_course.h"
#include "launch/job_course.h"

namespace corro::launch {

/// Loop-confined.
class JobWorld {
 public:
  struct Options {
    std::vector<int> slots = {2};  ///< By host; the first one is the launcher's.
    int ranks = 2;
    std::optional<int> least = 1;  ///< None: the job is not elastic.
    int most = 0;                  ///< 0: it does not grow.
    int steps = 20;                ///< Of each rank.
    Duration step = std::chrono::milliseconds(200);
    Duration delay = std::chrono::milliseconds(3);  ///< The longest of a message.
    int twice = 0;  ///< Of a hundred messages so many come twice, if that says nothing new.
    bool standalone = false;
  };
  struct Begun {
    uint32_t epoch = 0;
    int32_t number = 0;
    bool last = false;
  };
  struct Step {
    uint32_t epoch = 0;
    uint64_t cursor = 0;  ///< Samples that were taken once it was applied.
    friend bool operator==(const Step&, const Step&) = default;
  };
  struct Process {
    agent::Subject about;  ///< As it was started.
    size_t host = 0;
    size_t rank = 0;    ///< Its number there.
    uint64_t term = 0;  ///< In which it was started.
    enum class State : uint8_t { kStarting, kWaiting, kMeeting, kComputing, kReducing, kOver };
    State state = State::kStarting;
    bool stopped = false;                          ///< By a signal.
    bool asked = false;                            ///< To end.
    bool joins = false;                            ///< It has been in no epoch yet.
    uint32_t epoch = 0;                            ///< The last one that it was in.
    int32_t number = 0;                            ///< Its rank there.
    bool last = false;                             ///< That is the last one.
    int status = -1;                               ///< As from waitpid, once it is over.
    Time hears_at{};                               ///< What it is told comes in order.
    std::optional<uint32_t> comes = std::nullopt;  ///< The newest epoch that is prepared.
    uint32_t broken_off = 0;  ///< The newest of those for which it leaves in the middle of a step.
    std::optional<Begun> begun = std::nullopt;  ///< It has not entered that yet.
    std::vector<Step> applied = {};
    std::vector<std::function<void()>> unheard = {};  ///< While it is stopped.
  };

  JobWorld(const Options& options, uint32_t seed);

  /// Begins the job, and goes on until it is over, or nothing more happens, or it is `until`.
  void begin();
  void run(Time until);
  /// Has something done then.
  void at(Time when, std::function<void()> what);
  void after(Duration delay, std::function<void()> what) { at(now_ + delay, std::move(what)); }

  // Faults. All do nothing to what is over.
  void kill(size_t process, int status = SIGKILL) { end(process, status); }
  void stop(size_t process);
  void go_on(size_t process);
  void ask_to_end(size_t process);
  /// The agent of a host that dials.
  void ask_host_to_end(size_t host);
  void crash(size_t host);
  /// Between launcher and host; `up`: what the agent says, `down`: what the launcher says.
  void cut(size_t host, bool up, bool down);
  /// Between the ranks of two hosts.
  void part(size_t one, size_t other);
  /// Mends all links, and continues all processes.
  void mend();
  void offer(size_t host, int slots);
  void signal(int number);
  /// Of a standalone launcher, before so many more messages, or records, have left it; once.
  void crash_launcher(int messages);
  /// Has something done once so many messages were heard, by anybody, and before the next one is.
  void after_messages(int messages, std::function<void()> what);

  /// That it came to an end, and to a good one, or to one with a reason.
  void check_end();

  [[nodiscard]] Time now() const { return now_; }
  [[nodiscard]] size_t hosts() const { return hosts_.size(); }
  [[nodiscard]] const std::vector<Process>& processes() const { return processes_; }
  [[nodiscard]] bool is_up(size_t host) const { return hosts_[host].up; }
  [[nodiscard]] bool over() const;
  [[nodiscard]] size_t epochs() const { return maps_.size(); }
  [[nodiscard]] uint64_t term() const { return term_; }
  /// What was noted for people.
  [[nodiscard]] const std::string& notes() const { return notes_; }
  [[nodiscard]] int pick(int below) {
    return static_cast<int>(random_() % static_cast<uint32_t>(below));
  }

 private:
  using State = Process::State;
  /// One direction of a link.
  struct Direction {
    std::deque<agent::Message> queue;
    bool cut = false;
    bool pumps = false;
  };
  struct Host {
    agent::AgentCourse agent;
    bool up = true;     ///< Its agent runs.
    bool met = true;    ///< It has a connection to the launcher.
    bool gone = false;  ///< For the launcher.
    bool fenced = false;
    Time heard{}, suspected{};
    Time alone = Time::never();  ///< Since then it has no launcher.
    Direction up_way = {}, down_way = {};
    std::vector<size_t> processes = {};  ///< By number.
  };
  struct Due {
    Time when;
    uint64_t order = 0;
    std::function<void()> what;
    bool operator<(const Due& other) const {
      return std::tie(other.when, other.order) < std::tie(when, order);
    }
  };

  static JobFacts facts_of(const Options& options);
  static JobCourse::Options course_options(const Options& options);
  [[nodiscard]] std::unique_ptr<JobCourse> new_course() const;
  [[nodiscard]] bool is_far(size_t host) const { return host > 0 || options_.standalone; }
  Duration soon() { return std::chrono::microseconds(1 + pick(delay_us_)); }

  // The launcher.
  void lead();
  void end_lead();
  void dial(size_t host);
  void part_with(size_t host);
  /// Nothing while there is none.
  void have(const std::function<void(JobCourse&)>& act);
  void look();
  void tick();
  void carry_out_orders();
  /// Something leaves the launcher; false: it does not live to see it.
  bool leaves_launcher();
  void carry_out(const TellHost& order) { send(order.host, order.message); }
  void carry_out(const TellAll& order);
  void carry_out(const StartRank& order);
  void carry_out(const SuspectHost& order) { hosts_[order.host].suspected = now_; }
  void carry_out(const Note& order) { notes_ += order.line; }
  void carry_out(const Remember& order);
  void carry_out(const auto& /*order*/) {}
  void lose(size_t host, const std::string& why);

  // Links.
  void count_message();
  void send(size_t host, const agent::Message& message);
  void send_now(size_t host, const agent::Message& message);
  void say(size_t host, const agent::Message& message);
  void pump(size_t host, bool up);
  void kill_stranger(size_t host, const agent::Message& message);
  void hear_launcher(size_t host, const agent::Message& message);
  void hear_agent(size_t host, const agent::Message& message);

  // Agents.
  void carry_out_agent(size_t host);
  void carry_out(size_t host, const agent::Say& order) { say(host, order.message); }
  void carry_out(size_t host, const agent::Report& order);
  void carry_out(size_t host, const agent::SendSignal& order);
  void carry_out(size_t host, const agent::KillRank& order);
  void carry_out(size_t host, const agent::KillRest& order);
  void carry_out(size_t host, const agent::PrepareWorker& order);
  void carry_out(size_t host, const agent::CommitWorker& order);
  void carry_out(size_t /*host*/, const auto& /*order*/) {}
  void watch_agent(size_t host);
  void start(size_t host, const agent::Message& message);

  // Ranks.
  void tell(size_t process, std::function<void()> what);
  void begin_work(size_t process);
  void prepare(size_t process, uint32_t epoch, bool at_once);
  void commit(size_t process, uint32_t epoch, int32_t number, bool last);
  void enter(size_t process);
  [[nodiscard]] static bool leaves(const Process& one) { return one.comes.value_or(0) > one.epoch; }
  void leave(size_t process, uint32_t for_epoch, int32_t lost = -1);
  void lose_peer(size_t process, uint32_t epoch, int32_t number);
  void meet(size_t process);
  void compute(size_t process);
  void reduce(size_t process);
  void try_step(uint32_t epoch);
  void begin_epoch(uint32_t epoch, const std::vector<size_t>& members);
  void apply(uint32_t epoch, const std::vector<size_t>& members);
  [[nodiscard]] Step take_samples(uint32_t epoch, const std::vector<size_t>& members) const;
  void check_histories() const;
  void end(size_t process, int status);
  void signal_rank(size_t process, int number);
  [[nodiscard]] std::vector<size_t> peers_of(uint32_t epoch) const;
  [[nodiscard]] bool is_parted(size_t one, size_t other) const;
  [[nodiscard]] bool runs(size_t process) const {
    return processes_[process].state != State::kOver;
  }

  // What holds.
  void check_place(const agent::Subject& joiner) const;
  void note_map(uint32_t epoch, const agent::Members& members);

  const Options options_;
  std::mt19937 random_;
  const int delay_us_;
  Time now_{};
  std::priority_queue<Due> due_;
  uint64_t order_ = 0;
  std::unique_ptr<JobCourse> course_;  ///< None while nobody leads.
  uint64_t term_ = 1;
  std::optional<JobRecord> record_;
  std::optional<int> crash_in_;  ///< Messages.
  int messages_ = 0;             ///< That were heard.
  std::map<int, std::function<void()>> after_messages_;
  std::vector<Host> hosts_;
  std::vector<Process> processes_;
  std::set<std::pair<size_t, size_t>> parted_;  ///< Hosts, the smaller one first.
  Time tick_at_ = Time::never();
  bool fenced_ = false;  ///< FENCE was said.
  std::string notes_;
  std::map<uint32_t, std::vector<agent::Member>> maps_;     ///< By epoch.
  std::set<uint32_t> begun_;                                ///< Epochs whose members have met.
  std::set<std::pair<uint32_t, size_t>> reduced_;           ///< Steps of epochs.
  std::map<std::pair<uint32_t, size_t>, size_t> appliers_;  ///< By epoch and step: so many.
  size_t committed_ = 0;  ///< Steps that every member of their epoch has applied.
};

}  // namespace corro::launch
