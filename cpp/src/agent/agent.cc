#include "agent/agent.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>

#include "agent/agent_course.h"
#include "agent/branches.h"
#include "agent/commander.h"
#include "agent/out_of_memory.h"
#include "agent/processes.h"
#include "agent/rank_group.h"
#include "agent/stack_dump.h"
#include "agent/surveyor.h"
#include "agent/sync_target.h"
#include "io/interfaces.h"
#include "io/loop.h"
#include "io/process.h"
#include "wire/agent_service.h"

namespace corro::agent {
namespace {

constexpr Duration kDumpPause = std::chrono::milliseconds(5);  ///< Between looks at stack dumps.
constexpr int kTryLater = 75;                                  ///< EX_TEMPFAIL of sysexits.h.
constexpr int kPipeReads = 32;                                 ///< More than a pipe holds.

Variables environment_of(const Start& start) {
  if (!start.adds_environment) return start.environment;
  Variables all = read_variables();
  for (const auto& [name, value] : start.environment) all[name] = value;
  return all;
}

/// Loop-confined.
class Agent {
 public:
  /// `guard` ends with the process that guards this one; none: the commander is on this host.
  Agent(Commander commander, const sigset_t& worker_mask, io::Loop loop, io::Fd guard)
      : commander_(std::move(commander)),
        loop_(std::move(loop)),
        course_(commander_.dialling() ? commander_.dialling()->host : io::host_name(),
                guard.valid(), monotonic_now()),
        ranks_(worker_mask, loop_,
               [this](size_t rank, io::Output stream) { on_readable(rank, stream); }),
        branches_(worker_mask, loop_, [this](MessageBody body) { say(std::move(body)); }),
        sync_([this](MessageBody body) { say(std::move(body)); }),
        surveyor_(loop_, [this](MessageBody body) { say(std::move(body)); }),
        dumps_(worker_mask),
        guard_(std::move(guard)) {}

  int run(const std::string& version) {
    if (const Status status = open(version); !status.ok()) say(Trouble{status.message()});
    while (monotonic_now() < gives_up_at()) {
      step();
      const bool is_over = course_.state() == AgentCourse::State::kFenced;
      if (is_over && !commander_.unsent() && branches_.empty()) return 0;
    }
    const bool gives_up = commander_.dialling() && !unguarded_;
    if (gives_up) commander_.give_up();
    (void)kill_descendants(kKillPatience);
    return gives_up ? kTryLater : 0;
  }

 private:
  Status open(const std::string& version);
  [[nodiscard]] Time gives_up_at() const;
  [[nodiscard]] Hello hello() const;
  void find_commander(Time now);
  void step();
  [[nodiscard]] Time next_timer() const;
  void go_on(Time now);

  // What the commander says.
  void on_commander();
  void hear_some();
  void hear(const Message& message);
  void on_refused(const Refused& refused);
  void follow(const Subject& about, const Lead& lead);
  void on(const Subject& about, const Start& start);
  void on(const Subject& about, const Ask& ask);
  void on(const Subject& about, const Input& input);
  void on(const Subject& about, const Credit& credit);
  void on(const Subject& about, const Resize& sizes) {
    (void)about, ranks_.resize_terminals(sizes);
  }
  void on(const Subject& about, const Call& call);
  void on(const Subject& about, const Stacks& stacks);
  void on(const Subject& about, const Sync& sync) { (void)about, sync_.hear(sync); }
  void on(const Subject& about, const Part& part) { (void)about, sync_.hear(part); }
  void on(const Subject& about, const Grow& grow) { (void)about, branches_.grow(grow); }
  void on(const Subject& about, const Forward& forward) { (void)about, branches_.forward(forward); }
  /// What is the course's or the surveyor's, or what only agents say.
  void on(const Subject& /*about*/, const auto& /*other*/) {}
  void say(MessageBody body) { commander_.send({course_.here(), std::move(body)}); }
  void say(size_t rank, MessageBody body) {
    commander_.send({course_.about(rank), std::move(body)});
  }

  // What the course orders.
  void carry_out_orders();
  void carry_out(const Say& order) { commander_.send(order.message); }
  void carry_out(const Report& order);
  void carry_out(const SendSignal& order) {
    order.rank ? ranks_[*order.rank].send(order.number) : ranks_.send(order.number);
  }
  void carry_out(const KillRank& order) { ranks_[order.rank].kill_all(); }
  void carry_out(const KillRest& order) {
    for (const pid_t pid : order.processes) kill(pid, SIGKILL);
  }
  void carry_out(const PrepareWorker& order) {
    service_->prepare(member_of(order.rank), order.epoch, order.how.at_once, order.how.why);
  }
  void carry_out(const StartEpoch& order) {
    if (service_ != nullptr) service_->start_epoch(order.size);
  }
  void carry_out(const CommitWorker& order) {
    service_->commit(member_of(order.rank), order.epoch, order.number, order.last);
  }
  void carry_out(const Supply& order) { service_->supply(order.record.key, order.record.value); }
  void carry_out(const EndRank& order) {
    if (service_ != nullptr) service_->end_rank(order.number, order.host);
  }
  [[nodiscard]] std::string member_of(size_t rank) const {
    return wire::to_hex(course_.about(rank).member);
  }

  [[nodiscard]] std::vector<size_t> ranks_of(const std::string& member) const {
    std::vector<size_t> ranks;
    for (size_t rank = 0; rank < course_.size(); ++rank)
      if (member_of(rank) == member) ranks.push_back(rank);
    return ranks;
  }

  // What ranks do.
  Status open_service(const Start& start);
  void on_workers();
  void on_children();
  void on_rank_end(size_t rank, int status);
  void tell_departures();
  void on_readable(size_t rank, io::Output stream) {
    if (credit_ > 0 || !commander_.met()) on_output(rank, stream);
  }
  void on_output(size_t rank, io::Output stream);
  void flush_input();
  void pause_or_resume();

  Commander commander_;
  std::string version_;               ///< Of corro.
  Time alone_since_ = Time::never();  ///< It has no commander.
  bool unguarded_ = false;            ///< Nobody would end it.
  std::deque<Message> unheard_;       ///< Of the commander.
  io::Loop loop_;
  AgentCourse course_;
  OutOfMemoryWatch out_of_memory_;
  io::Fd children_;
  std::unique_ptr<wire::AgentService> service_;  ///< For the workers; from the first START on.
  std::string service_name_;                     ///< Of its socket.
  RankGroup ranks_;
  Branches branches_;
  SyncTarget sync_;
  Surveyor surveyor_;
  StackDumps dumps_;
  io::Fd call_;   ///< A memfd with what CALL brought, or invalid.
  io::Fd guard_;  ///< Invalid: the commander is on this host.
  std::array<char, kMaxOutputBytes> buffer_{};
  int64_t credit_ = kOutputCredit;
  bool paused_ = false;        ///< There is no credit: nothing is read from the ranks.
  std::string python_folder_;  ///< Of the ranks' program: py-spy may be beside it.
};

Status Agent::open(const std::string& version) {
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  children_.reset(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  CORRO_TRY(loop_.watch(children_.get(), EPOLLIN, [this] { on_children(); }));
  CORRO_TRY(commander_.watch(loop_, [this] { on_commander(); }));
  if (guard_.valid()) {
    // It was killed, and nobody tells the commander.
    CORRO_TRY(loop_.watch(guard_.get(), EPOLLIN, [this] { unguarded_ = true; }));
  }
  version_ = version;
  if (commander_.met()) say(hello());
  return {};
}

Hello Agent::hello() const {
  Hello hello{.corro = version_, .host = io::host_name(), .pid = getpid()};
  if (const auto& dialling = commander_.dialling()) {
    hello.host = dialling->host;
    hello.slots = dialling->slots;
    hello.term = course_.term();
    hello.prepared = course_.prepared();
  }
  return hello;
}

/// Then it ends everything.
Time Agent::gives_up_at() const {
  const auto& dialling = commander_.dialling();
  if (unguarded_ || (!dialling && commander_.ended())) return Time{};
  if (!dialling) return course_.silent_at();
  return alone_since_ == Time::never() ? alone_since_ : alone_since_ + dialling->patience;
}

/// Dials one if there is none.
void Agent::find_commander(Time now) {
  if (!commander_.dialling()) return;
  const bool was_met = commander_.met();
  if (was_met && now >= course_.silent_at())
    commander_.drop("nothing was heard of it for 10 s", now);
  if (!commander_.met() || commander_.ended()) commander_.tick({course_.here(), hello()}, now);
  if (was_met && !commander_.met()) unheard_.clear();  // Another one may want something else.
  if (commander_.met()) {
    alone_since_ = Time::never();
  } else if (alone_since_ == Time::never()) {
    alone_since_ = now;
  }
}

// -- the loop -------------------------------------------------------------------------------------

void Agent::step() {
  find_commander(monotonic_now());
  loop_.turn(next_timer());
  hear_some();
  if (course_.state() != AgentCourse::State::kFenced) flush_input();
  go_on(monotonic_now());
  surveyor_.tick(monotonic_now());
  dumps_.poll(monotonic_now(), [this](const Subject& about, Stack stack) {
    commander_.send({about, std::move(stack)});
  });
  if (sync_.busy()) sync_.advance();
  pause_or_resume();
  branches_.flush();
  commander_.flush_on(loop_);
}

Time Agent::next_timer() const {
  const Time now = monotonic_now();
  const Time at_once = sync_.busy() || !unheard_.empty() ? now : Time::never();
  const Time dumps = dumps_.empty() ? Time::never() : now + kDumpPause;
  const Time silent = commander_.met() ? course_.silent_at() : Time::never();
  return std::min({course_.next_state(paused_, now), surveyor_.due(), silent, commander_.due(),
                   gives_up_at(), at_once, dumps});
}

/// Looks at what ranks have left, where that matters.
void Agent::go_on(Time now) {
  if (course_.state() == AgentCourse::State::kFencing)
    course_.see_rest(descendants_of(getpid(), branches_.shells()), now);
  course_.drain(ranks_.any_output(), paused_, now);
  carry_out_orders();
}

// -- what the commander says ----------------------------------------------------------------------

void Agent::on_commander() {
  if (const Status status = commander_.read(); !status.ok()) return;
  course_.hear_life(monotonic_now());
  while (auto message = commander_.take()) {
    // The ranks that run do not wait until all others are started, nor does who commands.
    const bool is_urgent = std::holds_alternative<Credit>(message->body) ||
                           std::holds_alternative<Lead>(message->body) ||
                           std::holds_alternative<Refused>(message->body);
    is_urgent ? hear(*message) : unheard_.push_back(std::move(*message));
  }
}

/// A START takes a while: between some of them the ranks that run already are read.
void Agent::hear_some() {
  constexpr int kHeardAtOnce = 4;
  for (int i = 0; i < kHeardAtOnce && !unheard_.empty(); ++i) {
    const Message message = std::move(unheard_.front());
    unheard_.pop_front();
    hear(message);
  }
}

void Agent::hear(const Message& message) {
  const auto* lead = std::get_if<Lead>(&message.body);
  const auto* refused = std::get_if<Refused>(&message.body);
  if ((lead != nullptr || refused != nullptr) && !commander_.dialling()) return;
  if (lead != nullptr) return follow(message.about, *lead);
  if (refused != nullptr) return on_refused(*refused);
  if (!course_.accepts(message.about)) return;
  std::visit(
      [&](const auto& body) {
        on(message.about, body);
        surveyor_.hear(body);
      },
      message.body);
  course_.hear(message, monotonic_now());
  carry_out_orders();
}

/// One that leads cannot take it. It may be that others have to come first.
void Agent::on_refused(const Refused& refused) {
  const bool waits = refused.code == Code::kUnavailable;
  if (waits) alone_since_ = Time::never();
  unheard_.clear();
  commander_.refuse(refused.why, waits, monotonic_now());
}

/// A coordinator says that it leads. It is told all that it has to know, and gets what was kept.
void Agent::follow(const Subject& about, const Lead& lead) {
  const bool is_of_job = course_.accepts(about);
  if (is_of_job && course_.follow(lead.term, monotonic_now())) {
    commander_.meet(lead.term);
    carry_out_orders();
    credit_ = static_cast<int64_t>(kOutputCredit) - static_cast<int64_t>(commander_.send_kept());
    return;
  }
  commander_.refuse(is_of_job ? fmt::format("it leads in term {}, and another one in term {}",
                                            lead.term, course_.term())
                              : "it is of another job than the ranks of this agent",
                    /*waits=*/false, monotonic_now());
}

Status Agent::open_service(const Start& start) {
  surveyor_.close_routes();
  if (service_ != nullptr) return {};
  wire::AgentService::Options options;
  options.job = start.job;
  options.secret = start.secret;
  options.size = start.size;
  options.name = start.agent;
  options.on_hello = [this](wire::WorkerHello hello) {
    const auto rank = course_.find_number(hello.rank);
    if (!rank) return;
    if (!hello.descriptors.empty()) ranks_[*rank].set_flight(std::move(hello.descriptors[0]));
    course_.on_join(*rank);
  };
  options.on_put = [this](const std::string& key, const Bytes& value) {
    if (surveyor_.has_surveyed()) course_.on_put({.key = key, .value = value});
  };
  options.on_ready = [this](const wire::WorkerReady& ready) {
    const ReadyForEpoch body{.epoch = ready.epoch, .steps = ready.steps, .lost = ready.lost};
    for (const size_t rank : ranks_of(ready.member)) course_.on_ready(rank, body);
  };
  options.on_leave = [this](const std::string& member) {
    for (const size_t rank : ranks_of(member)) course_.on_leave(rank);
  };
  service_name_ = start.agent;
  CORRO_ASSIGN(service_, wire::AgentService::create(std::move(options)));
  return loop_.watch(service_->poll_fd(), EPOLLIN, [this] { on_workers(); });
}

void Agent::on(const Subject& about, const Start& start) {
  if (course_.state() != AgentCourse::State::kWatching) return;
  WorkerSpec spec{.program = start.program,
                  .arguments = start.arguments,
                  .environment = environment_of(start),
                  .directory = start.directory,
                  .processors = {start.processors.begin(), start.processors.end()},
                  .input = start.input,
                  .call = call_.get(),
                  .out_terminal = start.out_terminal,
                  .err_terminal = start.err_terminal};
  python_folder_ = std::filesystem::path(start.program).parent_path();
  Status status = course_.admit(about);
  if (status.ok()) status = open_service(start);
  if (status.ok()) {
    // Its host may have had another number when the socket got its name.
    if (spec.environment.contains("CORRO_AGENT")) spec.environment["CORRO_AGENT"] = service_name_;
    const auto pid = ranks_.start(spec);
    if (pid.ok()) return course_.on_start(about, *pid);
    status = pid.status();
  }
  commander_.send({about, Refused{.code = status.code(), .why = status.message()}});
}

void Agent::on(const Subject& about, const Ask& /*ask*/) {
  if (const auto rank = course_.find(about)) ranks_[*rank].ask();
}

void Agent::on(const Subject& /*about*/, const Credit& credit) {
  const int64_t missing = static_cast<int64_t>(kOutputCredit) - credit_;
  credit_ += static_cast<int64_t>(std::min(credit.bytes, static_cast<uint64_t>(missing)));
}

void Agent::on(const Subject& about, const Input& input) {
  if (const auto rank = course_.find(about)) ranks_[*rank].give(input.bytes, input.ends);
}

void Agent::on(const Subject& /*about*/, const Call& call) {
  if (!call_.valid()) call_.reset(memfd_create("corro-call", MFD_CLOEXEC));
  std::string_view rest = call.bytes;
  while (!rest.empty()) {
    const ssize_t count = write(call_.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Status status = status_from_errno("keeping the call for its ranks", errno);
      return say(Refused{status.code(), status.message()});
    }
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

void Agent::on(const Subject& /*about*/, const Stacks& /*stacks*/) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (course_.runs(rank))
      dumps_.ask(course_.about(rank), ranks_[rank].python(), python_folder_, monotonic_now());
  }
}

// -- what the course orders -----------------------------------------------------------------------

void Agent::carry_out_orders() {
  for (std::vector<AgentOrder> orders = course_.take_orders(); !orders.empty();
       orders = course_.take_orders()) {
    for (const AgentOrder& order : orders)
      std::visit([this](const auto& what) { carry_out(what); }, order);
  }
}

void Agent::carry_out(const Report& order) {
  const RankProcess& rank = ranks_[order.rank];
  const Duration clock = monotonic_now().since_start;
  diagnosis::RankEnd end = order.ended ? rank.describe() : rank.look();
  end.rank = course_.about(order.rank).rank;
  order.ended ? say(order.rank, Ended{std::move(end), clock})
              : say(order.rank, Seen{std::move(end), clock});
}

// -- what ranks do --------------------------------------------------------------------------------

void Agent::on_workers() {
  const Status status = service_->poll();
  carry_out_orders();
  if (status.ok()) return;
  say(Trouble{"the agent has to stop: " + status.message()});
  loop_.forget(service_->poll_fd());
}

void Agent::on_children() {
  signalfd_siginfo ignored{};
  while (read(children_.get(), &ignored, sizeof(ignored)) > 0) {
  }
  while (true) {
    siginfo_t ended{};
    // Looked at first: the cgroup of a process can be read until it is reaped.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) break;
    const auto rank = ranks_.find(ended.si_pid);
    const bool was_killed = ended.si_code == CLD_KILLED && ended.si_status == SIGKILL;
    if (rank && was_killed && !course_.ending() && !course_.is_fenced(*rank)) {
      if (auto limit = out_of_memory_.explain(ended.si_pid))
        ranks_[*rank].set_out_of_memory(*limit);
    }
    int status = 0;
    if (waitpid(ended.si_pid, &status, WNOHANG) != ended.si_pid) continue;
    if (rank) on_rank_end(*rank, status);
    branches_.take_end(ended.si_pid, status);
  }
  tell_departures();
  carry_out_orders();
}

void Agent::on_rank_end(size_t rank, int status) {
  RankProcess& process = ranks_[rank];
  process.set_ended(status, course_.ending() || course_.is_fenced(rank));
  // What it wrote before its end is in the pipes; what its children still write comes later.
  for (const io::Output stream : {io::Output::kErr, io::Output::kOut, io::Output::kResult}) {
    for (int i = 0; i < kPipeReads && process.fd(stream) >= 0; ++i) on_output(rank, stream);
  }
  course_.on_end(rank, diagnosis::ended_well({.ended = true, .status = status}));
  carry_out_orders();
}

/// A process that a rank has left behind may join for it.
void Agent::tell_departures() {
  if (service_ == nullptr) return;
  const auto any_orphan = [this] {
    const auto shells = branches_.shells();
    return std::ranges::any_of(own_children(), [&](pid_t child) {
      return !ranks_.find(child) && !shells.contains(child);
    });
  };
  course_.tell_departures([this](int32_t number) { return service_->greeted(number); }, any_orphan);
}

void Agent::flush_input() {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    if (const size_t taken = ranks_[rank].flush_input(); taken > 0)
      say(rank, Credit{.bytes = taken});
  }
}

void Agent::on_output(size_t rank, io::Output stream) {
  RankProcess& process = ranks_[rank];
  const int fd = process.fd(stream);
  if (fd < 0) return;
  const std::string_view bytes = process.read(stream, buffer_);
  if (process.fd(stream) < 0) {
    loop_.forget(fd);
    return say(rank, OutputEnd{.stream = stream});
  }
  if (bytes.empty() || course_.is_fenced(rank)) return;
  credit_ -= static_cast<int64_t>(bytes.size());
  say(rank, Output{.stream = stream, .bytes = std::string(bytes)});
}

void Agent::pause_or_resume() {
  // Nobody has to wait until there is a commander.
  if ((credit_ <= 0 && commander_.met()) == paused_) return;
  paused_ = !paused_;
  if (paused_) return ranks_.pause();
  course_.resume(monotonic_now());
  if (const Status status = ranks_.resume(); !status.ok()) say(Trouble{status.message()});
}

}  // namespace

int run_agent(Commander commander, const sigset_t& worker_mask, const std::string& version,
              io::Fd guard) {
  auto loop = io::Loop::create();
  if (!loop.ok()) return 1;
  Agent agent(std::move(commander), worker_mask, std::move(loop).value(), std::move(guard));
  return agent.run(version);
}

}  // namespace corro::agent
