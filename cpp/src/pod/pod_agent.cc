#include "pod/pod_agent.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include "agent/out_of_memory.h"
#include "agent/processes.h"
#include "agent/reminder.h"
#include "agent/silence.h"
#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"
#include "io/loop.h"
#include "io/pipe.h"
#include "io/random.h"
#include "io/signals.h"
#include "launch/job_signals.h"
#include "pod/child.h"
#include "pod/hostfile.h"
#include "pod/meeting.h"
#include "pod/session.h"
#include "pod/switchboard.h"
#include "wire/digest.h"

namespace corro::pod {
namespace {

constexpr int kLostHeadExit = 75;  ///< EX_TEMPFAIL: somebody should try again.
constexpr Duration kKillPatience = std::chrono::seconds(2);
constexpr Duration kEndPause = std::chrono::milliseconds(20);  ///< Between looks at what is left.
/// For what was asked to end after the head's loss; after SIGTERM the kubelet's patience counts.
constexpr Duration kLastGrace = std::chrono::seconds(5);
/// For mpirun to notice by itself that a host has vanished.
constexpr Duration kNoticePatience = std::chrono::seconds(5);

std::string working_directory() {
  std::array<char, 4096> path{};
  return getcwd(path.data(), path.size()) == nullptr ? "/" : path.data();
}

std::string random_run() {
  std::array<std::byte, 8> run{};
  io::fill_random(run);
  return wire::to_hex(run);
}

/// Loop-confined.
class PodAgent {
 public:
  PodAgent(const PodAgentOptions& options, HeadLink::Options link, io::Loop loop, io::Fd guard,
           io::Fd guarding, const launch::JobSignals& signals)
      : options_(options),
        link_options_(std::move(link)),
        loop_(std::move(loop)),
        link_(link_options_, loop_),
        meeting_(options.settings.identity.job_uid, loop_,
                 [this](const agent::Record& record) { link_.send(record); }),
        hosts_(options.settings.hostfile),
        guard_(std::move(guard)),
        guarding_(std::move(guarding)),
        mask_(signals.before),
        signals_(signalfd(-1, &signals.heard, SFD_CLOEXEC | SFD_NONBLOCK)) {}

  int run();

 private:
  enum class State : uint8_t { kWorking, kAsking, kEnding };

  [[nodiscard]] bool has_command() const {
    return !options_.command.empty() && !options_.settings.runs_ranks;
  }
  [[nodiscard]] bool is_launcher() const {
    return has_command() && options_.settings.is_launcher();
  }
  Status start_command();
  void step();
  void on_signals();
  void on_signal(int signal);
  void on_children();
  void on_command_end(int status);
  void watch_head(Time now);
  void wait_for_head(Time now);
  void stop_command(Time now);
  void ask();
  void look_at_hosts();
  void look_at_memory();
  void hear(const agent::Message& message);
  void attend(const agent::SessionId& session);
  void reset_sessions();
  /// Ends the pod with this status, once what runs has ended.
  void end(int status, const std::string& why, Time until);
  void tell_others(int signal);
  [[nodiscard]] bool is_anything_left() const;
  void say_last_word();

  const PodAgentOptions& options_;
  HeadLink::Options link_options_;
  io::Loop loop_;
  HeadLink link_;
  Meeting meeting_;
  HostfileWatch hosts_;
  io::Fd guard_, guarding_;  ///< Two ends of a pipe: sessions see the end of this process.
  sigset_t mask_;
  io::Fd signals_;
  agent::OutOfMemoryWatch out_of_memory_;
  std::string memory_;  ///< What that has found in this pod.
  State state_ = State::kWorking;
  pid_t command_ = 0;             ///< 0: it does not run.
  Time stop_at_ = Time::never();  ///< The command gets this signal then.
  int stop_with_ = SIGTERM;
  bool was_stopped_ = false;
  std::set<pid_t> sessions_;
  bool was_commanded_ = false;
  /// The last loss of the head or of a named host since the command was started.
  Time saw_loss_ = Time::never();
  Time started_ = monotonic_now();
  bool was_there_ = false;  ///< The head, in the step before.
  agent::Reminder unreached_{agent::kUnreachedFirst, agent::kReminderPause, monotonic_now()};
  bool asked_ = false;  ///< PROPOSE was said on this connection.
  int status_ = 0;      ///< Of the command, and then of the pod.
  std::string why_;     ///< The pod ends.
  Time until_ = Time::never();
};

int PodAgent::run() {
  (void)loop_.watch(signals_.get(), EPOLLIN, [this] { on_signals(); });
  if (has_command()) {
    if (const Status started = start_command(); !started.ok()) {
      fmt::print(stderr, "corro agent: {}\n", started.message());
      return diagnosis::exit_code(W_EXITCODE(started.code() == Code::kNotFound ? 127 : 126, 0));
    }
  }
  while (state_ != State::kEnding || (is_anything_left() && monotonic_now() < until_)) step();
  link_.tick(monotonic_now());
  say_last_word();
  (void)agent::kill_descendants(kKillPatience);
  return status_;
}

Status PodAgent::start_command() {
  (void)hosts_.look();
  saw_loss_ = Time::never();
  stop_at_ = Time::never();
  stop_with_ = SIGTERM;
  was_stopped_ = false;
  if (is_launcher()) setenv(kRunVariable, random_run().c_str(), 1);
  CORRO_ASSIGN(command_, start_child(options_.command, mask_));
  state_ = State::kWorking;
  return {};
}

void PodAgent::step() {
  const Time now = monotonic_now();
  link_.tick(now);
  watch_head(now);
  stop_command(now);
  Time wake = std::min(link_.next_timer(), stop_at_);
  if (!link_.is_there()) wake = std::min(wake, unreached_.due());
  if (state_ == State::kEnding) wake = std::min(wake, now + kEndPause);
  loop_.turn(wake);
  while (const auto message = link_.take()) hear(*message);
}

/// Waits for a head that was lost only so long, if anything depends on it.
void PodAgent::watch_head(Time now) {
  const bool is_there = link_.is_there();
  if (!is_there && link_.last_there()) saw_loss_ = now;
  if (was_there_ && !is_there) {
    asked_ = false;
    fmt::print(stderr, "corro agent: the head at {} was lost: {}\n", options_.settings.head,
               link_.why().message());
  }
  was_there_ = is_there;
  wait_for_head(now);
  if (state_ == State::kAsking && is_there && !asked_) ask();
  const bool depends = was_commanded_ || has_command();
  const bool is_over =
      !is_there && depends && link_.last_there() && now >= *link_.last_there() + agent::kSilence;
  if (!is_over || state_ == State::kEnding) return;
  const std::string why = fmt::format("the head at {} was lost and did not come back for 10 s: {}",
                                      options_.settings.head, link_.why().message());
  if (is_launcher()) {
    if (command_ == 0 || was_stopped_) return;
    fmt::print(stderr, "corro agent: {}; the command is stopped\n", why);
    stop_at_ = now;
    return;
  }
  end(kLostHeadExit, why, now + kLastGrace);
  tell_others(SIGTERM);
}

/// Says why it waits. A worker that waits for too long ends, so that the operator tells people; a
/// launcher does not, since its Job would count that.
void PodAgent::wait_for_head(Time now) {
  if (link_.is_there()) return unreached_.reset(now);
  if (state_ == State::kEnding) return;
  const std::string& head = options_.settings.head;
  const std::string& why = link_.why().message();
  if (unreached_.take(now))
    fmt::print(stderr, "corro agent: cannot reach the head at {}: {}\n", head, why);
  const Duration patience = options_.settings.head_patience;
  if (is_launcher() || now < link_.last_there().value_or(started_) + patience) return;
  end(kLostHeadExit,
      fmt::format("the head at {} {} for {}: {}", head,
                  link_.last_there() ? "was lost and did not come back" : "was never reached",
                  diagnosis::format_span(patience), why),
      now + kLastGrace);
  tell_others(SIGTERM);
}

void PodAgent::stop_command(Time now) {
  if (now < stop_at_) return;
  was_stopped_ = command_ != 0;
  stop_at_ = command_ == 0 || stop_with_ == SIGKILL ? Time::never() : now + kLastGrace;
  if (command_ != 0) kill(command_, std::exchange(stop_with_, SIGKILL));
}

void PodAgent::on_signals() {
  signalfd_siginfo signal{};
  while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo == SIGCHLD) {
      on_children();
    } else {
      on_signal(static_cast<int>(signal.ssi_signo));
    }
  }
}

/// The command gets it, as it would without an agent; without one, what was started here.
void PodAgent::on_signal(int signal) {
  const bool ends = io::asks_to_stop(signal) && (command_ == 0 || signal == SIGTERM);
  if (ends && state_ != State::kEnding) {
    link_.send(agent::Leave{});
    end(diagnosis::kSignalExit + signal, "", Time::never());
  }
  tell_others(signal);
}

void PodAgent::tell_others(int signal) {
  if (command_ != 0) kill(command_, signal);
  if (command_ != 0 && !io::asks_to_stop(signal)) return;
  for (const pid_t pid : agent::descendants_of(getpid()))
    if (pid != command_ && !sessions_.contains(pid)) kill(pid, signal);
}

bool PodAgent::is_anything_left() const {
  if (command_ != 0) return true;
  const auto living = agent::descendants_of(getpid());
  return !std::ranges::all_of(living, [this](pid_t pid) { return sessions_.contains(pid); });
}

void PodAgent::on_children() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    sessions_.erase(pid);
    if (pid == command_) on_command_end(shell_status(status));
  }
}

/// A worker's or a good end is the container's; whether a launcher's is, the head knows.
void PodAgent::on_command_end(int status) {
  command_ = 0;
  // It was asked to end: by the kubelet, or since the pod's status is known.
  if (state_ == State::kEnding && until_ != Time::never()) return;
  status_ = status;
  if (state_ == State::kEnding) return;
  const bool is_bad = status != 0 || was_stopped_;
  const bool asks = is_bad && is_launcher() && link_.last_there();
  if (!asks) return end(status, "", monotonic_now());
  state_ = State::kAsking;
  asked_ = false;
}

void PodAgent::ask() {
  asked_ = true;
  look_at_hosts();
  const bool counts = saw_loss_ != Time::never() && monotonic_now() < saw_loss_ + kLossCounts;
  link_.send(agent::Propose{.status = status_, .saw_loss = counts});
}

/// The head is told again and again: whoever asks for such a host later would wait, too.
void PodAgent::look_at_hosts() {
  if (hosts_.look()) saw_loss_ = monotonic_now();
  for (const std::string& host : hosts_.gone()) link_.send(agent::HostLost{.host = host});
}

/// A rank's end is no news to the head before this is: it asks all agents first.
void PodAgent::look_at_memory() {
  if (!memory_.empty()) return;
  memory_ = out_of_memory_.explain_cgroup(getpid()).value_or("");
  if (!memory_.empty()) link_.send(agent::Trouble{.text = memory_});
}

void PodAgent::end(int status, const std::string& why, Time until) {
  state_ = State::kEnding;
  status_ = status;
  why_ = why;
  until_ = until;
}

// -- what the head says ---------------------------------------------------------------------------

void PodAgent::hear(const agent::Message& message) {
  const agent::MessageBody& body = message.body;
  if (std::holds_alternative<agent::Look>(body)) {
    if (options_.settings.runs_ranks) look_at_memory();
    link_.send(agent::Alive{});
    return look_at_hosts();
  }
  if (const auto* attended = std::get_if<agent::Attend>(&body)) return attend(attended->session);
  if (const auto* meeting = std::get_if<agent::Meeting>(&body))
    return meeting_.open(meeting->secret);
  if (const auto* record = std::get_if<agent::Record>(&body)) return meeting_.supply(*record);
  if (std::holds_alternative<agent::Reset>(body)) return reset_sessions();
  if (const auto* dismissed = std::get_if<agent::Dismiss>(&body)) {
    tell_others(SIGTERM);
    return end(dismissed->status, dismissed->why, monotonic_now() + kLastGrace);
  }
  if (const auto* refused = std::get_if<agent::Refused>(&body)) {
    // It was taken for lost: it dials again.
    if (refused->code == Code::kUnavailable) return;
    // What was asked to end has its grace, and was told once.
    if (state_ == State::kEnding) return;
    // This pod was replaced, or is of another release.
    tell_others(SIGTERM);
    return end(kLostHeadExit, "the head refuses this pod: " + refused->why,
               monotonic_now() + kLastGrace);
  }
  if (const auto* lost = std::get_if<agent::HostLost>(&body)) {
    fmt::print(stderr, "corro agent: nothing is heard of {} any more\n", lost->host);
    if (!survives_losses(options_.command)) stop_at_ = monotonic_now() + kNoticePatience;
    return;
  }
  if (!std::holds_alternative<agent::Proceed>(body) || state_ != State::kAsking) return;
  reset_sessions();  // The command may have left something, too.
  fmt::print(stderr, "corro agent: a host was lost; the command starts again\n");
  if (const Status started = start_command(); !started.ok())
    end(status_, started.message(), monotonic_now());
}

void PodAgent::attend(const agent::SessionId& session) {
  if (state_ == State::kEnding) return;
  was_commanded_ = true;
  HeadLink::Options link = link_options_;
  link.first = agent::Session{.session = session};
  const auto pid = start_session(link, guard_, mask_, options_.version, [this] {
    link_.forget();
    meeting_.forget();
    guarding_.reset();
    signals_.reset();
  });
  if (pid.ok()) {
    sessions_.insert(*pid);
  } else {
    fmt::print(stderr, "corro agent: {}\n", pid.status().message());
  }
}

/// What mpirun's daemons have left, whose mpirun has gone.
void PodAgent::reset_sessions() {
  const std::set<pid_t> kept = command_ == 0 ? std::set<pid_t>{} : std::set<pid_t>{command_};
  for (const pid_t pid : agent::descendants_of(getpid(), kept))
    if (!sessions_.contains(pid)) kill(pid, SIGKILL);
}

// -- the end --------------------------------------------------------------------------------------

/// On stderr, and where the kubelet finds it: the operator tells a lack of memory by it.
void PodAgent::say_last_word() {
  look_at_memory();
  std::string word = why_.empty() ? "" : fmt::format("corro: {}", why_);
  if (!word.empty()) fmt::print(stderr, "{}\n", word);
  // Of the machine the watch guesses alone, which may mean another pod.
  if (memory_.empty() && word.empty()) memory_ = out_of_memory_.explain(getpid()).value_or("");
  if (status_ != 0 && !memory_.empty()) word = "corro: " + memory_;
  if (!word.empty()) write_last_word(options_.settings, word);
}

}  // namespace

bool survives_losses(const std::vector<std::string>& command) {
  constexpr std::array<std::string_view, 3> kElastic = {"--host-discovery-script", "--min-np",
                                                        "--min-num-proc"};
  return std::ranges::any_of(command, [&kElastic](const std::string& word) {
    return std::ranges::any_of(kElastic, [&word](std::string_view option) {
      return word.find(option) != std::string::npos;
    });
  });
}

int run_pod_agent(const PodAgentOptions& options) {
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "corro agent: {}\n", status.message());
    return diagnosis::kUsageExit;
  };
  const launch::JobSignals signals = launch::block_signals();
  agent::adopt_orphans();
  const std::string folder = options.program.substr(0, options.program.rfind('/'));
  const Variables environment = read_variables();
  setenv("PATH",
         (folder + ":" + value_of(environment, "PATH", "/usr/local/bin:/usr/bin:/bin")).c_str(), 1);
  agent::Enlist enlist{.corro = options.version, .program = options.program};
  if (options.settings.runs_ranks && !options.command.empty()) {
    enlist.command = options.command;
    enlist.command[0] = find_on_path(options.command[0]);
    enlist.directory = working_directory();
  }
  auto link = HeadLink::options_of(options.settings, std::move(enlist));
  if (!link.ok()) return fail(link.status());
  auto loop = io::Loop::create();
  if (!loop.ok()) return fail(loop.status());
  auto pipe = io::make_pipe();
  if (!pipe.ok()) return fail(pipe.status());
  PodAgent agent(options, std::move(*link), std::move(*loop), std::move(pipe->read),
                 std::move(pipe->write), signals);
  return agent.run();
}

}  // namespace corro::pod
