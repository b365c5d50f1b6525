#include "launch/launcher.h"

#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <utility>

#include "agent/agent_process.h"
#include "diagnosis/flight_text.h"
#include "io/loop.h"
#include "io/signals.h"
#include "launch/agents.h"
#include "launch/caller.h"
#include "launch/control_socket.h"
#include "launch/host_watch.h"
#include "launch/job_course.h"
#include "launch/job_output.h"
#include "launch/job_signals.h"
#include "launch/last_word.h"
#include "launch/meeting.h"
#include "launch/policy_command.h"
#include "launch/rank_start.h"
#include "launch/user_input.h"
#include "wire/secret.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLookPause = seconds(1);        ///< Between looks at what ranks do.
constexpr Duration kHelloPatience = seconds(20);   ///< For a host's agent to answer.
constexpr Duration kLongSync = seconds(1);         ///< So long people wait without a word.
constexpr Duration kLastWord = milliseconds(500);  ///< For the screen, of an impatient user.

/// None: the job is not elastic.
std::optional<coord::Options> membership_options(const LaunchPlan& plan,
                                                 const std::shared_ptr<PolicyCommand>& policy) {
  const RunOptions& run = plan.options;
  if (!run.elastic()) return std::nullopt;
  coord::Options options{.least = run.least.value_or(plan.job.ranks), .most = plan.job.most};
  options.patience = run.elastic_timeout.value_or(kElasticTimeout);
  options.resets = run.reset_limit;
  coord::PolicyOptions waits;
  waits.replacement = run.replace_wait.value_or(Duration::zero());
  if (run.back_off) std::tie(waits.back_off, waits.most_back_off) = *run.back_off;
  options.policy = coord::standard_policy(waits);
  if (policy == nullptr) return options;
  options.policy = asked_policy(policy, options.policy,
                                [&plan](size_t host) { return plan.job.hosts[host].name; });
  return options;
}

JobCourse::Options course_options(const LaunchPlan& plan,
                                  const std::shared_ptr<PolicyCommand>& policy) {
  const RunOptions& run = plan.options;
  const bool several = !std::ranges::all_of(plan.job.hosts, &JobHost::own);
  return {.elastic = membership_options(plan, policy),
          .timeout = run.timeout,
          .long_wait = run.long_wait,
          .hang_timeout = run.hang_timeout,
          .several_hosts = several || plan.hosts_come(),
          .remembers = plan.dialled,
          .quiet = run.quiet,
          .verbose = run.verbose};
}

/// Loop-confined.
class Launcher {
 public:
  Launcher(LaunchPlan plan, Agents agents, JobOutput::Files files,
           std::unique_ptr<screen::ScreenWriter> writer, io::Loop loop,
           std::optional<Caller> caller, const std::shared_ptr<PolicyCommand>& policy,
           std::string version, Standalone* standalone)
      : standalone_(standalone),
        plan_(std::move(plan)),
        version_(std::move(version)),
        agents_(std::move(agents)),
        meeting_(plan_, agents_),
        loop_(std::move(loop)),
        caller_(std::move(caller)),
        output_(plan_, std::move(files), std::move(writer), caller_ ? caller_->fd() : -1),
        course_(plan_.job, new_members(wire::digest_of(plan_.job.job_id), plan_.job.places()),
                course_options(plan_, policy), started_) {}

  [[nodiscard]] int run(const sigset_t& heard);

 private:
  // Before ranks run.
  Status listen(const sigset_t& heard);
  Status meet();
  Status attach(size_t host, Reception::Dialled dialled);
  void show_sync();
  Status hand_over_call();
  void start();

  // The loop.
  void step();
  void on_timers(Time now);
  void look(Time now);
  void on_input();
  void on_caller();
  void on_control();
  void on_signals();
  void on_signal(int signal);
  void on_dialled(Reception::Dialled dialled);
  void take(size_t host, Reception::Dialled dialled);
  [[nodiscard]] bool leads() const {
    return standalone_ == nullptr || record_.over || standalone_->lead.holds(monotonic_now());
  }
  void keep_lead(Time now);
  void remember(JobRecord record);
  void end_record(std::optional<int> status);
  void fence();
  int leave();

  // What agents say.
  void hear(AgentLink& link, const agent::Message& message);
  void hear_host(AgentLink& link, const agent::Message& message);
  void on_survey(AgentLink& link);
  void greet(AgentLink& link, const agent::Hello& hello);
  void on_fenced(AgentLink& link, const agent::Fenced& fenced);
  void refuse_host(const AgentLink& link, const std::string& why);
  void lose(const AgentLink& link, const std::string& why);
  [[nodiscard]] bool comes(const AgentLink& link) const {
    return hosts_ && hosts_->expects(link.host);
  }

  // What the course orders.
  void carry_out_orders();
  void carry_out(const TellHost& order) { agents_.send(order.host, order.message); }
  void carry_out(const TellAll& order);
  void carry_out(const StartRank& order);
  void carry_out(const SuspectHost& order) { agents_.suspect(order.host, monotonic_now()); }
  void carry_out(const Announce& order) { output_.emit(order.event); }
  void carry_out(const Note& order) { output_.note(order.line); }
  void carry_out(const ShowStatus& order) { output_.set_status(order.line); }
  void carry_out(const EndStatus& order) { output_.end_status(order.over); }
  void carry_out(const HoldErrors& /*order*/) { output_.hold_errors(); }
  void carry_out(const AnswerStacks& order) { control_->answer(order.text); }
  void carry_out(const Remember& order) { remember(order.record); }

  [[nodiscard]] int say_last_word(std::optional<int> killed);
  void flush_screen();

  const Time started_ = monotonic_now();
  Standalone* const standalone_;  ///< Null: agents are started.
  JobRecord record_;              ///< As it was written last.
  LaunchPlan plan_;
  const std::string version_;  ///< Of corro.
  Agents agents_;
  Meeting meeting_;
  io::Loop loop_;
  std::optional<Caller> caller_;            ///< None: somebody has typed `corro run`.
  std::vector<std::string> call_;           ///< Its pieces, for hosts that come later.
  std::unique_ptr<ControlSocket> control_;  ///< Null if it cannot be opened.
  JobOutput output_;
  io::Fd signals_;
  UserInput input_{loop_};
  const wire::Secret secret_ = standalone_ != nullptr ? standalone_->secret : wire::random_secret();
  JobCourse course_;
  std::optional<HostWatch> hosts_;  ///< --host-discovery, once ranks run.
  bool suspends_ = false;           ///< Ctrl-Z: it stops once all agents are told.
  bool fences_ = false;             ///< Whoever dials ends, too.
  bool begins_anew_ = false;        ///< A host was lost before the job has begun.
  Time look_at_ = Time::never();
  Time deadline_ = Time::never();  ///< Of hosts that have to answer, or of the last word.
};

int Launcher::run(const sigset_t& heard) {
  Status started = listen(heard);
  if (started.ok() && !plan_.resumed) started = meet();
  if (started.ok()) started = hand_over_call();
  if (started.ok()) {
    start();
  } else {
    on_signals();  // One that has ended the start may not have been heard yet.
    deadline_ = Time::never();
    course_.refuse(started.message());
  }
  while (course_.running() > 0 && course_.refused().empty() && leads()) step();
  const bool is_wanted = !course_.begun() && !course_.asked();  // By others, with other agents.
  if (standalone_ != nullptr && leads() && !is_wanted) end_record(std::nullopt);
  if (!leads() || (begins_anew_ && is_wanted)) return leave();
  fence();
  const int exit = say_last_word(agents_.end());
  if (record_.over) end_record(exit);
  flush_screen();
  return exit;
}

/// Agents end what ranks have left, and themselves. Those that dial are left for a job that has not
/// begun yet, unless the user wants none.
void Launcher::fence() {
  if (standalone_ != nullptr && !record_.over) return;
  fences_ = true;
  agents_.give_up_silent();
  course_.fence();
  carry_out_orders();
  while (!agents_.over() && !course_.impatient() && leads()) step();
}

/// Another coordinator goes on with the job, or this one once more.
int Launcher::leave() {
  standalone_->lead.keep(monotonic_now());
  const std::string& lost = standalone_->lead.lost();
  output_.note(fmt::format("corro: {}\n", lost.empty() ? course_.refused() : lost));
  flush_screen();
  return kLeadLost;
}

// -- before ranks run -----------------------------------------------------------------------------

Status Launcher::listen(const sigset_t& heard) {
  signals_.reset(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
  CORRO_TRY(loop_.watch(signals_.get(), EPOLLIN, [this] { on_signals(); }));
  CORRO_TRY(loop_.watch(output_.room().fd(), EPOLLIN, [this] { (void)output_.room().drain(); }));
  if (auto control = ControlSocket::create(plan_.job.job_id); control.ok()) {
    control_ = std::move(*control);
    CORRO_TRY(loop_.watch(control_->poll_fd(), EPOLLIN, [this] { on_control(); }));
  }
  CORRO_TRY(agents_.listen(
      loop_,
      {.hear = [this](AgentLink& link, const agent::Message& message) { hear(link, message); },
       .lose = [this](const AgentLink& link, const std::string& why) { lose(link, why); },
       .take_over =
           [this](const AgentLink& link, const AgentLink& by, const std::string& why) {
             if (plan_.options.verbose)
               output_.note(
                   fmt::format("corro: {} does not get to {} ({}); it is started from here\n",
                               by.name, link.name, why));
           }}));
  if (standalone_ == nullptr) return {};
  return standalone_->reception.watch(
      loop_, [this](Reception::Dialled dialled) { on_dialled(std::move(dialled)); });
}

/// An agent that has dialled is that of this host.
Status Launcher::attach(size_t host, Reception::Dialled dialled) {
  CORRO_TRY(agents_.attach(host, std::move(dialled.pipe)));
  agents_.tell(host, agent::Lead{.term = standalone_->lead.term()});
  agents_.greet(host, dialled.hello);
  if (fences_) agents_.tell(host, agent::Fence{});
  return {};
}

/// Where other hosts take part: until all is known that their ranks need.
Status Launcher::meet() {
  if (!plan_.sync.empty() && agents_.any_remote())
    meeting_.bring(SyncReader(plan_.sync, plan_.job.error_dir));  // The shells start meanwhile.
  deadline_ = monotonic_now() + kHelloPatience;
  look_at_ = monotonic_now() + kLookPause;
  while (!meeting_.done()) {
    step();
    show_sync();
    if (!leads()) return {Code::kAborted, "somebody else leads"};
    if (course_.asked()) return {Code::kCancelled, "stopped before a rank was started"};
    if (!course_.refused().empty()) return {Code::kUnavailable, course_.refused()};
    CORRO_TRY(meeting_.advance());
    (void)agents_.flush();  // What it says does not wait for the next event.
    const AgentLink* silent = meeting_.silent();
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
  std::string line = meeting_.describe_sync();
  if (line.empty() && is_long) line = meeting_.describe_comparing();
  if (!line.empty()) return output_.set_status(line);
  output_.end_status(fmt::format("corro: --sync {}: all hosts have it", plan_.options.sync));
}

/// What the ranks have to do goes to every host, piece by piece: none keeps another waiting long.
Status Launcher::hand_over_call() {
  while (caller_) {
    CORRO_ASSIGN(std::string piece, caller_->read_call());
    if (piece.empty()) return loop_.watch(caller_->fd(), EPOLLIN, [this] { on_caller(); });
    if (plan_.hosts_come()) call_.push_back(piece);
    agents_.send_all(agent::Call{.bytes = std::move(piece)});
    while (!agents_.flush()) {
      step();
      if (course_.asked()) return {Code::kCancelled, "stopped before a rank was started"};
      if (!course_.refused().empty()) return {Code::kUnavailable, course_.refused()};
    }
  }
  return {};
}

void Launcher::start() {
  if (const std::string lines = announce_plan(plan_); !lines.empty()) output_.note(lines);
  if (plan_.hosts_come()) hosts_.emplace(plan_, agents_, meeting_, std::move(call_));
  if (plan_.resumed) {
    agents_.enter(standalone_->record->epoch);
    for (AgentLink& link : agents_.links()) link.gone = standalone_->record->hosts[link.host].gone;
    course_.resume(*standalone_->record, monotonic_now());
  } else {
    course_.begin(monotonic_now());
  }
  carry_out_orders();
  look_at_ = monotonic_now() + kLookPause;
}

// -- the loop -------------------------------------------------------------------------------------

void Launcher::step() {
  const bool watches_hosts = hosts_ && course_.evolves();
  const bool at_once = meeting_.busy() || input_.is_file();
  Time until = std::min({course_.wake(), look_at_, deadline_, output_.next_tick(),
                         watches_hosts ? hosts_->due() : Time::never()});
  if (standalone_ != nullptr)
    until = std::min({until, standalone_->reception.due(),
                      record_.over ? Time::never() : standalone_->lead.due()});
  loop_.turn(at_once ? Time{} : until);
  keep_lead(monotonic_now());
  if (input_.is_file()) on_input();
  on_timers(monotonic_now());
  if (!leads()) return;
  // While the screen takes nothing the agents get no credit, and read nothing from the ranks.
  if (!output_.full()) agents_.give_credit();
  // The agents know of a stop before it: else they would take the launcher for gone.
  if (agents_.flush() && std::exchange(suspends_, false)) kill(getpid(), SIGSTOP);
}

/// Whoever leads no more does nothing more. A job that is over, nobody else can lead.
void Launcher::keep_lead(Time now) {
  if (standalone_ == nullptr) return;
  standalone_->reception.tick(now);
  if (!record_.over) standalone_->lead.keep(now);
}

void Launcher::remember(JobRecord record) {
  record.hosts.clear();
  for (const AgentLink& link : agents_.links()) {
    const JobHost& host = plan_.job.hosts[link.host];
    record.hosts.push_back({.name = host.name,
                            .slots = host.slots(),
                            .address = host.address,
                            .id = host.id,
                            .gone = link.gone || comes(link)});
  }
  record_ = std::move(record);
  standalone_->lead.write(record_);
}

/// The job is over: nobody goes on with it.
void Launcher::end_record(std::optional<int> status) {
  JobRecord record = record_;
  record.job = plan_.job.job_id;
  record.over = true;
  record.status = status;
  standalone_->lead.write(record);
  if (standalone_->lead.lost().empty()) record_ = std::move(record);
}

void Launcher::on_timers(Time now) {
  if (!leads()) return;
  output_.tick(now);
  if (look_at_ <= now) look(now);
  if (hosts_ && course_.evolves()) hosts_->look(course_, now);
  course_.tick(now);
  carry_out_orders();
}

void Launcher::look(Time now) {
  // Ctrl-Z has stopped the launcher, if it looks late: in that time nobody had to answer.
  const Duration stopped = now - look_at_;
  agents_.excuse_silence(stopped, now);
  if (deadline_ != Time::never()) deadline_ = deadline_ + stopped;
  const bool goes_on = course_.goes_on();
  course_.look(now);
  carry_out_orders();
  agents_.look_for_silence(now);
  input_.look();
  // By these looks other hosts know that the launcher lives, to the end.
  look_at_ = goes_on || agents_.any_remote() ? now + kLookPause : Time::never();
  if (look_at_ != Time::never())
    agents_.send_all(agent::Look{});  // Answered long before the next look.
}

void Launcher::on_input() {
  if (const auto bytes = input_.read()) {
    const agent::Input input{.bytes = *bytes, .ends = bytes->empty()};
    agents_.send(course_.host_of(0), {course_.subject(0), input});
  }
}

void Launcher::on_caller() {
  if (!caller_->gone()) return;
  loop_.forget(caller_->fd());
  course_.on_caller_gone(monotonic_now());
}

/// `corro stacks` asks.
void Launcher::on_control() {
  control_->poll();
  if (control_->asked()) course_.ask_stacks(monotonic_now());
}

void Launcher::on_signals() {
  signalfd_siginfo signal{};
  while (read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
    if (signal.ssi_signo != SIGCHLD) on_signal(static_cast<int>(signal.ssi_signo));
  }
}

/// One that the job knows, and was not there yet; or that of a new host.
void Launcher::on_dialled(Reception::Dialled dialled) {
  if (!leads()) return;
  const std::string name = dialled.hello.host;
  Reception& reception = standalone_->reception;
  if (const Status ours = dialled.check_job(wire::digest_of(plan_.job.job_id)); !ours.ok())
    return reception.refuse(std::move(dialled), ours);
  for (const AgentLink& link : agents_.links()) {
    if (link.name != name || link.gone) continue;
    if (link.greeted)
      return reception.refuse(
          std::move(dialled),
          {Code::kFailedPrecondition, "an agent of host " + name + " is there already"});
    return take(link.host, std::move(dialled));
  }
  const auto host = hosts_ ? hosts_->invite({.name = name, .slots = dialled.hello.slots})
                           : Result<size_t>(Status(Code::kUnavailable, "the job begins just now"));
  if (!host.ok()) return reception.refuse(std::move(dialled), host.status());
  take(*host, std::move(dialled));
}

void Launcher::take(size_t host, Reception::Dialled dialled) {
  if (const Status status = attach(host, std::move(dialled)); !status.ok())
    lose(agents_[host], status.message());
}

void Launcher::on_signal(int signal) {
  // Nobody would go on with the ranks' and the agents' time.
  if (standalone_ != nullptr && signal == SIGTSTP) return;
  if (signal == SIGWINCH) {
    agents_.send_all(
        agent::Resize{.out = terminal_size(STDOUT_FILENO), .err = terminal_size(STDERR_FILENO)});
  }
  course_.on_signal(signal, monotonic_now());
  carry_out_orders();
  suspends_ = signal == SIGTSTP || (suspends_ && signal != SIGCONT);
}

// -- what agents say ------------------------------------------------------------------------------

void Launcher::hear(AgentLink& link, const agent::Message& message) {
  if (!leads()) return;
  if (message.about.rank < 0) return hear_host(link, message);
  const Time now = monotonic_now();
  const auto* output = std::get_if<agent::Output>(&message.body);
  // What is of no rank that runs is dropped, but it had its credit.
  if (output != nullptr) link.uncredited += output->bytes.size();
  const auto place = course_.place_of(link.host, message.about);
  const bool is_new = std::holds_alternative<agent::Started>(message.body);
  if (!place && !is_new) return;
  if (output != nullptr) return output_.take(*place, *output, now);
  if (const auto* end = std::get_if<agent::OutputEnd>(&message.body))
    return output_.take(*place, *end, now);
  if (const auto* credit = std::get_if<agent::Credit>(&message.body))
    return input_.take(credit->bytes);
  course_.hear(link.host, message, now);
  carry_out_orders();
}

/// What an agent says of its host, or has for other hosts.
void Launcher::hear_host(AgentLink& link, const agent::Message& message) {
  if (const auto* hello = std::get_if<agent::Hello>(&message.body)) return greet(link, *hello);
  if (const auto* fenced = std::get_if<agent::Fenced>(&message.body))
    return on_fenced(link, *fenced);
  // What a host has is known before anything is decided about it.
  const bool is_surveyed = std::holds_alternative<agent::Surveyed>(message.body);
  const bool is_alive = std::holds_alternative<agent::Alive>(message.body);
  if (course_.resuming() && is_alive && !link.survey) return;
  if (const Status status = meeting_.hear(link, message); !status.ok())
    comes(link) ? refuse_host(link, status.message()) : course_.refuse(status.message());
  if (std::holds_alternative<agent::Lacking>(message.body) && !meeting_.done())
    deadline_ = monotonic_now() + kHelloPatience;
  if (const auto* refused = std::get_if<agent::Refused>(&message.body))
    refuse_host(link, refused->why);
  if (const auto* trouble = std::get_if<agent::Trouble>(&message.body))
    output_.note(fmt::format("corro: {}\n", trouble->text));
  if (course_.resuming() && is_surveyed) return on_survey(link);
  course_.hear_host(link.host, message, monotonic_now());
  carry_out_orders();
}

/// Of a host whose ranks run, and have said all there is before.
void Launcher::on_survey(AgentLink& link) {
  if (const Status status = meeting_.take_survey(link); !status.ok())
    output_.note(fmt::format("corro: host {}: {}\n", link.name, status.message()));
  course_.hear_host(link.host, {{}, agent::Alive{}}, monotonic_now());
  carry_out_orders();
}

void Launcher::greet(AgentLink& link, const agent::Hello& hello) {
  const bool fits = hello.version == agent::kMessagesVersion && hello.corro == version_;
  if (!comes(link)) plan_.resumed ? meeting_.welcome(link) : meeting_.greet(link);
  course_.hear_host(link.host, {{}, hello}, monotonic_now());
  if (comes(link) && fits) hosts_->greet(link);
  if (fits) return;
  const std::string why =
      fmt::format("has corro {}, this one {}; install the same on both", hello.corro, version_);
  comes(link) ? hosts_->refuse(link.host, why, monotonic_now())
              : course_.refuse(fmt::format("host {} {}", link.name, why));
}

void Launcher::on_fenced(AgentLink& link, const agent::Fenced& fenced) {
  link.fenced = true;
  if (fenced.left)
    output_.note("corro: some processes of this job cannot be killed; the kernel holds them\n");
}

void Launcher::refuse_host(const AgentLink& link, const std::string& why) {
  comes(link) ? hosts_->refuse(link.host, why, monotonic_now())
              : course_.refuse(fmt::format("host {}: {}", link.name, why));
}

void Launcher::lose(const AgentLink& link, const std::string& why) {
  if (!leads()) return;
  begins_anew_ = standalone_ != nullptr && !course_.begun();
  if (comes(link)) return hosts_->refuse(link.host, why, monotonic_now());
  course_.lose_host(link.host, why, monotonic_now());
  carry_out_orders();
}

// -- what the course orders -----------------------------------------------------------------------

void Launcher::carry_out_orders() {
  for (std::vector<JobOrder> orders = course_.take_orders(); !orders.empty();
       orders = course_.take_orders()) {
    agents_.enter(course_.epoch());
    for (const JobOrder& order : orders) {
      if (!leads()) return;
      std::visit([this](const auto& what) { carry_out(what); }, order);
    }
  }
}

void Launcher::carry_out(const TellAll& order) {
  order.from ? agents_.pass_on(*order.from, order.message) : agents_.send_all(order.message);
}

void Launcher::carry_out(const StartRank& order) {
  agent::Start start = order.joins ? joiner_start_of(plan_, order.seat, secret_)
                                   : start_of(plan_, order.seat, secret_);
  if (course_.elastic()) start.environment["CORRO_MEMBER_UUID"] = wire::to_hex(order.about.member);
  if (start.input == agent::StandardInput::kSent) input_.start([this] { on_input(); });
  agents_.send(order.seat.host, {order.about, std::move(start)});
}

// -- the end --------------------------------------------------------------------------------------

int Launcher::say_last_word(std::optional<int> killed) {
  if (!course_.refused().empty())
    return say_refused(plan_, course_.refused(), course_.asked(), output_);
  if (killed) return say_killed(*killed, output_);
  const Time now = monotonic_now();
  JobCourse::Result result = course_.result(now);
  carry_out_orders();
  return say_result(plan_, std::move(result), course_.ranks(), now - started_, output_);
}

void Launcher::flush_screen() {
  const Time until = monotonic_now() + kLastWord;
  const bool is_patient = !course_.impatient() && leads();
  while (!output_.empty() && (is_patient || monotonic_now() < until)) {
    deadline_ = is_patient ? Time::never() : until;
    step();
  }
  if (!output_.empty()) output_.abandon();  // its thread may hang in write() for ever
}

}  // namespace

int run_job(const LaunchPlan& plan, const std::string& version, Standalone* standalone) {
  const auto fail = [&](const Status& status) { return refuse_job(plan.options, status); };
  std::optional<Caller> caller;
  if (plan.options.call >= 0) {
    auto taken = Caller::create(plan.options.call);
    if (!taken.ok()) return fail(taken.status());
    caller = std::move(*taken);
  }
  const JobSignals signals = block_signals();
  LaunchPlan settled = plan;
  settled.mask = signals.before;
  auto files = JobOutput::open_files(plan);
  if (!files.ok()) return fail(files.status());
  auto agents = Agents::create(plan.job.hosts, {.job = wire::digest_of(plan.job.job_id),
                                                .shell = agent::remote_shell(plan.options.rsh),
                                                .corro = plan.corro,
                                                .version = version,
                                                .fan_out = plan.options.fan_out,
                                                .mask = signals.before,
                                                .dialled = plan.dialled});
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
  Launcher launcher(std::move(settled), std::move(*agents), std::move(*files), std::move(*writer),
                    std::move(*loop), std::move(caller), policy, version, standalone);
  return launcher.run(signals.heard);
}

}  // namespace corro::launch
