#include "launch/launcher.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <set>

#include "diagnosis/conclusion.h"
#include "diagnosis/error_file.h"
#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"
#include "diagnosis/hang.h"
#include "io/loop.h"
#include "io/signals.h"
#include "launch/agents.h"
#include "launch/arrivals.h"
#include "launch/caller.h"
#include "launch/control_socket.h"
#include "launch/discovery.h"
#include "launch/epochs.h"
#include "launch/events.h"
#include "launch/hint.h"
#include "launch/job_signals.h"
#include "launch/log_files.h"
#include "launch/meeting.h"
#include "launch/output_files.h"
#include "launch/policy_command.h"
#include "launch/rank_start.h"
#include "launch/stack_round.h"
#include "launch/stopping.h"
#include "launch/user_input.h"
#include "screen/screen.h"
#include "screen/screen_writer.h"
#include "wire/secret.h"

namespace corro::launch {
namespace {

using diagnosis::RankEnd;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kOrphanGrace = milliseconds(500);  ///< For what a finished rank left running.
constexpr Duration kLookPause = seconds(1);           ///< Between looks at what ranks do.
constexpr Duration kHelloPatience = seconds(20);      ///< For a host's agent to answer.
constexpr Duration kLongSync = seconds(1);            ///< So long people wait without a word.
constexpr Duration kLastWord = milliseconds(500);     ///< For the screen, of an impatient user.

/// Of the block and of what goes on.
size_t width_of(const std::optional<winsize>& terminal) {
  constexpr size_t kWidth = 160;
  constexpr size_t kLeast = 40;
  return terminal && terminal->ws_col > kLeast ? terminal->ws_col : kWidth;
}

/// How a rank's process has ended, for its event; "" if all was well.
std::string describe_status(const RankEnd& end) {
  if (diagnosis::ended_well(end)) return "";
  if (WIFSIGNALED(end.status)) return "killed by " + io::signal_name(WTERMSIG(end.status));
  return fmt::format("status {}", diagnosis::exit_code(end.status));
}

/// As what a rank has done.
std::string describe_end(const RankEnd& end) {
  if (diagnosis::ended_well(end)) return "has done its work";
  return (WIFSIGNALED(end.status) ? "was " : "ended with ") + describe_status(end);
}

EventKind kind_of(Epochs::News::Kind kind) {
  using Kind = Epochs::News::Kind;
  if (kind == Kind::kPolicy) return EventKind::kPolicy;
  return kind == Kind::kBegun ? EventKind::kEpoch : EventKind::kPrepare;
}

/// Where a job's output goes.
struct Output {
  LogFiles logs;
  std::optional<OutputFiles> files;
  std::unique_ptr<screen::ScreenWriter> writer;
};

/// Loop-confined.
class Launcher {
 public:
  Launcher(const LaunchPlan& plan, Agents agents, Output output, io::Loop loop,
           std::optional<Caller> caller, std::shared_ptr<PolicyCommand> policy, std::string version)
      : plan_(plan),
        version_(std::move(version)),
        agents_(std::move(agents)),
        logs_(std::move(output.logs)),
        output_files_(std::move(output.files)),
        loop_(std::move(loop)),
        writer_(std::move(output.writer)),
        caller_(std::move(caller)),
        screen_(screen_options(plan),
                [this](io::Output stream, std::string bytes) {
                  writer_->write(stream == io::Output::kOut ? STDOUT_FILENO : STDERR_FILENO,
                                 std::move(bytes));
                }),
        job_(wire::digest_of(plan.job.job_id)),
        policy_(std::move(policy)),
        members_(plan.job, new_members(job_, plan.job.places()), membership_options()),
        ends_(members_.places()) {
    for (size_t place = 0; place < ends_.size(); ++place) {
      ends_[place].rank = static_cast<int>(place);
      ends_[place].ended = true;
    }
  }

  [[nodiscard]] int run(const sigset_t& heard) {
    Status started = listen(heard);
    if (started.ok()) started = meet();
    if (started.ok()) started = hand_over_call();
    if (started.ok()) started = start();
    if (!started.ok()) {
      on_signals();  // One that has ended the start may not have been heard yet.
      deadline_ = Time::never();
      refuse(started.message());
    }
    while (running_ > 0 && refused_.empty()) step();
    agents_.give_up_silent();
    const bool patient = !stopping_.hard() && refused_.empty();
    agents_.send_all(agent::Fence{.grace = patient ? kOrphanGrace : Duration::zero()});
    while (!agents_.over() && !stopping_.impatient()) step();
    const std::optional<int> killed = agents_.end();
    const int exit = !refused_.empty() ? say_refused() : killed ? say_killed(*killed) : finish();
    flush_screen();
    return exit;
  }

 private:
  /// None: the job is not elastic.
  [[nodiscard]] std::optional<coord::Options> membership_options() const {
    const RunOptions& run = plan_.options;
    if (!run.elastic()) return std::nullopt;
    coord::Options options{.least = run.least.value_or(plan_.job.ranks), .most = plan_.job.most};
    options.patience = run.elastic_timeout.value_or(kElasticTimeout);
    options.resets = run.reset_limit;
    coord::PolicyOptions waits;
    waits.replacement = run.replace_wait.value_or(Duration::zero());
    if (run.back_off) std::tie(waits.back_off, waits.most_back_off) = *run.back_off;
    options.policy = coord::standard_policy(waits);
    if (policy_ == nullptr) return options;
    options.policy = asked_policy(policy_, options.policy,
                                  [this](size_t host) { return plan_.job.hosts[host].name; });
    return options;
  }
  static screen::Screen::Options screen_options(const LaunchPlan& plan) {
    const bool err = isatty(STDERR_FILENO) != 0;
    const bool out = isatty(STDOUT_FILENO) != 0;
    return {.show = plan.options.show,
            .ranks = plan.job.places(),
            .out_is_terminal = out,
            .err_is_terminal = err,
            .colour = out && err && value_of(plan.base, "NO_COLOR").empty(),
            .time = plan.options.show.timestamps ? screen::local_time : nullptr};
  }

  // Starting.
  Status listen(const sigset_t& heard);
  Status meet();
  void show_sync();
  Status hand_over_call();
  Status start();
  void start_rank(size_t place);

  // The loop.
  void step();
  [[nodiscard]] Time next_timer() const;
  void on_timers(Time now);
  void carry_out(Stopping::Order order);
  void look(Time now);
  void look_for_hosts(Time now);
  void take_hosts(const std::vector<HostSlots>& listed, Time now);
  [[nodiscard]] bool is_same_host(const JobHost& host, const HostSlots& listed) const;
  void end_hang(const diagnosis::LongWait& wait, Time now);
  void show_wait(const diagnosis::LongWait& wait, Time now);
  void on_input();
  void on_caller();
  void on_control();
  void on_signals();
  void on_signal(int signal);

  // What the agent says.
  void hear(AgentLink& link, const agent::Message& message);
  void hear_host(AgentLink& link, const agent::Message& message);
  void lose(const AgentLink& link, const std::string& why);
  void on(size_t rank, const agent::Started& started);
  void on(size_t rank, const agent::Output& output);
  void on(size_t rank, const agent::OutputEnd& end);
  void note_incomplete(const Status& status);
  void on(size_t rank, const agent::Ended& ended);
  void on(size_t rank, const agent::Seen& seen);
  void on(size_t rank, const agent::Joined& joined);
  void on(size_t rank, const agent::Stack& stack) { stacks_.take(rank, stack); }
  void on(size_t /*rank*/, const agent::Credit& credit) { input_.take(credit.bytes); }
  /// What only commanders say, and what hear() has taken.
  void on(size_t /*rank*/, const auto& /*other*/) {}
  void on_hello(AgentLink& link, const agent::Hello& hello);
  void on_fenced(AgentLink& link, const agent::Fenced& fenced);
  void learn(size_t rank, const RankEnd& said, Duration clock);
  void saw(size_t rank);
  void tell(size_t rank, agent::MessageBody body) {
    agents_.send(link_of(rank).host, {members_.subject(rank), std::move(body)});
  }
  [[nodiscard]] AgentLink& link_of(size_t rank) { return agents_[members_.seat(rank).host]; }
  void on_refused(const AgentLink& link, size_t place, const agent::Refused& refused);
  void refuse_host(const AgentLink& link, const std::string& why);
  /// A host that the job does not have yet.
  [[nodiscard]] bool comes(const AgentLink& link) const {
    return arrivals_ && arrivals_->expects(link.host);
  }
  void end_unstarted(size_t place, const std::string& why);
  void refuse(const std::string& why) {
    if (refused_.empty()) refused_ = why;
  }
  void on(size_t rank, const agent::ReadyForEpoch& ready);
  void on(size_t rank, const agent::Leaving& leaving);
  void on_rank_end(const RankEnd& end);
  bool goes_on_without(const RankEnd& end);
  void note_epochs(const std::string& line);
  /// Ranks may come and go: the job is elastic, and nobody has ended it. After SIGTERM ranks go, in
  /// their own time.
  [[nodiscard]] bool evolves() const {
    return members_.elastic() && begun_ && stopping_.undisturbed() &&
           stopping_.asked().value_or(SIGTERM) == SIGTERM;
  }
  [[nodiscard]] Time next_epoch_at() const { return evolves() ? members_.wake() : Time::never(); }
  void carry_out(const Epochs::Orders& orders);
  [[nodiscard]] bool is_leaving(const RankEnd& witness) const;
  void ask_missing(const RankEnd& end);
  [[nodiscard]] bool runs(int rank) const {
    return rank >= 0 && static_cast<size_t>(rank) < ends_.size() &&
           !ends_[static_cast<size_t>(rank)].ended;
  }

  // What others are told.
  void emit(EventKind kind, size_t rank, const std::string& cause = "");
  void note_event(const Event& event);
  void save_failure(const Event& event);

  // The end.
  [[nodiscard]] int finish();
  void flush_screen();
  void say_end(const CallEnd& end);
  [[nodiscard]] int say_refused();
  [[nodiscard]] int say_killed(int status);

  LaunchPlan plan_;
  const std::string version_;  ///< Of corro.
  Agents agents_;
  std::optional<Meeting> meeting_;
  LogFiles logs_;
  std::optional<OutputFiles> output_files_;
  io::Loop loop_;
  std::unique_ptr<screen::ScreenWriter> writer_;
  std::optional<Caller> caller_;            ///< None: somebody has typed `corro run`.
  std::vector<std::string> call_;           ///< Its pieces, for hosts that come later.
  std::unique_ptr<ControlSocket> control_;  ///< Null if it cannot be opened.
  StackRound stacks_;
  screen::Screen screen_;
  io::Fd signals_;
  UserInput input_{loop_};
  const wire::Digest job_;
  const wire::Secret secret_ = wire::random_secret();
  const std::shared_ptr<PolicyCommand> policy_;  ///< Null: none was given.
  Epochs members_;
  std::vector<RankEnd> ends_;  ///< By place.

  EventStream events_;
  std::optional<EventFile> event_file_;
  std::optional<HostDiscovery> discovery_;  ///< --host-discovery.
  std::optional<Arrivals> arrivals_;        ///< Beside it.
  std::string no_hosts_;                    ///< Why its last answer was none; "": it was one.
  std::string no_way_on_;                   ///< Why an elastic job was stopped; "": it was not.
  diagnosis::HangWatch hang_watch_{plan_.options.long_wait};
  diagnosis::HangWatch fatal_watch_{plan_.options.hang_timeout};
  int awaited_ = -1;  ///< The screen says that ranks wait for it; -1: for none.
  Time awaited_since_{};
  bool begun_ = false;  ///< Ranks were started.
  int running_ = 0;
  Time started_ = monotonic_now();
  Stopping stopping_;
  bool suspends_ = false;  ///< Ctrl-Z: it stops once all agents are told.
  Time look_at_ = Time::never();
  Time deadline_ = Time::never();    ///< Of hosts that have to answer, or of the last word.
  std::string refused_;              ///< Why no job was started.
  std::set<size_t> seen_;            ///< Ranks that have said what they do since time is over.
  std::vector<RankEnd> at_timeout_;  ///< As the ranks were when --timeout was over.
};

// -- starting -------------------------------------------------------------------------------------

/// Whom the launcher hears, and who is told of what happens.
Status Launcher::listen(const sigset_t& heard) {
  signals_.reset(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
  CORRO_TRY(loop_.watch(signals_.get(), EPOLLIN, [this] { on_signals(); }));
  CORRO_TRY(loop_.watch(writer_->room().fd(), EPOLLIN, [this] { (void)writer_->room().drain(); }));
  if (auto control = ControlSocket::create(plan_.job.job_id); control.ok()) {
    control_ = std::move(*control);
    CORRO_TRY(loop_.watch(control_->poll_fd(), EPOLLIN, [this] { on_control(); }));
  }
  if (!plan_.options.events.empty()) {
    CORRO_ASSIGN(event_file_, EventFile::create(plan_.options.events));
    events_.listen([this](const Event& event) {
      if (const Status status = event_file_->append(event); !status.ok())
        screen_.note(fmt::format("corro: events are missing: {}\n", status.message()));
    });
  }
  if (plan_.options.verbose) events_.listen([this](const Event& event) { note_event(event); });
  events_.listen([this](const Event& event) { save_failure(event); });
  return {};
}

/// Where other hosts take part: until all is known that their ranks need.
Status Launcher::meet() {
  Meeting& meeting = meeting_.emplace(plan_, agents_);
  CORRO_TRY(agents_.listen(
      loop_,
      {.hear = [this](AgentLink& link, const agent::Message& message) { hear(link, message); },
       .lose = [this](const AgentLink& link, const std::string& why) { lose(link, why); },
       .take_over =
           [this](const AgentLink& link, const AgentLink& by, const std::string& why) {
             if (plan_.options.verbose)
               screen_.note(
                   fmt::format("corro: {} does not get to {} ({}); it is started from here\n",
                               by.name, link.name, why));
           }}));
  if (!plan_.sync.empty() && agents_.any_remote())
    meeting.bring(SyncReader(plan_.sync, plan_.job.error_dir));  // The shells start meanwhile.
  deadline_ = monotonic_now() + kHelloPatience;
  look_at_ = monotonic_now() + kLookPause;
  while (!meeting.done()) {
    step();
    show_sync();
    if (stopping_.asked()) return {Code::kCancelled, "stopped before a rank was started"};
    if (!refused_.empty()) return {Code::kUnavailable, refused_};
    CORRO_TRY(meeting.advance());
    (void)agents_.flush();  // What it says does not wait for the next event.
    const AgentLink* silent = meeting.silent();
    if (silent == nullptr || monotonic_now() < deadline_) continue;
    return {Code::kDeadlineExceeded, fmt::format("host {}: no answer for {}", silent->name,
                                                 diagnosis::format_span(kHelloPatience))};
  }
  deadline_ = Time::never();
  return {};
}

/// What is sent is always said; what comes before that only where it takes long, to people.
void Launcher::show_sync() {
  if (plan_.options.quiet) return;
  const bool is_long = monotonic_now() - started_ > kLongSync && isatty(STDERR_FILENO) != 0;
  std::string line = meeting_->describe_sync();
  if (line.empty() && is_long) line = meeting_->describe_comparing();
  const size_t width = width_of(terminal_size(STDERR_FILENO)) - 1;
  if (!line.empty()) return screen_.set_status(diagnosis::fit(line, width));
  screen_.end_status(fmt::format("corro: --sync {}: all hosts have it", plan_.options.sync));
}

/// What the ranks have to do goes to every host, piece by piece: none keeps another waiting long.
Status Launcher::hand_over_call() {
  while (caller_) {
    CORRO_ASSIGN(std::string piece, caller_->read_call());
    if (piece.empty()) return loop_.watch(caller_->fd(), EPOLLIN, [this] { on_caller(); });
    if (!plan_.options.discovery.empty()) call_.push_back(piece);
    agents_.send_all(agent::Call{.bytes = std::move(piece)});
    while (!agents_.flush()) {
      step();
      if (stopping_.asked()) return {Code::kCancelled, "stopped before a rank was started"};
      if (!refused_.empty()) return {Code::kUnavailable, refused_};
    }
  }
  return {};
}

Status Launcher::start() {
  if (const std::string lines = announce_plan(plan_); !lines.empty()) screen_.note(lines);
  if (!plan_.options.discovery.empty()) {
    discovery_.emplace(plan_.options.discovery, plan_.machine.host, plan_.mask);
    arrivals_.emplace(plan_, agents_, *meeting_);
  }
  begun_ = true;
  for (size_t rank = 0; rank < members_.size(); ++rank) start_rank(rank);
  agents_.send_all(members_.announce());
  stopping_.start(plan_.options.timeout, monotonic_now());
  look_at_ = monotonic_now() + kLookPause;
  return {};
}

void Launcher::start_rank(size_t place) {
  const Seat seat = members_.seat(place);
  ends_[place] = {};
  ends_[place].rank = seat.rank;
  if (agents_.any_remote() || discovery_) ends_[place].host = link_of(place).name;
  ++running_;
  agent::Start start = members_.joins(place) ? joiner_start_of(plan_, seat, secret_)
                                             : start_of(plan_, seat, secret_);
  if (members_.elastic())
    start.environment["CORRO_MEMBER_UUID"] = wire::to_hex(members_.subject(place).member);
  if (start.input == agent::StandardInput::kSent) input_.start([this] { on_input(); });
  tell(place, start);
}

// -- the loop -------------------------------------------------------------------------------------

void Launcher::step() {
  loop_.turn(input_.is_file() ? monotonic_now() : next_timer());
  if (input_.is_file()) on_input();
  on_timers(monotonic_now());
  // While the screen takes nothing the agents get no credit, and read nothing from the ranks.
  if (!writer_->full()) agents_.give_credit();
  // The agents know of a stop before it: else they would take the launcher for gone.
  if (agents_.flush() && std::exchange(suspends_, false)) kill(getpid(), SIGSTOP);
}

Time Launcher::next_timer() const {
  if (meeting_ && meeting_->busy()) return monotonic_now();
  return std::min(
      {stopping_.wake(), look_at_, deadline_, stacks_.due(), screen_.next_tick(), next_epoch_at(),
       discovery_ && evolves() ? std::min(discovery_->due(), arrivals_->due()) : Time::never()});
}

void Launcher::on_timers(Time now) {
  screen_.tick(now);
  if (look_at_ <= now) look(now);
  if (stacks_.due() <= now) control_->answer(stacks_.finish());
  if (next_epoch_at() <= now) carry_out(members_.tick(now));
  if (discovery_ && evolves()) look_for_hosts(now);
  for (Stopping::Order order = stopping_.take(now); order != Stopping::Order::kNone;
       order = stopping_.take(now))
    carry_out(order);
}

/// Hosts come and go.
void Launcher::look_for_hosts(Time now) {
  if (const auto answer = discovery_->poll(now)) {
    const std::string trouble = answer->ok() ? "" : answer->status().message();
    if (!trouble.empty() && trouble != no_hosts_) note_epochs(trouble);
    no_hosts_ = trouble;
    if (answer->ok()) take_hosts(**answer, now);
  }
  for (const Arrivals::Outcome& outcome : arrivals_->take(now)) {
    const JobHost& host = plan_.job.hosts[outcome.host];
    if (outcome.status.ok()) {
      note_epochs(fmt::format("host {} is there", host.name));
      for (const std::string& piece : call_)
        agents_.tell(outcome.host, agent::Call{.bytes = piece});
      carry_out(members_.offer(outcome.host, host.name, host.slots(), now));
    } else {
      note_epochs(fmt::format("host {} cannot be used: {}", host.name, outcome.status.message()));
    }
  }
}

void Launcher::take_hosts(const std::vector<HostSlots>& listed, Time now) {
  for (const AgentLink& link : agents_.links()) {
    JobHost& host = plan_.job.hosts[link.host];
    if (link.gone || arrivals_->expects(link.host)) continue;
    const auto found =
        std::ranges::find_if(listed, [&](const HostSlots& one) { return is_same_host(host, one); });
    const int slots = found == listed.end() ? 0 : found->slots;
    host.spare = std::max(host.spare, slots - host.ranks);
    carry_out(members_.offer(link.host, host.name, slots, now));
  }
  for (const HostSlots& one : listed) {
    const auto is_known = [&](const AgentLink& link) {
      return !link.gone && is_same_host(plan_.job.hosts[link.host], one);
    };
    if (std::ranges::none_of(agents_.links(), is_known) && arrivals_->may_invite(one.name, now))
      arrivals_->invite(one, now);
  }
}

/// The launcher's own host has several names.
bool Launcher::is_same_host(const JobHost& host, const HostSlots& listed) const {
  return host.name == listed.name || (is_own_host(host.name, plan_.machine.host) &&
                                      is_own_host(listed.name, plan_.machine.host));
}

void Launcher::carry_out(Stopping::Order order) {
  switch (order) {
    case Stopping::Order::kLook:
      seen_.clear();
      return agents_.send_all(agent::Look{});
    case Stopping::Order::kTimedOut:
      at_timeout_ = ends_;
      return;
    case Stopping::Order::kRemind:
      if (running_ > 0 && !plan_.options.quiet)
        screen_.note("corro: waiting for the ranks to end; Ctrl-C once more stops them\n");
      return;
    case Stopping::Order::kTerminate:
      return agents_.send_all(agent::Signal{.number = SIGTERM, .ends = true});
    case Stopping::Order::kKill:
      return agents_.send_all(agent::Signal{.number = SIGKILL, .ends = true});
    case Stopping::Order::kNone:
      return;
  }
}

/// Nobody has to ask about a hang: the screen says who waits for whom, as long as it lasts.
void Launcher::look(Time now) {
  // Ctrl-Z has stopped the launcher, if it looks late: in that time nobody had to answer.
  const Duration stopped = now - look_at_;
  agents_.excuse_silence(stopped, now);
  if (deadline_ != Time::never()) deadline_ = deadline_ + stopped;
  const bool goes_on = running_ > 0 && stopping_.undisturbed();
  show_wait(goes_on ? hang_watch_.look(ends_, now) : diagnosis::LongWait{}, now);
  if (evolves() && plan_.options.hang_timeout) end_hang(fatal_watch_.look(ends_, now), now);
  agents_.look_for_silence(now);
  input_.look();
  // By these looks other hosts know that the launcher lives, to the end.
  look_at_ = goes_on || agents_.any_remote() ? now + kLookPause : Time::never();
  if (look_at_ != Time::never())
    agents_.send_all(agent::Look{});  // Answered long before the next look.
}

/// --hang-timeout: an elastic job goes on without a rank for which the others wait so long.
void Launcher::end_hang(const diagnosis::LongWait& wait, Time now) {
  if (runs(wait.awaited))
    carry_out(members_.hang(static_cast<size_t>(wait.awaited), wait.text, now));
}

void Launcher::show_wait(const diagnosis::LongWait& wait, Time now) {
  if (awaited_ >= 0 && wait.awaited != awaited_) {
    emit(EventKind::kWaiting, static_cast<size_t>(awaited_));
    screen_.end_status(fmt::format("corro: nobody waits for rank {} any more, after {}", awaited_,
                                   diagnosis::format_span(now - awaited_since_)));
  }
  if (wait.awaited >= 0 && wait.awaited != awaited_) {
    emit(EventKind::kWaiting, static_cast<size_t>(wait.awaited), wait.text);
    awaited_since_ = now - wait.since;
  }
  awaited_ = wait.awaited;
  if (awaited_ < 0 || plan_.options.quiet) return;
  const size_t width = width_of(terminal_size(STDERR_FILENO)) - 1;
  screen_.set_status(diagnosis::fit("corro: " + wait.text, width));
}

void Launcher::on_input() {
  if (const auto bytes = input_.read())
    tell(0, agent::Input{.bytes = *bytes, .ends = bytes->empty()});
}

/// Without its caller nobody wants the job.
void Launcher::on_caller() {
  if (!caller_->gone()) return;
  loop_.forget(caller_->fd());
  stopping_.on_caller_gone(running_ > 0, monotonic_now());
}

/// `corro stacks` asks. Whoever asks meanwhile gets the same answer.
void Launcher::on_control() {
  control_->poll();
  if (!control_->asked() || stacks_.running()) return;
  stacks_.begin(ends_, monotonic_now());
  agents_.send_all(agent::Stacks{});
}

void Launcher::on_signals() {
  signalfd_siginfo signal{};
  while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo != SIGCHLD) on_signal(static_cast<int>(signal.ssi_signo));
  }
}

void Launcher::on_signal(int signal) {
  if (signal == SIGWINCH) {
    agents_.send_all(
        agent::Resize{.out = terminal_size(STDOUT_FILENO), .err = terminal_size(STDERR_FILENO)});
  }
  if (!stopping_.on_signal(signal, running_ > 0, monotonic_now())) return;
  if (stopping_.asked()) members_.close();
  agents_.send_all(agent::Signal{.number = signal});
  suspends_ = signal == SIGTSTP || (suspends_ && signal != SIGCONT);
}

// -- what the agent says --------------------------------------------------------------------------

void Launcher::hear(AgentLink& link, const agent::Message& message) {
  if (message.about.rank < 0) return hear_host(link, message);
  // What is of no rank that runs is dropped, but it had its credit.
  if (const auto* output = std::get_if<agent::Output>(&message.body))
    link.uncredited += output->bytes.size();
  const auto place = members_.place_of(message.about);
  if (!place || &link_of(*place) != &link) return;
  if (const auto* refused = std::get_if<agent::Refused>(&message.body))
    return on_refused(link, *place, *refused);
  if (std::holds_alternative<agent::Left>(message.body)) agents_.pass_on(link, message);
  std::visit([&](const auto& body) { on(*place, body); }, message.body);
}

/// A process was not started. The job does not need one that joins.
void Launcher::on_refused(const AgentLink& link, size_t place, const agent::Refused& refused) {
  const std::string why =
      agents_.any_remote() ? fmt::format("host {}: {}", link.name, refused.why) : refused.why;
  if (!members_.joins(place)) return refuse(why);
  end_unstarted(place, why);
}

/// What an agent says of its host, or has for other hosts.
void Launcher::hear_host(AgentLink& link, const agent::Message& message) {
  if (const auto* hello = std::get_if<agent::Hello>(&message.body)) return on_hello(link, *hello);
  if (const auto* fenced = std::get_if<agent::Fenced>(&message.body))
    return on_fenced(link, *fenced);
  if (const Status status = meeting_->hear(link, message); !status.ok())
    comes(link) ? refuse_host(link, status.message()) : refuse(status.message());
  if (std::holds_alternative<agent::Lacking>(message.body))
    deadline_ = monotonic_now() + kHelloPatience;
  if (const auto* refused = std::get_if<agent::Refused>(&message.body))
    refuse_host(link, refused->why);
  if (const auto* trouble = std::get_if<agent::Trouble>(&message.body))
    screen_.note(fmt::format("corro: {}\n", trouble->text));
  if (std::holds_alternative<agent::Record>(message.body)) agents_.pass_on(link, message);
}

void Launcher::on_hello(AgentLink& link, const agent::Hello& hello) {
  const bool fits = hello.version == agent::kMessagesVersion && hello.corro == version_;
  if (!comes(link)) meeting_->greet(link);
  if (comes(link) && fits) arrivals_->greet(link);
  if (fits) return;
  const std::string why =
      fmt::format("has corro {}, this one {}; install the same on both", hello.corro, version_);
  comes(link) ? arrivals_->refuse(link.host, why, monotonic_now())
              : refuse(fmt::format("host {} {}", link.name, why));
}

void Launcher::on_fenced(AgentLink& link, const agent::Fenced& fenced) {
  link.fenced = true;
  if (fenced.left)
    screen_.note("corro: some processes of this job cannot be killed; the kernel holds them\n");
}

/// A host cannot run ranks. The job does not need one that comes.
void Launcher::refuse_host(const AgentLink& link, const std::string& why) {
  comes(link) ? arrivals_->refuse(link.host, why, monotonic_now())
              : refuse(fmt::format("host {}: {}", link.name, why));
}

/// A host's agent says nothing more: it was killed, or the connection or the host is gone. Its
/// ranks are over, and so is a job that needs them.
void Launcher::lose(const AgentLink& link, const std::string& why) {
  if (comes(link)) return arrivals_->refuse(link.host, why, monotonic_now());
  if (!begun_) return refuse(fmt::format("host {}: {}", link.name, why));
  const std::string text = fmt::format("host {} was lost: {}", link.name, why);
  if (running_ == 0) return screen_.note(fmt::format("corro: {}\n", text));
  events_.emit({.kind = EventKind::kLost, .host = link.name, .cause = text});
  if (evolves()) carry_out(members_.lose_host(link.host, monotonic_now()));
  for (size_t place = 0; place < ends_.size(); ++place) {
    RankEnd& end = ends_[place];
    if (end.ended || members_.seat(place).host != link.host) continue;
    end.ended = true;
    end.status = SIGKILL;
    end.when = monotonic_now();
    end.stopped = stopping_.stopping();
    end.lost = text;
    --running_;
    on_rank_end(end);
  }
}

void Launcher::on(size_t rank, const agent::Started& started) {
  ends_[rank].pid = started.pid;
  emit(EventKind::kStarted, rank);
}

void Launcher::on(size_t rank, const agent::Joined& /*joined*/) { emit(EventKind::kJoined, rank); }

void Launcher::on(size_t rank, const agent::Output& output) {
  if (output.stream == io::Output::kResult) {
    if (caller_) writer_->write(caller_->fd(), frame_result(static_cast<int>(rank), output.bytes));
    return;
  }
  note_incomplete(logs_.append(static_cast<int>(rank), output.bytes));
  if (output_files_)
    note_incomplete(output_files_->append(static_cast<int>(rank), output.stream, output.bytes));
  screen_.feed(static_cast<int>(rank), output.stream, output.bytes, monotonic_now());
}

void Launcher::on(size_t rank, const agent::OutputEnd& end) {
  if (end.stream == io::Output::kResult) return;
  if (output_files_) note_incomplete(output_files_->finish(static_cast<int>(rank), end.stream));
  screen_.finish(static_cast<int>(rank), end.stream, monotonic_now());
}

/// The job goes on: it is not about its files.
void Launcher::note_incomplete(const Status& status) {
  if (!status.ok())
    screen_.note(fmt::format("corro: files are incomplete from here on: {}\n", status.message()));
}

/// Takes what an agent says of a rank, whose operations have the times of the agent's clock.
void Launcher::learn(size_t rank, const RankEnd& said, Duration clock) {
  const Time when = ends_[rank].ended ? ends_[rank].when : monotonic_now();
  const std::string host = std::move(ends_[rank].host);
  ends_[rank] = said;
  ends_[rank].rank = static_cast<int>(rank);
  ends_[rank].when = when;
  ends_[rank].host = host;
  if (!ends_[rank].flight) return;
  const auto ahead = (monotonic_now().since_start - clock).count();
  for (obs::OpSnapshot& op : ends_[rank].flight->recent) {
    op.waiting_for = members_.place_of_rank(op.waiting_for);
    for (uint64_t* stamp : {&op.queued_ns, &op.started_ns, &op.done_ns})
      if (*stamp != 0) *stamp += static_cast<uint64_t>(ahead);
  }
}

void Launcher::on(size_t rank, const agent::Ended& ended) {
  const bool first = !ends_[rank].ended;
  learn(rank, ended.end, ended.clock);
  if (!first) return;
  --running_;
  emit(EventKind::kEnded, rank, describe_status(ends_[rank]));
  saw(rank);
  on_rank_end(ends_[rank]);
}

void Launcher::on(size_t rank, const agent::Seen& seen) {
  if (ends_[rank].ended) return;
  const uint64_t before = ends_[rank].flight ? ends_[rank].flight->step : 0;
  learn(rank, seen.end, seen.clock);
  if (ends_[rank].flight && ends_[rank].flight->step > before) emit(EventKind::kStep, rank);
  if (evolves()) carry_out(members_.see(rank, seen.end.paused, monotonic_now()));
  saw(rank);
}

/// The rank has said what it does, or has ended: after all have, nothing more is waited for.
void Launcher::saw(size_t rank) {
  seen_.insert(rank);
  const auto is_known = [this](const RankEnd& one) {
    return one.ended || seen_.contains(static_cast<size_t>(one.rank));
  };
  if (stopping_.looking() && std::ranges::all_of(ends_, is_known))
    stopping_.all_seen(monotonic_now());
}

void Launcher::on_rank_end(const RankEnd& end) {
  const Time now = monotonic_now();
  if (goes_on_without(end)) return;
  if (!diagnosis::ended_well(end) && stopping_.on_failure(is_leaving(end), now)) {
    ask_missing(end);
    screen_.suspend_errors();
  } else if (diagnosis::gave_up(end)) {
    // Whom it has waited for in vain was asked to stop, too, and does not.
    stopping_.on_given_up(now);
  }
}

/// An elastic job begins a new epoch with the other ranks, unless too few are left, or it is being
/// ended.
bool Launcher::goes_on_without(const RankEnd& end) {
  if (!evolves()) return false;
  const auto place = static_cast<size_t>(end.rank);
  const bool well = diagnosis::ended_well(end) || (members_.last() && diagnosis::has_left(end));
  const std::string how = fmt::format("rank {} {}", end.rank, describe_end(end));
  if (members_.joins(place)) note_epochs(how + " before it had joined");
  const Epochs::Orders orders = members_.end(place, well, end.lost.empty() ? how : end.lost,
                                             !end.lost.empty(), monotonic_now());
  carry_out(orders);
  return orders.stop.empty();
}

void Launcher::on(size_t rank, const agent::ReadyForEpoch& ready) {
  const bool unasked = ready.epoch == members_.epoch();
  const int lost = unasked ? members_.place_of_rank(ready.lost) : -1;
  if (runs(lost)) agents_.suspect(link_of(static_cast<size_t>(lost)).host, monotonic_now());
  carry_out(members_.ready(rank, ready.epoch, lost, monotonic_now()));
}

void Launcher::on(size_t rank, const agent::Leaving& /*leaving*/) {
  if (evolves()) carry_out(members_.leave(rank, monotonic_now()));
}

void Launcher::carry_out(const Epochs::Orders& orders) {
  for (const agent::Message& message : orders.fenced) {
    if (const auto place = members_.place_of(message.about))
      agents_.send(link_of(*place).host, message);
  }
  for (const agent::Message& message : orders.messages) agents_.send_all(message);
  agents_.enter(members_.epoch());
  for (const size_t place : orders.started) start_rank(place);
  for (const Epochs::News& news : orders.news) {
    note_epochs(news.why);
    events_.emit({.kind = kind_of(news.kind), .epoch = news.epoch, .cause = news.why});
  }
  if (orders.stop.empty()) return;
  note_epochs(orders.stop);
  no_way_on_ = orders.stop;
  stopping_.on_no_way_on(monotonic_now());
}

/// What becomes of the members, for people.
void Launcher::note_epochs(const std::string& line) {
  if (!plan_.options.quiet) screen_.note(fmt::format("corro: {}\n", line));
}

/// A process that was to join is not there, and will not be.
void Launcher::end_unstarted(size_t place, const std::string& why) {
  RankEnd& end = ends_[place];
  if (std::exchange(end.ended, true)) return;
  --running_;
  note_epochs(fmt::format("rank {} does not start: {}", place, why));
  if (evolves()) carry_out(members_.end(place, /*well=*/false, why, false, monotonic_now()));
}

/// Whether the witness saw a rank leave that has not ended yet.
bool Launcher::is_leaving(const RankEnd& witness) const {
  return diagnosis::saw_it_leave(witness) && runs(diagnosis::named_by(witness));
}

/// The rank that another one has waited for has until the end of the grace to say where it is.
void Launcher::ask_missing(const RankEnd& end) {
  const int missing = diagnosis::gave_up(end) ? diagnosis::awaited_by(end) : -1;
  if (runs(missing)) tell(static_cast<size_t>(missing), agent::Ask{});
}

// -- what others are told -------------------------------------------------------------------------

void Launcher::emit(EventKind kind, size_t rank, const std::string& cause) {
  const RankEnd& about = ends_[rank];
  const agent::Subject& member = members_.subject(rank);
  events_.emit({.kind = kind,
                .epoch = members_.joins(rank) ? members_.epoch() : member.epoch,
                .host = link_of(rank).name,
                .rank = member.rank,
                .step = about.flight ? std::optional(about.flight->step) : std::nullopt,
                .cause = cause});
}

/// --verbose.
void Launcher::note_event(const Event& event) {
  if (event.kind == EventKind::kStarted) {
    const pid_t pid = ends_[static_cast<size_t>(event.rank)].pid;
    screen_.note(fmt::format("corro: rank {} has pid {}\n", event.rank, pid));
  } else if (event.kind == EventKind::kJoined) {
    const double after = std::chrono::duration<double>(monotonic_now() - started_).count();
    screen_.note(fmt::format("corro: rank {} joins after {:.2f} s\n", event.rank, after));
  }
}

void Launcher::save_failure(const Event& event) {
  if (event.report == nullptr) return;
  const Status status = logs_.write_file("failure.json", diagnosis::format_json(*event.report));
  if (!status.ok()) screen_.note(fmt::format("corro: {}\n", status.message()));
  diagnosis::write_error_file(value_of(plan_.base, "TORCHELASTIC_ERROR_FILE"), *event.report);
}

// -- the end --------------------------------------------------------------------------------------

int Launcher::finish() {
  std::erase_if(
      ends_, [this](const RankEnd& end) { return members_.left(static_cast<size_t>(end.rank)); });
  diagnosis::read_error_files(ends_, logs_.directory());
  const bool timed_out = !at_timeout_.empty();
  const diagnosis::JobEnd job{.ranks = timed_out ? at_timeout_ : ends_,
                              .asked = stopping_.asked(),
                              .timeout = timed_out ? plan_.options.timeout : std::nullopt,
                              .last = members_.last(),
                              .no_way_on = no_way_on_,
                              .width = width_of(terminal_size(STDERR_FILENO))};
  const diagnosis::Conclusion end = diagnosis::conclude(
      job, {.host = plan_.job.hosts[0].name,
            .log_dir = logs_.directory(),
            .now = monotonic_now(),
            .hint = [this](const diagnosis::Crash& crash) { return hint_about(plan_, crash); }});
  show_wait({}, monotonic_now());
  screen_.settle(end.failure ? end.failure->rank : -1);
  screen_.flush(monotonic_now());
  if (end.failure) {
    events_.emit({.kind = EventKind::kFailure,
                  .host = end.failure->host,
                  .rank = end.failure->rank,
                  .step = end.failure->step,
                  .cause = end.failure->cause,
                  .report = &*end.failure});
  }
  if (plan_.options.verbose) {
    const double took = std::chrono::duration<double>(monotonic_now() - started_).count();
    screen_.note(fmt::format("corro: {} ranks ended after {:.2f} s, status {}\n", ends_.size(),
                             took, end.exit));
  }
  const Code code = timed_out                       ? Code::kDeadlineExceeded
                    : end.exit != 0 && !end.failure ? Code::kCancelled
                                                    : Code::kOk;
  say_end({.code = code,
           .exit = end.exit,
           .places = members_.ranks(),
           .text = end.text,
           .failure = end.failure});
  return end.exit;
}

void Launcher::flush_screen() {
  const Time until = monotonic_now() + kLastWord;
  while (!writer_->empty() && (!stopping_.impatient() || monotonic_now() < until)) {
    deadline_ = stopping_.impatient() ? until : Time::never();
    step();
  }
  if (!writer_->empty()) (void)writer_.release();  // its thread may hang in write() for ever
}

/// The last word is on the screen, or the caller's to say.
void Launcher::say_end(const CallEnd& end) {
  if (caller_) return writer_->write(caller_->fd(), frame_end(end));
  if (!end.text.empty()) screen_.note(end.text);
}

int Launcher::say_refused() {
  screen_.end_status("");  // of --sync
  const std::optional<int> asked = stopping_.asked();
  const int exit = asked ? diagnosis::kSignalExit + *asked : diagnosis::kUsageExit;
  say_end({.code = asked ? Code::kCancelled : Code::kUnavailable,
           .exit = exit,
           .text = fmt::format("corro run: {}\n", refused_)});
  return exit;
}

int Launcher::say_killed(int status) {
  screen_.flush(monotonic_now());
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : SIGKILL;
  const std::string how =
      WIFSIGNALED(status) ? "was killed by " + io::signal_name(signal) : "ended before its time";
  const int exit = diagnosis::kSignalExit + signal;
  say_end({.code = Code::kAborted,
           .exit = exit,
           .text = fmt::format(
               "corro: the process that watched the ranks {}; every rank was stopped\n", how)});
  return exit;
}

}  // namespace

int run_job(const LaunchPlan& plan, const std::string& version) {
  const auto fail = [&](const Status& status) { return refuse_job(plan.options, status); };
  std::optional<Caller> caller;
  if (plan.options.call >= 0) {
    auto taken = Caller::create(plan.options.call);
    if (!taken.ok()) return fail(taken.status());
    caller = std::move(*taken);
  }
  const JobSignals signals = block_signals();
  auto logs = LogFiles::create(plan.job.log_dir, plan.job.places());
  if (!logs.ok()) return fail(logs.status());
  std::optional<OutputFiles> files;
  if (!plan.options.output_dir.empty()) {
    auto created = OutputFiles::create(plan.options.output_dir, plan.job.places(),
                                       file_prefix(plan.options.show, screen::local_time));
    if (!created.ok()) return fail(created.status());
    files = std::move(*created);
  }
  auto agents = Agents::create(plan.job.hosts, {.job = wire::digest_of(plan.job.job_id),
                                                .shell = agent::remote_shell(plan.options.rsh),
                                                .corro = plan.corro,
                                                .version = version,
                                                .fan_out = plan.options.fan_out,
                                                .mask = signals.before});
  if (!agents.ok()) return fail(agents.status());
  auto loop = io::Loop::create();
  if (!loop.ok()) return fail(loop.status());
  auto writer = screen::ScreenWriter::create();  // a thread: after the fork
  if (!writer.ok()) return fail(writer.status());
  std::shared_ptr<PolicyCommand> policy;
  if (!plan.options.policy.empty()) {
    auto started = PolicyCommand::start(plan.options.policy, signals.before);
    if (!started.ok()) return fail(started.status().with_context("--policy"));
    policy = std::move(*started);
  }
  LaunchPlan settled = plan;
  settled.mask = signals.before;
  Launcher launcher(settled, std::move(agents).value(),
                    {.logs = std::move(logs).value(),
                     .files = std::move(files),
                     .writer = std::move(writer).value()},
                    std::move(loop).value(), std::move(caller), std::move(policy), version);
  return launcher.run(signals.heard);
}

}  // namespace corro::launch
