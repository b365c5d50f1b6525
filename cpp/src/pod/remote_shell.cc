#include "pod/remote_shell.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>

#include "agent/silence.h"
#include "io/loop.h"
#include "io/random.h"
#include "io/signals.h"
#include "launch/job_signals.h"
#include "launch/user_input.h"
#include "pod/child.h"
#include "pod/head_link.h"
#include "screen/screen_writer.h"
#include "wire/secret.h"

namespace corro::pod {
namespace {

constexpr Duration kNewsAfter = std::chrono::seconds(10);  ///< So long it waits without a word.
/// So often the head may refuse the key: one that knows a later part of the Secret comes.
constexpr Duration kKeyPatience = std::chrono::seconds(10);

/// Loop-confined.
class RemoteShell {
 public:
  RemoteShell(const PodSettings& settings, const SshRequest& request, HeadLink::Options link,
              io::Loop loop, std::unique_ptr<screen::ScreenWriter> writer, const sigset_t& heard)
      : settings_(settings),
        request_(request),
        loop_(std::move(loop)),
        link_(std::move(link), loop_),
        writer_(std::move(writer)),
        input_(loop_),
        signals_(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK)),
        about_{.job = wire::digest_of(settings.identity.job_uid), .rank = 0, .incarnation = 1} {
    io::fill_random(about_.member);
  }

  int run();

 private:
  enum class State : uint8_t { kWaiting, kRunning, kDraining, kOver };

  void step();
  void on_timers(Time now);
  void on_input();
  void on_signals();
  void begin();
  void hear(const agent::Message& message);
  void on_end(const agent::Ended& ended);
  void let_go();
  void fail(const std::string& why);
  void give_credit();
  void tell(agent::MessageBody body) { link_.send({about_, std::move(body)}); }

  const PodSettings& settings_;
  const SshRequest& request_;
  io::Loop loop_;
  HeadLink link_;
  std::unique_ptr<screen::ScreenWriter> writer_;
  launch::UserInput input_;
  io::Fd signals_;
  agent::Subject about_;  ///< The command.
  State state_ = State::kWaiting;
  Time look_at_ = monotonic_now();
  const Time begun_ = monotonic_now();
  bool said_news_ = false;
  bool was_stopped_ = false;  ///< A signal has asked for the end.
  std::set<io::Output> open_ = {io::Output::kOut, io::Output::kErr};
  uint64_t uncredited_ = 0;
  int status_ = kShellFailure;
};

int RemoteShell::run() {
  (void)loop_.watch(signals_.get(), EPOLLIN, [this] { on_signals(); });
  (void)loop_.watch(writer_->room().fd(), EPOLLIN, [this] { (void)writer_->room().drain(); });
  while (state_ != State::kOver) step();
  // Whoever reads the output may have gone, or may be slow: then this waits as ssh would.
  while (!writer_->empty()) step();
  return status_;
}

void RemoteShell::step() {
  const Time now = monotonic_now();
  if (state_ != State::kOver) on_timers(now);
  Time wake = state_ == State::kOver ? Time::never() : std::min(link_.next_timer(), look_at_);
  if (input_.is_file()) wake = now;
  loop_.turn(wake);
  if (input_.is_file()) on_input();
  while (state_ != State::kOver) {
    const auto message = link_.take();
    if (!message) break;
    hear(*message);
  }
  give_credit();
}

void RemoteShell::on_timers(Time now) {
  const bool was_there = link_.is_there();
  // One that is lost is dialled again only before it has joined anything.
  if (state_ == State::kWaiting || was_there) link_.tick(now);
  if (state_ != State::kWaiting && !link_.is_there())
    return fail(
        fmt::format("the connection to {} was lost: {}", request_.host, link_.why().message()));
  const bool is_refused = link_.why().code() == Code::kUnauthenticated && !link_.is_there();
  if (is_refused && now >= begun_ + kKeyPatience) return fail(link_.why().message());
  if (now < look_at_) return;
  look_at_ = now + kLookPause;
  link_.send(agent::Look{});
  input_.look();
  if (state_ != State::kWaiting || said_news_ || now < begun_ + kNewsAfter) return;
  said_news_ = true;
  const std::string why = link_.is_there()
                              ? "its agent is not there yet"
                              : "the head of this job does not answer: " + link_.why().message();
  fmt::print(stderr, "corro rsh: waiting for {}: {}\n", request_.host, why);
}

void RemoteShell::on_input() {
  if (const auto bytes = input_.read()) tell(agent::Input{.bytes = *bytes, .ends = bytes->empty()});
}

void RemoteShell::on_signals() {
  signalfd_siginfo said{};
  while (read(signals_.get(), &said, sizeof(said)) == sizeof(said)) {
    const int number = static_cast<int>(said.ssi_signo);
    if (number == SIGCHLD || number == SIGWINCH) continue;
    was_stopped_ = was_stopped_ || io::asks_to_stop(number);
    if (state_ == State::kRunning) tell(agent::Signal{.number = number});
    if (state_ == State::kRunning || !io::asks_to_stop(number)) continue;
    constexpr int kSignalExit = 128;
    status_ = kSignalExit + number;
    state_ = State::kOver;
  }
}

/// The agent is there.
void RemoteShell::begin() {
  state_ = State::kRunning;
  Variables handed_on;
  if (const char* run = getenv(kRunVariable)) handed_on[kRunVariable] = run;
  tell(agent::Start{
      .job = settings_.identity.job_uid,
      .agent = "corro-rsh-" + wire::to_hex(about_.member),
      .secret = wire::random_secret(),
      .program = "/bin/sh",
      .arguments = {"sh", "-c", request_.command},
      .environment = std::move(handed_on),
      .adds_environment = true,
      .input = request_.no_input ? agent::StandardInput::kNone : agent::StandardInput::kSent});
  if (!request_.no_input) input_.start([this] { on_input(); });
}

void RemoteShell::hear(const agent::Message& message) {
  const agent::MessageBody& body = message.body;
  if (std::holds_alternative<agent::Ready>(body) && state_ == State::kWaiting) return begin();
  if (const auto* output = std::get_if<agent::Output>(&body)) {
    uncredited_ += output->bytes.size();
    writer_->write(output->stream == io::Output::kOut ? STDOUT_FILENO : STDERR_FILENO,
                   output->bytes);
  } else if (const auto* refused = std::get_if<agent::Refused>(&body)) {
    fail(refused->why);
  } else if (const auto* credit = std::get_if<agent::Credit>(&body)) {
    input_.take(credit->bytes);
  } else if (const auto* ended = std::get_if<agent::Ended>(&body)) {
    on_end(*ended);
  } else if (const auto* end = std::get_if<agent::OutputEnd>(&body)) {
    open_.erase(end->stream);
    let_go();
  } else if (std::holds_alternative<agent::Fenced>(body)) {
    state_ = State::kOver;
  }
}

void RemoteShell::on_end(const agent::Ended& ended) {
  status_ = shell_status(ended.end.status);
  if (state_ != State::kRunning) return;
  state_ = State::kDraining;
  // What a signal was to end is not waited for.
  if (was_stopped_) open_.clear();
  let_go();
}

/// As ssh, it waits for all who have the command's output, and leaves running who has closed it.
void RemoteShell::let_go() {
  if (state_ != State::kDraining || !open_.empty()) return;
  if (was_stopped_) {
    link_.send(agent::Fence{.grace = Duration::zero()});
  } else {
    link_.send(agent::Release{});
  }
}

/// While the reader of the output is slow the agent gets no credit, and reads nothing.
void RemoteShell::give_credit() {
  if (uncredited_ == 0 || writer_->full()) return;
  link_.send(agent::Credit{.bytes = std::exchange(uncredited_, 0)});
}

void RemoteShell::fail(const std::string& why) {
  writer_->write(STDERR_FILENO, fmt::format("corro rsh: {}: {}\n", request_.host, why));
  status_ = kShellFailure;
  state_ = State::kOver;
}

}  // namespace

int run_remote_shell(const PodSettings& settings, const SshRequest& request) {
  const auto refuse = [](const Status& status) {
    fmt::print(stderr, "corro rsh: {}\n", status.message());
    return kShellFailure;
  };
  auto link = HeadLink::options_of(settings, agent::Reach{.host = request.host});
  if (!link.ok()) return refuse(link.status());
  const launch::JobSignals signals = launch::block_signals();
  auto loop = io::Loop::create();
  if (!loop.ok()) return refuse(loop.status());
  auto writer = screen::ScreenWriter::create();
  if (!writer.ok()) return refuse(writer.status());
  RemoteShell shell(settings, request, std::move(*link), std::move(*loop), std::move(*writer),
                    signals.heard);
  return shell.run();
}

}  // namespace corro::pod
