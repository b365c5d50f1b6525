#include "launch/supervisor.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>

#include "agent/event_keys.h"
#include "agent/out_of_memory.h"
#include "agent/processes.h"
#include "agent/rank_group.h"
#include "diagnosis/conclusion.h"
#include "diagnosis/error_file.h"
#include "diagnosis/exit_status.h"
#include "io/event.h"
#include "io/signals.h"
#include "launch/hint.h"
#include "launch/log_files.h"
#include "launch/worker_spec.h"
#include "screen/screen.h"
#include "screen/screen_writer.h"
#include "wire/agent_service.h"

namespace corro::launch {
namespace {

constexpr int kFrontGoneExit = diagnosis::kSignalExit + SIGKILL;  // Nobody is left to read it.

using std::chrono::milliseconds;
using std::chrono::seconds;

/// From a failure to the end of every rank there is one second. These fit into it.
/// Ranks that fail in the same way, and one that others say is lost, end by themselves first.
constexpr Duration kFailureGrace = milliseconds(200);
/// One that others saw leaving may need longer, and knows the job's exit status.
constexpr Duration kLeavingGrace = milliseconds(400);
constexpr Duration kStopGrace = milliseconds(500);    ///< From TERM to KILL.
constexpr Duration kOrphanGrace = milliseconds(500);  ///< For what a finished rank left running.
constexpr Duration kDrainGrace = milliseconds(300);   ///< For output that is still on its way.
constexpr Duration kKillPatience = seconds(2);
constexpr Duration kInterruptPatience = seconds(1);  ///< Until Ctrl-C needs an explanation.

/// The supervisor's loop and state. Loop-confined.
class Supervisor {
 public:
  Supervisor(const LaunchPlan& plan, const FrontLink& link, LogFiles logs, io::Epoll epoll,
             std::unique_ptr<screen::ScreenWriter> writer)
      : plan_(plan),
        link_(link),
        logs_(std::move(logs)),
        epoll_(std::move(epoll)),
        writer_(std::move(writer)),
        screen_(screen_options(plan),
                [this](io::Output stream, std::string bytes) {
                  writer_->write(stream == io::Output::kOut ? STDOUT_FILENO : STDERR_FILENO,
                                 std::move(bytes));
                }),
        ranks_(plan.job.ranks, link.signal_mask, epoll_) {}

  [[nodiscard]] int run() {
    if (const Status started = start(); !started.ok()) {
      agent::kill_descendants(kKillPatience);
      screen_.note(fmt::format("corro run: {}\n", started.message()));
      flush_screen();
      return diagnosis::kUsageExit;
    }
    while (ranks_.any_running() && !front_gone_) step(Time::never());
    end_processes();
    if (front_gone_) return kFrontGoneExit;
    drain();
    return finish();
  }

 private:
  static screen::Screen::Options screen_options(const LaunchPlan& plan) {
    const bool err = isatty(STDERR_FILENO) != 0;
    const bool out = isatty(STDOUT_FILENO) != 0;
    return {.show = plan.options.show,
            .ranks = plan.job.ranks,
            .out_is_terminal = out,
            .err_is_terminal = err,
            .colour = out && err && value_of(plan.base, "NO_COLOR").empty()};
  }

  // Starting.
  Status start();
  Status start_agent();

  // The loop.
  void step(Time until);
  void dispatch(const epoll_event& event);
  [[nodiscard]] Time next_timer() const;
  void on_timers(Time now);
  void remind();
  void on_signals();
  void on_signal(int signal);
  void on_children();
  void reap();
  void tell_departures();
  void on_rank_end(agent::RankProcess& rank, int status);
  [[nodiscard]] bool is_leaving(const diagnosis::RankEnd& witness);
  void ask_missing(const diagnosis::RankEnd& end);
  void on_output(agent::RankProcess& rank, io::Output stream);
  void pause_or_resume();

  // The end.
  void stop_ranks(Time now);
  void end_processes();
  void drain();
  [[nodiscard]] int finish();
  void save_failure(const diagnosis::FailureReport& report);
  void flush_screen();

  const LaunchPlan& plan_;
  const FrontLink& link_;
  LogFiles logs_;
  io::Epoll epoll_;
  std::unique_ptr<screen::ScreenWriter> writer_;
  screen::Screen screen_;
  agent::OutOfMemoryWatch out_of_memory_;
  io::Fd children_;
  std::unique_ptr<wire::AgentService> agent_;
  agent::RankGroup ranks_;
  std::array<char, 64U << 10U> buffer_{};

  Time started_ = monotonic_now();
  Time stop_at_ = Time::never();  ///< A rank has failed; others may be on their way out.
  Time kill_at_ = Time::never();
  Time timeout_at_ = Time::never();
  Time remind_at_ = Time::never();  ///< The ranks were asked to stop by Ctrl-C a while ago.
  bool stopping_ = false;           ///< TERM was sent to whoever still ran.
  bool paused_ = false;             ///< The screen is full: nothing is read from the ranks.
  bool front_gone_ = false;
  bool impatient_ = false;  ///< The user wants out now: no more waiting for the screen.
  int interrupts_ = 0;
  std::optional<int> asked_;
  std::vector<int> departed_;  ///< Ended with status 0; the agent does not know yet.
  std::vector<diagnosis::RankEnd> at_timeout_;  ///< As the ranks were when --timeout was over.
};

Status Supervisor::start() {
  CORRO_TRY(start_agent());
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  children_.reset(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  CORRO_TRY(epoll_.add(children_.get(), EPOLLIN, agent::key_of(agent::Source::kChildren)));
  CORRO_TRY(epoll_.add(link_.signals, EPOLLIN, agent::key_of(agent::Source::kSignals)));
  CORRO_TRY(epoll_.add(writer_->room().fd(), EPOLLIN, agent::key_of(agent::Source::kRoom)));
  if (const std::string lines = announce_plan(plan_); !lines.empty()) screen_.note(lines);
  for (int rank = 0; rank < plan_.job.ranks; ++rank) {
    CORRO_TRY(ranks_.start_next(worker_spec(plan_, rank)));
    if (!plan_.options.verbose) continue;
    const pid_t pid = ranks_[static_cast<size_t>(rank)].pid();
    screen_.note(fmt::format("corro: rank {} has pid {}\n", rank, pid));
  }
  if (plan_.options.timeout) timeout_at_ = monotonic_now() + *plan_.options.timeout;
  return {};
}

Status Supervisor::start_agent() {
  wire::AgentService::Options options;
  options.job = plan_.job.job_id;
  options.secret = wire::random_secret();
  options.size = plan_.job.ranks;
  options.name = plan_.job.agent;
  options.on_hello = [this](wire::WorkerHello hello) {
    const auto rank = static_cast<size_t>(hello.rank);
    if (rank < ranks_.size() && !hello.descriptors.empty()) {
      ranks_[rank].set_flight(std::move(hello.descriptors[0]));
    }
  };
  CORRO_ASSIGN(agent_, wire::AgentService::create(std::move(options)));
  return epoll_.add(agent_->poll_fd(), EPOLLIN, agent::key_of(agent::Source::kAgent));
}

void Supervisor::step(Time until) {
  std::array<epoll_event, 64> events{};
  const Time wake = std::min(until, next_timer());
  Duration wait = Duration(-1);
  if (wake != Time::never()) wait = std::max(wake - monotonic_now(), Duration::zero());
  const auto ready = epoll_.wait(events, wait);
  const size_t count = ready.ok() ? *ready : 0;
  for (size_t i = 0; i < count; ++i) dispatch(events[i]);
  on_timers(monotonic_now());
  pause_or_resume();
}

void Supervisor::dispatch(const epoll_event& event) {
  const auto rank = static_cast<size_t>(agent::rank_of(event.data.u64));
  switch (agent::source_of(event.data.u64)) {
    case agent::Source::kSignals:
      return on_signals();
    case agent::Source::kChildren:
      return on_children();
    case agent::Source::kAgent:
      if (const Status status = agent_->poll(); !status.ok()) {
        screen_.note(fmt::format("corro: the agent has to stop: {}\n", status.message()));
        epoll_.remove(agent_->poll_fd());
      }
      return;
    case agent::Source::kRoom:
      (void)writer_->room().drain();
      return;
    case agent::Source::kOut:
      return on_output(ranks_[rank], io::Output::kOut);
    case agent::Source::kErr:
      return on_output(ranks_[rank], io::Output::kErr);
  }
}

Time Supervisor::next_timer() const {
  return std::min({stop_at_, kill_at_, timeout_at_, remind_at_, screen_.next_tick()});
}

void Supervisor::on_timers(Time now) {
  screen_.tick(now);
  if (timeout_at_ <= now) {
    timeout_at_ = Time::never();
    if (!stopping_) {
      at_timeout_ = ranks_.describe();
      stop_ranks(now);
    }
  }
  if (remind_at_ <= now) remind();
  if (stop_at_ <= now) stop_ranks(now);
  if (kill_at_ <= now) {
    kill_at_ = Time::never();
    ranks_.send(SIGKILL);
  }
}

void Supervisor::remind() {
  remind_at_ = Time::never();
  if (stopping_ || !ranks_.any_running() || plan_.options.quiet) return;
  screen_.note("corro: waiting for the ranks to end; Ctrl-C once more stops them\n");
}

void Supervisor::on_signals() {
  std::array<uint8_t, 64> signals{};
  const ssize_t count = read(link_.signals, signals.data(), signals.size());
  if (count == 0) {
    front_gone_ = true;
    epoll_.remove(link_.signals);
  }
  for (ssize_t i = 0; i < count; ++i) on_signal(signals[static_cast<size_t>(i)]);
}

void Supervisor::on_signal(int signal) {
  if (signal == SIGWINCH) ranks_.resize_terminals();
  if (io::asks_to_stop(signal) && !asked_) asked_ = signal;
  if (signal != SIGINT || ++interrupts_ == 1) {
    if (signal == SIGINT) remind_at_ = monotonic_now() + kInterruptPatience;
    impatient_ = impatient_ || (io::asks_to_stop(signal) && !ranks_.any_running());
    return ranks_.send(signal);
  }
  if (interrupts_ == 2) return stop_ranks(monotonic_now());
  impatient_ = true;
  ranks_.send(SIGKILL);
}

void Supervisor::on_children() {
  signalfd_siginfo ignored{};
  while (read(children_.get(), &ignored, sizeof(ignored)) > 0) {
  }
  reap();
  tell_departures();
}

/// A rank that ended in good order does not join any more, unless a process that it left behind
/// does so for it.
void Supervisor::tell_departures() {
  std::erase_if(departed_, [this](int rank) { return agent_->greeted(rank); });
  if (departed_.empty()) return;
  const auto is_orphan = [this](pid_t child) { return ranks_.find(child) == nullptr; };
  if (std::ranges::any_of(agent::children_of(getpid()), is_orphan)) return;
  for (const int rank : departed_) agent_->end_rank(rank);
  departed_.clear();
}

void Supervisor::reap() {
  while (true) {
    siginfo_t ended{};
    // Looked at first: the cgroup of a process can be read until it is reaped.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) return;
    agent::RankProcess* rank = ranks_.find(ended.si_pid);
    if (rank != nullptr && ended.si_code == CLD_KILLED && ended.si_status == SIGKILL &&
        !stopping_ && interrupts_ < 3) {
      if (auto limit = out_of_memory_.explain(ended.si_pid)) rank->set_out_of_memory(*limit);
    }
    int status = 0;
    if (waitpid(ended.si_pid, &status, WNOHANG) == ended.si_pid && rank != nullptr) {
      on_rank_end(*rank, status);
    }
  }
}

void Supervisor::on_rank_end(agent::RankProcess& rank, int status) {
  const Time now = monotonic_now();
  rank.set_ended(status, stopping_, now);
  // What it wrote before its end is in the pipes; what its children still write comes later.
  for (const io::Output stream : {io::Output::kErr, io::Output::kOut}) {
    constexpr int kPipeReads = 32;
    for (int i = 0; i < kPipeReads && rank.fd(stream) >= 0; ++i) on_output(rank, stream);
  }
  const diagnosis::RankEnd end = rank.describe();
  // Who waits for one that has failed is stopped.
  if (diagnosis::ended_well(end)) departed_.push_back(rank.rank());
  if (!stopping_ && !asked_ && !diagnosis::ended_well(end)) {
    ask_missing(end);
    stop_at_ = std::min(stop_at_, now + (is_leaving(end) ? kLeavingGrace : kFailureGrace));
    screen_.suspend_errors();
  } else if (asked_ && !stopping_ && diagnosis::gave_up(end)) {
    // Whom it has waited for in vain was asked to stop, too, and does not.
    stop_at_ = std::min(stop_at_, now + kFailureGrace);
  }
}

/// Whether the witness saw a rank leave that has not ended yet.
bool Supervisor::is_leaving(const diagnosis::RankEnd& witness) {
  const int left = diagnosis::saw_it_leave(witness) ? diagnosis::named_by(witness) : -1;
  return left >= 0 && static_cast<size_t>(left) < ranks_.size() &&
         ranks_[static_cast<size_t>(left)].running();
}

/// The rank that another one has waited for has until the end of the grace to say where it is.
void Supervisor::ask_missing(const diagnosis::RankEnd& end) {
  const int missing = diagnosis::gave_up(end) ? diagnosis::awaited_by(end) : -1;
  if (missing >= 0 && static_cast<size_t>(missing) < ranks_.size()) {
    ranks_[static_cast<size_t>(missing)].ask();
  }
}

void Supervisor::on_output(agent::RankProcess& rank, io::Output stream) {
  const int fd = rank.fd(stream);
  if (fd < 0) return;
  const std::string_view bytes = rank.read(stream, buffer_);
  const Time now = monotonic_now();
  if (rank.fd(stream) < 0) {
    // Closed: epoll has forgotten the descriptor.
    return screen_.finish(rank.rank(), stream, now);
  }
  if (bytes.empty()) return;
  if (const Status status = logs_.append(rank.rank(), bytes); !status.ok()) {
    screen_.note(
        fmt::format("corro: the logs are incomplete from here on: {}\n", status.message()));
  }
  screen_.feed(rank.rank(), stream, bytes, now);
}

void Supervisor::pause_or_resume() {
  if (writer_->full() == paused_) return;
  paused_ = !paused_;
  if (paused_) return ranks_.pause();
  if (const Status status = ranks_.resume(); !status.ok()) {
    screen_.note(fmt::format("corro: {}\n", status.message()));
  }
}

void Supervisor::stop_ranks(Time now) {
  stop_at_ = Time::never();
  if (std::exchange(stopping_, true)) return;
  kill_at_ = now + kStopGrace;
  ranks_.send(SIGTERM);
}

void Supervisor::end_processes() {
  const bool patient = !stopping_ && !front_gone_ && interrupts_ < 2;
  const Time end = monotonic_now() + kOrphanGrace;
  while (patient && monotonic_now() < end && !agent::descendants_of(getpid()).empty()) {
    step(monotonic_now() + milliseconds(10));
  }
  if (!agent::kill_descendants(kKillPatience)) {
    screen_.note("corro: some processes of this job cannot be killed; the kernel holds them\n");
  }
}

void Supervisor::drain() {
  const Time end = monotonic_now() + kDrainGrace;
  while (ranks_.any_output() && !front_gone_ && !impatient_ && (paused_ || monotonic_now() < end)) {
    step(paused_ ? Time::never() : end);
  }
}

int Supervisor::finish() {
  std::vector<diagnosis::RankEnd> ends = ranks_.describe();
  diagnosis::read_error_files(ends, logs_.directory());
  const bool timed_out = !at_timeout_.empty();
  const auto terminal = agent::terminal_size(STDERR_FILENO);
  constexpr size_t kWidth = 160;
  const diagnosis::JobEnd job{
      .ranks = timed_out ? at_timeout_ : ends,
      .asked = asked_,
      .timeout = timed_out ? plan_.options.timeout : std::nullopt,
      .width = terminal && terminal->ws_col > 40 ? terminal->ws_col : kWidth};
  const diagnosis::Conclusion end = diagnosis::conclude(
      job, {.host = plan_.machine.host,
            .log_dir = logs_.directory(),
            .now = monotonic_now(),
            .hint = [this](const diagnosis::Crash& crash) { return hint_about(plan_, crash); }});
  screen_.settle(end.failure ? end.failure->rank : -1);
  screen_.flush(monotonic_now());
  if (end.failure) save_failure(*end.failure);
  if (plan_.options.verbose) {
    const double took = std::chrono::duration<double>(monotonic_now() - started_).count();
    screen_.note(fmt::format("corro: {} ranks ended after {:.2f} s, status {}\n", ends.size(), took,
                             end.exit));
  }
  if (!end.text.empty()) screen_.note(end.text);
  flush_screen();
  return end.exit;
}

void Supervisor::save_failure(const diagnosis::FailureReport& report) {
  if (const Status status = logs_.write_file("failure.json", diagnosis::format_json(report));
      !status.ok()) {
    screen_.note(fmt::format("corro: {}\n", status.message()));
  }
  diagnosis::write_error_file(value_of(plan_.base, "TORCHELASTIC_ERROR_FILE"), report);
}

void Supervisor::flush_screen() {
  while (!writer_->empty() && !front_gone_ && !impatient_) step(Time::never());
  if (!writer_->empty()) (void)writer_.release();  // its thread may hang in write() for ever
}

}  // namespace

int supervise(const LaunchPlan& plan, const FrontLink& link) {
  const auto fail = [](const Status& status) {
    const std::string line = "corro run: " + status.message() + "\n";
    (void)!write(STDERR_FILENO, line.data(), line.size());
    return diagnosis::kUsageExit;
  };
  auto logs = LogFiles::create(plan.job.log_dir, plan.job.ranks);
  if (!logs.ok()) return fail(logs.status());
  auto epoll = io::Epoll::create();
  if (!epoll.ok()) return fail(epoll.status());
  auto writer = screen::ScreenWriter::create();
  if (!writer.ok()) return fail(writer.status());
  Supervisor supervisor(plan, link, std::move(logs).value(), std::move(epoll).value(),
                        std::move(writer).value());
  return supervisor.run();
}

}  // namespace corro::launch
