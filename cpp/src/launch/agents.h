// Agents: those of all hosts of a job, as the launcher sees them.
//
//   waiting    in the queue: so many remote shells start at a time
//   starting   its process, or the remote shell for it, was started; it has not said HELLO
//   meeting    in a job of several hosts: it surveys its host, and probes the ways to others
//   working    it runs ranks
//   fenced     it has said FENCED
//   gone       its process, the connection or the host is lost; it says and hears nothing more
//
// The launcher starts the agents of the first hosts, as many as the fan-out; those start the next
// ones (GROW), and so on: the agent of remote host r is started by that of r / fan-out - 1. An
// agent that cannot start another one says so, since keys may be on the first host only, and the
// launcher starts that one itself. What comes from below another agent is unpacked here, what goes
// there is packed here: nobody else knows of the tree.
//
// Agents of a standalone coordinator are not started: they dial it, and are given to attach().
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent_process.h"
#include "io/loop.h"
#include "launch/worker_env.h"

namespace corro::launch {

/// What the launcher knows of one host's agent.
struct AgentLink {
  size_t host = 0;  ///< Its number in the job.
  std::string name;
  uint32_t generation = 0;  ///< Which pod it is of those that have had the name.
  bool own = false;         ///< The launcher's host.
  bool greeted = false;
  bool leaves = false;  ///< It is about to go, once its ranks have left.
  bool fenced = false;
  bool gone = false;
  Time heard{};             ///< When it said something last.
  Time suspected{};         ///< When ranks said last that they have lost one of this host.
  uint64_t uncredited = 0;  ///< Bytes of output that it has had no credit for yet.
  std::optional<agent::Surveyed> survey = {};
  std::optional<std::vector<agent::Route>> routes = {};
};

/// After which a host is lost. Pure.
[[nodiscard]] Duration silence_of(const AgentLink& link, Time now);

/// Loop-confined.
class Agents {
 public:
  struct Options {
    wire::Digest job{};
    std::vector<std::string> shell;  ///< Of agent::remote_shell().
    std::string corro;               ///< The program's path on other hosts.
    std::string version;
    size_t fan_out = 32;
    sigset_t mask{};       ///< For ranks and shells.
    bool dialled = false;  ///< Agents dial; none is started.
  };
  struct Listener {
    std::function<void(AgentLink&, const agent::Message&)> hear;
    /// It is gone, before it was fenced.
    std::function<void(AgentLink&, const std::string& why)> lose;
    /// An agent could not start this one; the launcher does.
    std::function<void(const AgentLink&, const AgentLink& by, const std::string& why)> take_over;
  };

  /// Forks the own host's agent, if there is one: a thread must not be there yet. The rest starts
  /// in listen().
  static Result<Agents> create(const std::vector<JobHost>& hosts, Options options);

  /// Starts the agents of other hosts. `loop` outlives this, which moves no more.
  Status listen(io::Loop& loop, Listener listener);
  /// Starts the agent of another host, which gets the next number. `here`: it is this machine, which
  /// needs no remote shell.
  void add(const JobHost& host, bool here);
  /// The agent of this host has dialled...
  Status attach(size_t host, agent::MessagePipe pipe);
  /// ...and has said HELLO before.
  void greet(size_t host, const agent::Hello& hello) { hear(host, {all(), hello}); }
  /// Ends the agent of a host that is of no use, or hangs up on one that has dialled: it is gone.
  void dismiss(size_t host, const std::string& why);
  /// Writes what can be written; whether that is all there was.
  bool flush();

  [[nodiscard]] AgentLink& operator[](size_t host) { return links_[host]; }
  [[nodiscard]] std::vector<AgentLink>& links() { return links_; }
  [[nodiscard]] const std::vector<AgentLink>& links() const { return links_; }
  [[nodiscard]] size_t size() const { return links_.size(); }
  /// Some are on other hosts than this one.
  [[nodiscard]] bool any_remote() const;
  /// Nothing more is to be heard.
  [[nodiscard]] bool over() const;

  /// An epoch has begun: what is said to all from now on is of it.
  void enter(uint32_t epoch) { epoch_ = epoch; }
  /// To one agent. Dropped if it is gone.
  void send(size_t host, const agent::Message& message);
  void tell(size_t host, agent::MessageBody body) { send(host, {all(), std::move(body)}); }
  void send_all(const agent::MessageBody& body);
  void send_all(const agent::Message& message);
  /// To all but one.
  void pass_on(size_t from, const agent::Message& message);
  /// As much more output may come as was taken.
  void give_credit();
  /// Hosts of which nothing was heard for agent::kSilence are lost: one that was cut off sends no
  /// end of anything. For one that is suspected, three looks without an answer are enough.
  void look_for_silence(Time now);
  /// Ranks of other hosts have lost one of this host.
  void suspect(size_t host, Time now) { links_[host].suspected = now; }
  /// For so long, until `now`, the launcher was stopped and heard nobody: that is no silence.
  void excuse_silence(Duration stopped, Time now);
  /// Nobody waits any more for those that have not said HELLO.
  void give_up_silent();

  /// Leaves no process behind. Returns how this host's agent has ended, as from waitpid, if that
  /// was before its time and it was the only one: then nobody can say what became of the ranks.
  std::optional<int> end();

 private:
  struct Place {
    std::unique_ptr<agent::AgentProcess> process = nullptr;  ///< If the launcher has started it.
    std::unique_ptr<agent::MessagePipe> dialled = nullptr;   ///< If it has dialled.
    std::optional<size_t> parent = {};                       ///< Whose branch it is.
    bool here = false;  ///< Of this machine, though added later.
  };

  Agents(std::vector<AgentLink> links, std::vector<Place> places, Options options)
      : links_(std::move(links)), places_(std::move(places)), options_(std::move(options)) {}

  /// About all processes of a host, in this epoch.
  [[nodiscard]] agent::Subject all() const { return {.job = options_.job, .epoch = epoch_}; }
  void start_waiting();
  [[nodiscard]] agent::MessagePipe* pipe_of(size_t host) const;
  void unwatch(size_t host);
  Status watch(size_t host);
  void read(size_t host);
  void hear(size_t host, const agent::Message& message);
  void hear_branch_end(size_t host, const agent::Cut& cut);
  void grow(size_t host);
  void lose(size_t host, const std::string& why);
  [[nodiscard]] bool is_branch(size_t parent, int32_t host) const;

  std::vector<AgentLink> links_;  ///< By host, and so are these.
  std::vector<Place> places_;
  Options options_;
  uint32_t epoch_ = 0;
  Listener listener_;
  io::Loop* loop_ = nullptr;  ///< From listen() on.
  std::deque<size_t> waiting_;
};

/// By host: whose branch it is; none for those that the launcher starts, the own host among them.
/// Pure.
[[nodiscard]] std::vector<std::optional<size_t>> plan_tree(const std::vector<JobHost>& hosts,
                                                           size_t fan_out);

}  // namespace corro::launch
