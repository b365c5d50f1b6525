#include "agent/following.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

namespace corro::agent {
namespace {

// An agent that was asked to end waits so long for somebody who has its ranks leave.
constexpr Duration kTakeUpPatience = std::chrono::seconds(2);  ///< Without a commander.
/// One that is there, and says nothing: it looks every second.
constexpr Duration kSilentPatience = std::chrono::seconds(5);

}  // namespace

Status Following::open(const std::string& version) {
  CORRO_TRY(station_.commander.watch(station_.loop, [this] { listen(); }));
  if (guard_.valid()) {
    // The guard was killed, and nobody tells the commander. So the agent ends by itself.
    CORRO_TRY(station_.loop.watch(guard_.get(), EPOLLIN, [this] { unguarded_ = true; }));
  }
  version_ = version;
  if (station_.commander.dialling()) CORRO_TRY(listen_to_signals());
  if (station_.commander.met()) station_.say(hello());
  return {};
}

Status Following::listen_to_signals() {
  sigset_t asking;
  sigemptyset(&asking);
  sigaddset(&asking, SIGTERM);
  signals_.reset(signalfd(-1, &asking, SFD_CLOEXEC | SFD_NONBLOCK));
  return station_.loop.watch(signals_.get(), EPOLLIN, [this] {
    signalfd_siginfo ignored{};
    while (read(signals_.get(), &ignored, sizeof(ignored)) > 0) on_asked_to_end();
  });
}

void Following::on_asked_to_end() {
  if (asked_ == Time::never()) asked_ = monotonic_now();
  station_.course.on_leave();
  orders_.carry_out();
}

Hello Following::hello() const {
  Hello hello{.corro = version_, .host = io::host_name(), .pid = getpid()};
  if (const auto& dialling = station_.commander.dialling()) {
    hello.host = dialling->host;
    hello.slots = dialling->slots;
    hello.term = station_.course.term();
    hello.prepared = station_.course.prepared();
  }
  return hello;
}

// -- how long -------------------------------------------------------------------------------------

void Following::find(Time now) {
  Commander& commander = station_.commander;
  if (!commander.dialling()) return;
  const bool was_met = commander.met();
  if (was_met && now >= station_.course.silent_at())
    commander.drop("nothing was heard of it for 10 s", now);
  if (!commander.met() || commander.ended()) commander.tick({station_.course.here(), hello()}, now);
  if (was_met && !commander.met()) {
    unheard_.clear();  // Another one may want something else.
    lost_ = now;
  }
  if (now >= ends_ranks_at()) {
    ended_ranks_ = true;
    commander.say("nobody leads, and this agent was asked to end: so are its ranks");
    station_.course.end_ranks();
    orders_.carry_out();
  }
  if (commander.met()) {
    alone_since_ = Time::never();
  } else if (alone_since_ == Time::never()) {
    alone_since_ = now;
    reminder_.reset(now);
  } else if (reminder_.take(now)) {
    commander.remind();
  }
}

Time Following::due(Time now) const {
  const Time at_once = unheard_.empty() ? Time::never() : now;
  const Time silent = station_.commander.met() ? station_.course.silent_at() : Time::never();
  const Time reminds = alone_since_ == Time::never() ? Time::never() : reminder_.due();
  return std::min({at_once, silent, station_.commander.due(), reminds, ends_ranks_at(), ends_at()});
}

/// Whoever leads has the ranks leave at the end of their step, which is better.
Time Following::ends_ranks_at() const {
  if (asked_ == Time::never() || ended_ranks_ || !station_.course.any_runs()) return Time::never();
  return station_.commander.met() ? std::max(asked_, heard_) + kSilentPatience
                                  : std::max(asked_, lost_) + kTakeUpPatience;
}

Time Following::ends_at() const {
  const auto& dialling = station_.commander.dialling();
  if (unguarded_ || (!dialling && station_.commander.ended())) return Time{};
  if (!dialling) return station_.course.silent_at();
  const bool has_ranks = ended_ranks_ ? station_.course.any_runs() : station_.course.size() > 0;
  if (station_.course.leaves() && !station_.commander.met() && !has_ranks) return Time{};
  return alone_since_ == Time::never() ? alone_since_ : alone_since_ + dialling->patience;
}

// -- what the commander says ----------------------------------------------------------------------

void Following::listen() {
  if (const Status status = station_.commander.read(); !status.ok()) return;
  station_.course.hear_life(monotonic_now());
  if (station_.commander.met()) heard_ = monotonic_now();
  while (auto message = station_.commander.take()) hear(std::move(*message));
}

/// Ranks that run do not wait until all others are started, nor does who commands.
void Following::hear(Message message) {
  const bool is_dialled = station_.commander.dialling().has_value();
  if (const auto* lead = std::get_if<Lead>(&message.body)) {
    if (is_dialled) follow(message.about, *lead);
  } else if (const auto* refused = std::get_if<Refused>(&message.body)) {
    if (is_dialled) on_refused(*refused);
  } else if (const auto* credit = std::get_if<Credit>(&message.body)) {
    if (station_.course.accepts(message.about)) streams_.hear(message.about, *credit);
  } else {
    unheard_.push_back(std::move(message));
  }
}

std::optional<Message> Following::take() {
  if (unheard_.empty()) return std::nullopt;
  Message message = std::move(unheard_.front());
  unheard_.pop_front();
  return message;
}

/// A coordinator says that it leads. It is told all that it has to know, and gets what was kept.
void Following::follow(const Subject& about, const Lead& lead) {
  AgentCourse& course = station_.course;
  Commander& commander = station_.commander;
  const bool is_of_job = course.accepts(about);
  if (is_of_job && course.follow(lead.term, monotonic_now())) {
    commander.meet(lead.term);
    orders_.carry_out();
    return streams_.renew_credit(commander.send_kept());
  }
  unheard_.clear();
  commander.refuse(is_of_job ? fmt::format("it leads in term {}, and another one in term {}",
                                           lead.term, course.term())
                             : "it is of another job than the ranks of this agent",
                   /*waits=*/false, monotonic_now());
}

/// One that leads cannot take it. It may be that others have to come first.
void Following::on_refused(const Refused& refused) {
  const bool waits = refused.code == Code::kUnavailable;
  if (waits) alone_since_ = Time::never();
  unheard_.clear();
  station_.commander.refuse(refused.why, waits, monotonic_now());
}

}  // namespace corro::agent
