#include "pod/head.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>

#include "agent/message_pipe.h"
#include "agent/reminder.h"
#include "agent/silence.h"
#include "coordinator/gathering.h"
#include "diagnosis/exit_status.h"
#include "io/loop.h"
#include "io/signals.h"
#include "io/socket.h"
#include "launch/job_signals.h"
#include "pod/child.h"
#include "pod/head_keys.h"
#include "pod/head_link.h"
#include "pod/ranks.h"
#include "pod/switchboard.h"
#include "secure/tls_stream.h"

namespace corro::pod {
namespace {

constexpr Duration kProofPatience = std::chrono::seconds(10);
constexpr Duration kLastWordPatience = std::chrono::seconds(2);
constexpr size_t kMostUnproved = 4096;
/// A side that sends so much more than the other takes does not keep to its credit.
constexpr size_t kMostQueued = size_t{8} << 20U;

struct Connection {
  agent::MessagePipe pipe;
  secure::TlsStream* tls;  ///< That of the pipe.
  std::string from;        ///< Its address, for people.
  Time since{};
  bool has_begun = false;          ///< Its first message was heard.
  ConnectionId partner = 0;        ///< It is joined with.
  Time closes_at = Time::never();  ///< It is closed then, or once it has all that was said.
};

/// Loop-confined.
class Head {
 public:
  Head(const HeadOptions& options, const wire::Secret& secret, io::Fd listener, secure::Tls tls,
       io::Loop loop, const launch::JobSignals& signals)
      : options_(options),
        job_(wire::digest_of(options.settings.identity.job_uid)),
        listener_(std::move(listener)),
        tls_(std::move(tls)),
        loop_(std::move(loop)),
        signals_(signalfd(-1, &signals.heard, SFD_CLOEXEC | SFD_NONBLOCK)),
        mask_(signals.before),
        board_({.job = options.settings.job,
                .runs_ranks = options.settings.runs_ranks,
                .workers = options.settings.workers,
                .silence = agent::kSilence,
                .secret = secret}) {}

  int run();

 private:
  void step();
  void accept_some();
  void read(ConnectionId id);
  void on_timers(Time now);
  void remind_of_missing(Time now);
  void on_signals();
  void on_children();
  void hear(ConnectionId id, Connection& connection, const agent::Message& message);
  void hear_first(ConnectionId id, Connection& connection, const agent::MessageBody& body);
  void carry_out_orders();
  void carry_out(const Order& order);
  void start_ranks();
  void say(ConnectionId to, const agent::MessageBody& body);
  void finish(ConnectionId id);
  void end(ConnectionId id);
  void log(const std::string& line) const { fmt::print(stderr, "corro head: {}\n", line); }

  const HeadOptions& options_;
  const wire::Digest job_;
  io::Fd listener_;
  secure::Tls tls_;
  io::Loop loop_;
  io::Fd signals_;
  sigset_t mask_;
  Switchboard board_;
  std::map<ConnectionId, Connection> connections_;
  ConnectionId last_ = 0;
  pid_t ranks_ = 0;  ///< `corro run`; 0: it does not run.
  Time look_at_ = monotonic_now();
  agent::Reminder absent_{agent::kAbsentFirst, agent::kReminderPause, monotonic_now()};
  int signal_ = 0;  ///< By which the end was asked for.
};

int Head::run() {
  (void)loop_.watch(listener_.get(), EPOLLIN, [this] { accept_some(); });
  (void)loop_.watch(signals_.get(), EPOLLIN, [this] { on_signals(); });
  while (signal_ == 0 || ranks_ != 0) step();
  return diagnosis::kSignalExit + signal_;
}

void Head::step() {
  const Time now = monotonic_now();
  on_timers(now);
  carry_out_orders();
  std::vector<ConnectionId> over;
  for (auto& [id, connection] : connections_) {
    connection.pipe.flush_on(loop_);
    const bool closes = connection.closes_at != Time::never() &&
                        (!connection.pipe.unsent() || now >= connection.closes_at);
    if (closes || connection.pipe.ended()) over.push_back(id);
  }
  for (const ConnectionId id : over) end(id);
  if (!over.empty()) return;  // What follows from that is done first.
  loop_.turn(look_at_);
}

void Head::accept_some() {
  while (true) {
    auto accepted = io::accept_connection(listener_.get());
    if (!accepted.ok()) return log(accepted.status().message());
    if (!accepted->valid()) return;
    const auto proved = [](const auto& entry) { return entry.second.tls->is_proved(); };
    const auto unproved = std::ranges::count_if(connections_, std::not_fn(proved));
    if (static_cast<size_t>(unproved) >= kMostUnproved) continue;
    (void)io::configure_tcp(accepted->get());
    const auto address = io::remote_address(accepted->get());
    auto stream = tls_.open(std::move(*accepted));
    if (!stream.ok()) return log(stream.status().message());
    secure::TlsStream* tls = stream->get();
    const ConnectionId id = ++last_;
    const auto [place, added] = connections_.emplace(
        id, Connection{.pipe = agent::MessagePipe(std::move(*stream)),
                       .tls = tls,
                       .from = address.ok() ? address->to_string() : "somebody",
                       .since = monotonic_now()});
    if (!place->second.pipe.watch(loop_, [this, id] { read(id); }).ok()) connections_.erase(place);
  }
}

void Head::read(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  connection.pipe.flush();
  (void)connection.pipe.read();
  while (const auto message = connection.pipe.take()) hear(id, connection, *message);
  const Status& failure = connection.pipe.failure();
  if (!failure.ok() && !connection.tls->is_proved() && failure.code() != Code::kUnavailable)
    log(fmt::format("{} is refused: {}", connection.from, failure.message()));
}

void Head::on_timers(Time now) {
  if (now < look_at_) return;
  look_at_ = now + kLookPause;
  board_.tick(now);
  remind_of_missing(now);
  for (auto& [id, connection] : connections_) {
    const bool is_late = !connection.has_begun && now >= connection.since + kProofPatience;
    if (is_late) connection.closes_at = now;
  }
}

/// Their own logs say why, and nobody looks there before it is known whose.
void Head::remind_of_missing(Time now) {
  const auto missing = board_.missing();
  if (missing.empty()) return absent_.reset(now);
  if (absent_.take(now)) log(coordinator::describe_absent(missing));
}

void Head::on_signals() {
  signalfd_siginfo said{};
  while (::read(signals_.get(), &said, sizeof(said)) == sizeof(said)) {
    const int number = static_cast<int>(said.ssi_signo);
    if (number == SIGCHLD) on_children();
    if (!io::asks_to_stop(number)) continue;
    signal_ = number;
    if (ranks_ != 0) kill(ranks_, number);
  }
}

void Head::on_children() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    if (pid != ranks_) continue;
    ranks_ = 0;
    log(fmt::format("the ranks have ended with status {}", shell_status(status)));
    board_.end_ranks(shell_status(status), monotonic_now());
  }
}

// -- what is heard --------------------------------------------------------------------------------

void Head::hear(ConnectionId id, Connection& connection, const agent::Message& message) {
  if (connection.partner != 0) {
    const auto partner = connections_.find(connection.partner);
    if (partner == connections_.end()) return;
    partner->second.pipe.send(message);
    if (partner->second.pipe.unsent_bytes() > kMostQueued) {
      log(fmt::format("{} sends more than {} takes", connection.from, partner->second.from));
      connection.closes_at = monotonic_now();
    }
    return;
  }
  if (message.about.job != job_ || !connection.tls->peer()) return;
  const Time now = monotonic_now();
  const agent::MessageBody& body = message.body;
  if (!std::exchange(connection.has_begun, true)) return hear_first(id, connection, body);
  if (std::holds_alternative<agent::Alive>(body)) return board_.hear_alive(id, now);
  if (std::holds_alternative<agent::Leave>(body)) return board_.hear_leave(id);
  if (const auto* trouble = std::get_if<agent::Trouble>(&body))
    return board_.hear_trouble(id, trouble->text);
  if (const auto* lost = std::get_if<agent::HostLost>(&body))
    return board_.hear_host_lost(id, lost->host);
  if (const auto* record = std::get_if<agent::Record>(&body)) return board_.record(id, *record);
  if (const auto* proposal = std::get_if<agent::Propose>(&body))
    return board_.propose(id, *proposal, now);
  // A remote shell that waits looks whether the head is there.
  if (std::holds_alternative<agent::Look>(body)) say(id, agent::Alive{});
}

void Head::hear_first(ConnectionId id, Connection& connection, const agent::MessageBody& body) {
  const secure::PodIdentity& who = *connection.tls->peer();
  const Time now = monotonic_now();
  if (const auto* enlist = std::get_if<agent::Enlist>(&body)) {
    log(fmt::format("{}, generation {}, is there ({})", who.member, who.generation,
                    connection.from));
    board_.enlist(id, who, *enlist, now);
  } else if (const auto* reach = std::get_if<agent::Reach>(&body)) {
    board_.reach(id, who, reach->host, now);
  } else if (const auto* session = std::get_if<agent::Session>(&body)) {
    board_.meet(id, who, session->session);
  } else {
    connection.closes_at = now;
  }
}

// -- what is done ---------------------------------------------------------------------------------

void Head::carry_out_orders() {
  for (std::vector<Order> orders = board_.take_orders(); !orders.empty();
       orders = board_.take_orders())
    for (const Order& order : orders) carry_out(order);
}

void Head::carry_out(const Order& order) {
  switch (order.kind) {
    case Order::Kind::kSay:
      return say(order.to, order.body);
    case Order::Kind::kSayAndEnd:
      if (const auto* refused = std::get_if<agent::Refused>(&order.body))
        log(fmt::format("refused: {}", refused->why));
      say(order.to, order.body);
      return finish(order.to);
    case Order::Kind::kJoin: {
      const auto one = connections_.find(order.to);
      const auto other = connections_.find(order.with);
      if (one == connections_.end() || other == connections_.end()) {
        finish(order.to);
        return finish(order.with);
      }
      one->second.partner = order.with;
      other->second.partner = order.to;
      say(order.to, agent::Ready{});
      return say(order.with, agent::Ready{});
    }
    case Order::Kind::kStartRanks:
      return start_ranks();
  }
}

void Head::start_ranks() {
  const agent::Enlist* enlisted = board_.enlisted();
  if (enlisted == nullptr) return board_.end_ranks(1, monotonic_now());
  log(fmt::format("all {} workers are there: the ranks start", options_.settings.workers));
  const auto address = io::local_address(listener_.get());
  const auto words = words_for_ranks({.program = options_.program,
                                      .job = options_.settings.job,
                                      .workers = options_.settings.workers,
                                      .slots = options_.settings.slots,
                                      .port = address.ok() ? address->port() : uint16_t{0}},
                                     *enlisted);
  const auto pid = start_child(words, mask_);
  if (pid.ok()) {
    ranks_ = *pid;
    return;
  }
  log(pid.status().message());
  board_.end_ranks(1, monotonic_now());
}

void Head::say(ConnectionId to, const agent::MessageBody& body) {
  const auto found = connections_.find(to);
  if (found != connections_.end()) found->second.pipe.send({{.job = job_}, body});
}

/// Closes it once it has what was said.
void Head::finish(ConnectionId id) {
  const auto found = connections_.find(id);
  if (found != connections_.end()) found->second.closes_at = monotonic_now() + kLastWordPatience;
}

void Head::end(ConnectionId id) {
  const auto found = connections_.find(id);
  const ConnectionId partner = found->second.partner;
  found->second.pipe.unwatch(loop_);
  connections_.erase(found);
  board_.end(id);
  if (partner != 0) finish(partner);
}

/// Two for each session, one for each agent: as many as the kernel lets.
void allow_descriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int run_head(const HeadOptions& options) {
  const auto fail = [](const Status& status) {
    fmt::print(stderr, "corro head: {}\n", status.message());
    return diagnosis::kUsageExit;
  };
  const auto key = read_head_key(options.settings);
  if (!key.ok()) return fail(key.status());
  const auto address = io::SocketAddress::parse(options.listen);
  if (!address.ok()) return fail(address.status());
  auto listener = io::listen_tcp(*address);
  if (!listener.ok()) return fail(listener.status().with_context(options.listen));
  auto tls = secure::Tls::server(keys_of_members(options.settings));
  if (!tls.ok()) return fail(tls.status());
  auto loop = io::Loop::create();
  if (!loop.ok()) return fail(loop.status());
  allow_descriptors();
  const launch::JobSignals signals = launch::block_signals();
  const auto bound = io::local_address(listener->get());
  fmt::print("corro head: listening at {}\n", bound.ok() ? bound->to_string() : options.listen);
  std::fflush(stdout);
  const auto secret = secure::derive_ranks_secret(*key, options.settings.identity.job_uid);
  Head head(options, secret, std::move(*listener), std::move(*tls), std::move(*loop), signals);
  return head.run();
}

}  // namespace corro::pod
