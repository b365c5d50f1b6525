#include "agent/agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <deque>
#include <filesystem>

#include "agent/branches.h"
#include "agent/membership.h"
#include "agent/out_of_memory.h"
#include "agent/processes.h"
#include "agent/rank_group.h"
#include "agent/silence.h"
#include "agent/stack_dump.h"
#include "agent/sync_target.h"
#include "io/interfaces.h"
#include "io/loop.h"
#include "io/pipe.h"
#include "io/process.h"
#include "wire/agent_service.h"

namespace corro::agent {
namespace {

using std::chrono::milliseconds;

constexpr Duration kDrainGrace = milliseconds(300);  ///< For output that is still on its way.
constexpr Duration kKillPatience = std::chrono::seconds(2);
constexpr Duration kLookPause = milliseconds(5);  ///< Between looks at what was left running.
constexpr Duration kProbePatience = std::chrono::seconds(3);
constexpr int kPipeReads = 32;  ///< More than a pipe holds.

Variables environment_of(const Start& start) {
  if (!start.adds_environment) return start.environment;
  Variables all = read_variables();
  for (const auto& [name, value] : start.environment) all[name] = value;
  return all;
}

/// The name of the file to which all links lead: it tells one Python from another.
std::string real_name_of(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::canonical(path, ignored).filename().string();
}

/// What a rank would not find or not start, in words.
std::string missing_of(const Survey& survey) {
  const std::filesystem::path folder = survey.directory;
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return survey.directory + " is not there";
  for (const std::string& file : {survey.program, survey.script}) {
    const std::filesystem::path path = folder / file;  // an absolute one stays itself
    if (!file.empty() && !std::filesystem::exists(path, ignored))
      return path.string() + " is not there";
  }
  const std::filesystem::path program = folder / survey.program;
  if (!survey.program.empty() && access(program.c_str(), X_OK) != 0)
    return program.string() + " cannot be executed there";
  return "";
}

/// Loop-confined.
class Agent {
 public:
  /// `guard` ends with the process that guards this one; none: the commander is on this host.
  Agent(MessagePipe commander, const sigset_t& worker_mask, io::Loop loop, io::Fd guard)
      : commander_(std::move(commander)),
        loop_(std::move(loop)),
        ranks_(worker_mask, loop_,
               [this](RankProcess& rank, io::Output stream) { on_readable(rank, stream); }),
        branches_(worker_mask, loop_, [this](MessageBody body) { say(std::move(body)); }),
        sync_([this](MessageBody body) { say(std::move(body)); }),
        dumps_(worker_mask),
        guard_(std::move(guard)),
        silence_(guard_.valid(), monotonic_now()) {}

  int run(const std::string& version) {
    if (const Status status = open(version); !status.ok()) say(Trouble{status.message()});
    while (!commander_.ended() && monotonic_now() < silence_.deadline()) {
      step();
      if (state_ == State::kFenced && !commander_.unsent() && branches_.empty()) return 0;
    }
    (void)kill_descendants(kKillPatience);
    return 0;
  }

 private:
  enum class State : uint8_t { kWatching, kFencing, kDraining, kFenced };

  Status open(const std::string& version);
  void step();
  [[nodiscard]] Time next_timer() const;
  [[nodiscard]] Time next_state() const;
  void go_on(Time now);
  void fence(Time now);

  // What the commander says.
  void on_commander();
  void hear_some();
  void hear(const Message& message);
  void on(const Subject& about, const Start& start);
  void on(const Subject& about, const Signal& signal);
  void on(const Subject& about, const Ask& ask);
  void on(const Subject& about, const Look& look);
  void on(const Subject& about, const Credit& credit);
  void on(const Subject& about, const Resize& sizes) {
    (void)about, ranks_.resize_terminals(sizes);
  }
  void on(const Subject& about, const Input& input);
  void on(const Subject& about, const Prepare& prepare);
  void on(const Subject& about, const Members& members);
  void on(const Subject& about, const Fence& fence);
  void on(const Subject& about, const Release& release);
  void on(const Subject& about, const Call& call);
  void on(const Subject& about, const Stacks& stacks);
  void on(const Subject& about, const Survey& survey);
  void on(const Subject& about, const Probe& probe);
  void on(const Subject& about, const Record& record);
  void on(const Subject& about, const Left& left);
  void on(const Subject& about, const Sync& sync) { (void)about, sync_.hear(sync); }
  void on(const Subject& about, const Part& part) { (void)about, sync_.hear(part); }
  void on(const Subject& about, const Grow& grow) { (void)about, branches_.grow(grow); }
  void on(const Subject& about, const Forward& forward) { (void)about, branches_.forward(forward); }
  void on(const Subject& about, const Examine& examine);
  void on(const Subject& about, const ReadClock& read);
  void on(const Subject& about, const Measure& measure);
  /// What only agents say.
  void on(const Subject& /*about*/, const auto& /*other*/) {}
  void say(MessageBody body) {
    commander_.send({{.job = job_, .epoch = membership_.epoch()}, std::move(body)});
  }
  void say(const RankProcess& rank, MessageBody body) {
    commander_.send({rank.about(), std::move(body)});
  }
  [[nodiscard]] bool is_ours(const Subject& about) const {
    return about.job == job_ && !membership_.is_over(about.epoch);
  }

  [[nodiscard]] Status stranger(const Subject& about) const {
    return {Code::kFailedPrecondition,
            fmt::format("rank {} is not a member of epoch {}", about.rank, membership_.epoch())};
  }

  // What the ranks do.
  Status open_service(const Start& start);
  void on_workers();
  void close();
  void on_children();
  void on_rank_end(RankProcess& rank, int status);
  void expel(RankProcess& rank);
  void on_readable(RankProcess& rank, io::Output stream) {
    if (credit_ > 0) on_output(rank, stream);
  }
  void on_output(RankProcess& rank, io::Output stream);
  void flush_input();
  void tell_departures();
  Status open_routes();
  Status open_speed_server(const SpeedKey& key);
  void end_probe(Time now);
  void end_speed_test(Time now);
  void pause_or_resume();

  MessagePipe commander_;
  std::deque<Message> unheard_;  ///< Of the commander.
  io::Loop loop_;
  OutOfMemoryWatch out_of_memory_;
  io::Fd children_;
  std::unique_ptr<wire::AgentService> service_;  ///< For the workers; from the first START on.
  RankGroup ranks_;
  Branches branches_;
  SyncTarget sync_;
  StackDumps dumps_;
  std::unique_ptr<Routes> routes_;  ///< From SURVEY on.
  Time probe_until_ = Time::never();
  std::unique_ptr<SpeedServer> speed_server_;  ///< From EXAMINE on.
  std::unique_ptr<SpeedTest> speed_test_;      ///< From MEASURE to MEASURED.
  io::Fd call_;                                ///< A memfd with what CALL brought, or invalid.
  io::Fd guard_;                               ///< Invalid: the commander is on this host.
  Silence silence_;
  bool has_heard_ = false;  ///< A message, which has named job and epoch.
  wire::Digest job_{};
  Membership membership_;
  std::array<char, kMaxOutputBytes> buffer_{};
  State state_ = State::kWatching;
  Time state_until_ = Time::never();
  int64_t credit_ = kOutputCredit;
  bool paused_ = false;        ///< There is no credit: nothing is read from the ranks.
  bool ending_ = false;        ///< The ranks were told that the job is being ended.
  bool left_ = false;          ///< Processes are left that should not be.
  std::string python_folder_;  ///< Of the ranks' program: py-spy may be beside it.
  std::vector<Record> early_;  ///< Before there was a service.
  std::vector<const RankProcess*> departed_;  ///< With status 0; the service does not know yet.
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
    CORRO_TRY(loop_.watch(guard_.get(), EPOLLIN, [this] { close(); }));
  }
  say(Hello{.corro = version, .host = io::host_name(), .pid = getpid()});
  return {};
}

// -- the loop -------------------------------------------------------------------------------------

void Agent::step() {
  loop_.turn(next_timer());
  hear_some();
  if (state_ != State::kFenced) flush_input();
  go_on(monotonic_now());
  end_probe(monotonic_now());
  end_speed_test(monotonic_now());
  dumps_.poll(monotonic_now(), [this](const Subject& about, Stack stack) {
    commander_.send({about, std::move(stack)});
  });
  if (sync_.busy()) sync_.advance();
  pause_or_resume();
  branches_.flush();
  commander_.flush_on(loop_);
}

Time Agent::next_timer() const {
  const Time at_once = sync_.busy() || !unheard_.empty() ? monotonic_now() : Time::never();
  const Time test = speed_test_ ? speed_test_->deadline() : Time::never();
  const Time dumps = dumps_.empty() ? Time::never() : monotonic_now() + kLookPause;
  return std::min({next_state(), probe_until_, test, silence_.deadline(), at_once, dumps});
}

Time Agent::next_state() const {
  if (state_ == State::kFencing) return monotonic_now() + kLookPause;
  if (state_ == State::kDraining && !paused_) return state_until_;
  return Time::never();
}

void Agent::on_workers() {
  const Status status = service_->poll();
  if (status.ok()) return;
  say(Trouble{fmt::format("the agent has to stop: {}", status.message())});
  loop_.forget(service_->poll_fd());
}

/// Nobody commands it any more.
void Agent::close() {
  commander_.unwatch(loop_);
  loop_.forget(guard_.get());
  commander_.close();
}

/// Passes from one state to the next.
void Agent::go_on(Time now) {
  if (state_ == State::kFencing) fence(now);
  if (state_ != State::kDraining) return;
  if (ranks_.any_output() && (paused_ || now < state_until_)) return;
  ranks_.for_each([this](const RankProcess& rank) {
    if (!rank.running()) say(rank, Ended{rank.describe(), monotonic_now().since_start});
  });
  say(Fenced{.left = left_});
  state_ = State::kFenced;
}

/// Waits for what is left until the grace is over, then kills it until nothing is.
void Agent::fence(Time now) {
  const auto living = descendants_of(getpid(), branches_.shells());
  left_ = !living.empty();
  if (!left_ || now >= state_until_ + kKillPatience) {
    state_ = State::kDraining;
    state_until_ = now + kDrainGrace;
  } else if (now >= state_until_) {
    ending_ = true;
    for (const pid_t pid : living) kill(pid, SIGKILL);
  }
}

// -- what the commander says ----------------------------------------------------------------------

void Agent::on_commander() {
  commander_.flush();
  if (const Status status = commander_.read(); !status.ok()) return;
  silence_.hear(monotonic_now());
  while (auto message = commander_.take()) {
    // The ranks that run do not wait until all others are started.
    const bool is_credit = std::holds_alternative<Credit>(message->body);
    is_credit ? hear(*message) : unheard_.push_back(std::move(*message));
  }
}

/// A START takes a while: between some of them the ranks that run already are read.
void Agent::hear_some() {
  constexpr int kHeardAtOnce = 4;
  for (int i = 0; i < kHeardAtOnce && !unheard_.empty(); ++i) {
    hear(unheard_.front());
    unheard_.pop_front();
  }
}

void Agent::hear(const Message& message) {
  if (!std::exchange(has_heard_, true)) {
    job_ = message.about.job;
    membership_.begin(message.about.epoch);
  }
  if (!is_ours(message.about)) return;
  std::visit([&](const auto& body) { on(message.about, body); }, message.body);
}

Status Agent::open_service(const Start& start) {
  if (service_ != nullptr) return {};
  if (routes_ != nullptr) routes_->close();
  wire::AgentService::Options options;
  options.job = start.job;
  options.secret = start.secret;
  options.size = start.size;
  options.name = start.agent;
  options.on_hello = [this](wire::WorkerHello hello) {
    RankProcess* rank = ranks_.find_rank(hello.rank);
    if (rank == nullptr) return;
    if (!hello.descriptors.empty()) rank->set_flight(std::move(hello.descriptors[0]));
    say(*rank, Joined{});
  };
  options.on_put = [this](const std::string& key, const Bytes& value) {
    if (routes_ != nullptr) say(Record{.key = key, .value = value});
  };
  const auto say_of = [this](const std::string& member, const MessageBody& body) {
    ranks_.for_each([&](const RankProcess& rank) {
      if (wire::to_hex(rank.about().member) == member) say(rank, body);
    });
  };
  options.on_ready = [say_of](const wire::WorkerReady& ready) {
    say_of(ready.member,
           ReadyForEpoch{.epoch = ready.epoch, .steps = ready.steps, .lost = ready.lost});
  };
  options.on_leave = [say_of](const std::string& member) { say_of(member, Leaving{}); };
  CORRO_ASSIGN(service_, wire::AgentService::create(std::move(options)));
  for (const Record& record : std::exchange(early_, {})) service_->supply(record.key, record.value);
  return loop_.watch(service_->poll_fd(), EPOLLIN, [this] { on_workers(); });
}

void Agent::on(const Subject& about, const Start& start) {
  if (state_ != State::kWatching) return;
  const WorkerSpec spec{.program = start.program,
                        .arguments = start.arguments,
                        .environment = environment_of(start),
                        .directory = start.directory,
                        .processors = {start.processors.begin(), start.processors.end()},
                        .input = start.input,
                        .call = call_.get(),
                        .out_terminal = start.out_terminal,
                        .err_terminal = start.err_terminal};
  python_folder_ = std::filesystem::path(start.program).parent_path();
  Status status = membership_.admits(about) ? open_service(start) : stranger(about);
  if (status.ok()) {
    const auto rank = ranks_.start(about, spec);
    if (rank.ok()) return say(**rank, Started{.pid = (*rank)->pid()});
    status = rank.status();
  }
  commander_.send({about, Refused{.code = status.code(), .why = status.message()}});
}

void Agent::on(const Subject& about, const Prepare& prepare) {
  if (state_ != State::kWatching || service_ == nullptr) return;
  ranks_.for_each([&](const RankProcess& rank) {
    if (rank.running())
      service_->prepare(wire::to_hex(rank.about().member), about.epoch, prepare.at_once,
                        prepare.why);
  });
}

/// The epoch begins: each process of this host that takes part goes on in it, others are ended.
void Agent::on(const Subject& about, const Members& members) {
  if (state_ != State::kWatching) return;
  const bool is_next = about.epoch != membership_.epoch();
  if (const Status status = membership_.announce(about.epoch, members); !status.ok())
    return say(Trouble{status.message()});
  if (is_next) early_.clear();
  if (is_next && service_ != nullptr)
    service_->start_epoch(static_cast<int32_t>(members.members.size()));
  ranks_.for_each([&](RankProcess& rank) {
    if (!membership_.admits(rank.about())) return expel(rank);
    const Member* member = membership_.find(rank.about());
    if (member == nullptr) return;
    rank.enter(about.epoch, member->rank);
    if (is_next && service_ != nullptr)
      service_->commit(wire::to_hex(member->uuid), about.epoch, member->rank, members.last);
    // It was said in the epoch before, which the commander may have left by then.
    if (is_next && !rank.running()) say(rank, Ended{rank.describe(), monotonic_now().since_start});
  });
}

void Agent::on(const Subject& about, const Signal& signal) {
  ending_ = ending_ || signal.ends;
  if (about.rank < 0) silence_.hear_signal(signal.number);
  if (about.rank < 0) return ranks_.send(signal.number);
  if (const RankProcess* rank = ranks_.find(about)) rank->send(signal.number);
}

void Agent::on(const Subject& about, const Ask& /*ask*/) {
  if (RankProcess* rank = ranks_.find(about)) rank->ask();
}

void Agent::on(const Subject& /*about*/, const Look& /*look*/) {
  ranks_.for_each([this](const RankProcess& rank) {
    if (rank.running()) say(rank, Seen{rank.look(), monotonic_now().since_start});
  });
  say(Alive{});
}

void Agent::on(const Subject& /*about*/, const Credit& credit) {
  const int64_t missing = static_cast<int64_t>(kOutputCredit) - credit_;
  credit_ += static_cast<int64_t>(std::min(credit.bytes, static_cast<uint64_t>(missing)));
}

void Agent::on(const Subject& about, const Input& input) {
  if (RankProcess* rank = ranks_.find(about)) rank->give(input.bytes, input.ends);
}

void Agent::on(const Subject& /*about*/, const Fence& fence) {
  if (state_ != State::kWatching) return;
  state_ = State::kFencing;
  state_until_ = monotonic_now() + std::max(fence.grace, Duration::zero());
}

void Agent::on(const Subject& /*about*/, const Release& /*release*/) {
  if (state_ != State::kWatching) return;
  state_ = State::kDraining;
  state_until_ = monotonic_now() + kDrainGrace;
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
  ranks_.for_each([this](const RankProcess& rank) {
    if (rank.running()) dumps_.ask(rank.about(), rank.python(), python_folder_, monotonic_now());
  });
}

Status Agent::open_routes() {
  if (routes_ != nullptr) return {};
  CORRO_ASSIGN(routes_, Routes::create());
  return loop_.watch(routes_->poll_fd(), EPOLLIN, [this] { routes_->poll(); });
}

void Agent::on(const Subject& /*about*/, const Survey& survey) {
  if (const Status status = open_routes(); !status.ok())
    return say(Refused{status.code(), status.message()});
  utsname system{};
  (void)uname(&system);
  std::vector<std::string> addresses, interfaces;
  for (io::OwnAddress& own : io::own_addresses()) {
    addresses.push_back(std::move(own.address));
    interfaces.push_back(std::move(own.interface));
  }
  say(Surveyed{.machine = read_machine(read_variables()),
               .architecture = system.machine,
               .program = real_name_of(survey.program),
               .missing = missing_of(survey),
               .free_port = find_free_port(),
               .here = {.host = 0,
                        .token = routes_->token(),
                        .port = routes_->port(),
                        .addresses = std::move(addresses)},
               .interfaces = std::move(interfaces),
               .host_id = io::boot_host_id()});
}

void Agent::on(const Subject& /*about*/, const Probe& probe) {
  if (routes_ == nullptr) return;
  routes_->dial(probe.targets);
  probe_until_ = monotonic_now() + kProbePatience;
}

/// Says what the probe has reached once all dials are decided, or time is over.
void Agent::end_probe(Time now) {
  if (probe_until_ == Time::never() || (!routes_->idle() && now < probe_until_)) return;
  probe_until_ = Time::never();
  say(Reached{.routes = routes_->take()});
}

void Agent::on(const Subject& /*about*/, const Record& record) {
  if (service_ != nullptr) return service_->supply(record.key, record.value);
  early_.push_back(record);
}

void Agent::on(const Subject& about, const Left& /*left*/) {
  if (service_ == nullptr || !membership_.admits(about)) return;
  service_->end_rank(about.rank, membership_.host_of(about));
}

// -- what corro doctor asks -----------------------------------------------------------------------

Status Agent::open_speed_server(const SpeedKey& key) {
  if (speed_server_ != nullptr) return {};
  CORRO_TRY(open_routes());
  CORRO_ASSIGN(speed_server_, SpeedServer::create(key));
  routes_->on_caller([this](io::Fd caller) { speed_server_->add(std::move(caller)); });
  return loop_.watch(speed_server_->poll_fd(), EPOLLIN, [this] { speed_server_->poll(); });
}

void Agent::on(const Subject& /*about*/, const Examine& examine) {
  if (const Status status = open_speed_server(examine.key); !status.ok())
    return say(Refused{status.code(), status.message()});
  say(Examined{.facts = read_host_facts(examine.python)});
}

void Agent::on(const Subject& /*about*/, const ReadClock& /*read*/) {
  say(Clock{.since_1970 = std::chrono::system_clock::now().time_since_epoch()});
}

void Agent::on(const Subject& /*about*/, const Measure& measure) {
  if (speed_test_) loop_.forget(speed_test_->poll_fd());
  auto test = SpeedTest::create({.target = measure.target,
                                 .key = measure.key,
                                 .span = measure.span,
                                 .patience = measure.patience});
  Status status = test.status();
  if (status.ok()) {
    agent::SpeedTest* running = test->get();
    status = loop_.watch(running->poll_fd(), EPOLLIN, [running] { running->poll(); });
  }
  if (!status.ok())
    return say(Measured{.host = measure.target.host, .speed = {.failure = status.message()}});
  speed_test_ = std::move(test).value();
}

/// Says what a speed test has found once it is over.
void Agent::end_speed_test(Time now) {
  if (speed_test_ && now >= speed_test_->deadline()) speed_test_->give_up();
  if (!speed_test_ || !speed_test_->done()) return;
  say(Measured{.host = speed_test_->target().host, .speed = speed_test_->result()});
  loop_.forget(speed_test_->poll_fd());
  speed_test_.reset();
}

// -- what the ranks do ----------------------------------------------------------------------------

void Agent::on_children() {
  signalfd_siginfo ignored{};
  while (read(children_.get(), &ignored, sizeof(ignored)) > 0) {
  }
  while (true) {
    siginfo_t ended{};
    // Looked at first: the cgroup of a process can be read until it is reaped.
    if (waitid(P_ALL, 0, &ended, WEXITED | WNOHANG | WNOWAIT) != 0 || ended.si_pid == 0) break;
    RankProcess* rank = ranks_.find(ended.si_pid);
    if (rank != nullptr && ended.si_code == CLD_KILLED && ended.si_status == SIGKILL && !ending_ &&
        !rank->fenced()) {
      if (auto limit = out_of_memory_.explain(ended.si_pid)) rank->set_out_of_memory(*limit);
    }
    int status = 0;
    if (waitpid(ended.si_pid, &status, WNOHANG) != ended.si_pid) continue;
    if (rank != nullptr) on_rank_end(*rank, status);
    branches_.take_end(ended.si_pid, status);
  }
  tell_departures();
}

void Agent::on_rank_end(RankProcess& rank, int status) {
  rank.set_ended(status, ending_);
  // What it wrote before its end is in the pipes; what its children still write comes later.
  for (const io::Output stream : {io::Output::kErr, io::Output::kOut, io::Output::kResult}) {
    for (int i = 0; i < kPipeReads && rank.fd(stream) >= 0; ++i) on_output(rank, stream);
  }
  const diagnosis::RankEnd end = rank.describe();
  // Who waits for one that has failed is stopped.
  if (diagnosis::ended_well(end) && !rank.fenced()) departed_.push_back(&rank);
  say(rank, Ended{end, monotonic_now().since_start});
}

/// A rank that ended in good order does not join any more, unless a process that it left behind
/// does so for it.
void Agent::tell_departures() {
  std::erase_if(departed_, [this](const RankProcess* rank) {
    return service_->greeted(rank->rank()) || !membership_.admits(rank->about());
  });
  if (departed_.empty()) return;
  const auto shells = branches_.shells();
  const auto is_orphan = [&](pid_t child) {
    return ranks_.find(child) == nullptr && !shells.contains(child);
  };
  if (std::ranges::any_of(own_children(), is_orphan)) return;
  for (const RankProcess* rank : departed_) {
    service_->end_rank(rank->rank());
    say(*rank, Left{});
  }
  departed_.clear();
}

/// Ends a process that takes no part in the epoch, and says so.
void Agent::expel(RankProcess& rank) {
  if (!rank.running()) return;
  say(Trouble{fmt::format("{}: its process {} on {} was ended", stranger(rank.about()).message(),
                          rank.pid(), io::host_name())});
  rank.fence();
}

void Agent::flush_input() {
  ranks_.for_each([this](RankProcess& rank) {
    if (const size_t taken = rank.flush_input(); taken > 0) say(rank, Credit{.bytes = taken});
  });
}

void Agent::on_output(RankProcess& rank, io::Output stream) {
  const int fd = rank.fd(stream);
  if (fd < 0) return;
  const std::string_view bytes = rank.read(stream, buffer_);
  if (rank.fd(stream) < 0) {
    loop_.forget(fd);
    return say(rank, OutputEnd{.stream = stream});
  }
  if (bytes.empty() || rank.fenced()) return;
  credit_ -= static_cast<int64_t>(bytes.size());
  say(rank, Output{.stream = stream, .bytes = std::string(bytes)});
}

void Agent::pause_or_resume() {
  if ((credit_ <= 0) == paused_) return;
  paused_ = !paused_;
  if (paused_) return ranks_.pause();
  if (state_ == State::kDraining) state_until_ = monotonic_now() + kDrainGrace;
  if (const Status status = ranks_.resume(); !status.ok()) say(Trouble{status.message()});
}

}  // namespace

int run_agent(MessagePipe commander, const sigset_t& worker_mask, const std::string& version,
              io::Fd guard) {
  auto loop = io::Loop::create();
  if (!loop.ok()) return 1;
  Agent agent(std::move(commander), worker_mask, std::move(loop).value(), std::move(guard));
  return agent.run(version);
}

int run_guarded_agent(MessagePipe commander, const sigset_t& worker_mask,
                      const std::string& version) {
  adopt_orphans();
  auto pipe = io::make_pipe();
  if (!pipe.ok()) return 1;
  const pid_t agent = fork();
  if (agent < 0) return 1;
  if (agent == 0) {
    pipe->write.reset();
    setpgid(0, 0);
    adopt_orphans();  // not inherited
    // _exit() destroys nothing: the agent, which removes what is half done, is destroyed before it.
    _exit(run_agent(std::move(commander), worker_mask, version, std::move(pipe->read)));
  }
  commander.close();
  int status = 0;
  while (waitpid(agent, &status, 0) < 0 && errno == EINTR) {
  }
  (void)kill_descendants(kKillPatience);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace corro::agent
