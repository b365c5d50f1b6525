#include "launch/job_course.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>

#include "diagnosis/exit_status.h"
#include "diagnosis/flight_text.h"

namespace corro::launch {
namespace {

using diagnosis::RankEnd;

constexpr Duration kOldest = std::chrono::hours(24 * 365);  ///< Of what has an age.
constexpr Duration kOrphanGrace =
    std::chrono::milliseconds(500);  ///< For what a finished rank left running.

/// As what a rank has done.
std::string describe_end(const RankEnd& end) {
  if (diagnosis::ended_well(end)) return "has done its work";
  return (WIFSIGNALED(end.status) ? "was " : "ended with ") + diagnosis::describe_status(end);
}

/// Its own, and not what the loss of another rank or the end of the job has done to it.
bool is_loss(const RankEnd& end) {
  const bool is_own = !end.stopped && !diagnosis::is_witness(end);
  return is_own && !diagnosis::ended_well(end) && !diagnosis::has_left(end);
}

EventKind kind_of(wire::NoticeKind kind) {
  if (kind == wire::NoticeKind::kPlan) return EventKind::kPlan;
  if (kind == wire::NoticeKind::kTraining) return EventKind::kTraining;
  return EventKind::kCheckpoint;
}

/// As it would be said after it has waited so long.
agent::Message aged(agent::Message message, Duration waited) {
  auto* notice = std::get_if<agent::Notice>(&message.body);
  if (notice != nullptr) notice->age = std::min(notice->age, kOldest) + waited;
  return message;
}

EventKind kind_of(Epochs::News::Kind kind) {
  using Kind = Epochs::News::Kind;
  if (kind == Kind::kPolicy) return EventKind::kPolicy;
  if (kind == Kind::kFenced) return EventKind::kFenced;
  return kind == Kind::kBegun ? EventKind::kEpoch : EventKind::kPrepare;
}

}  // namespace

JobCourse::JobCourse(const JobFacts& job, std::vector<agent::Subject> members, Options options,
                     Time now)
    : options_(std::move(options)),
      job_(members[0].job),
      started_(now),
      members_(job, std::move(members), options_.elastic),
      servers_(job, job_),
      ends_(members_.places()),
      hang_watch_(options_.long_wait),
      fatal_watch_(options_.hang_timeout) {
  for (size_t place = 0; place < ends_.size(); ++place) {
    ends_[place].rank = static_cast<int>(place);
    ends_[place].ended = true;
  }
}

void JobCourse::begin(Time now) {
  begun_ = true;
  if (options_.remembers) order(Remember{members_.record()});
  servers_.begin();
  for (size_t server = 0; server < servers_.size(); ++server)
    order(StartServer{servers_.subject(server), servers_.host_of(server), server});
  for (size_t place = 0; place < members_.size(); ++place) start_rank(place);
  order(TellAll{members_.announce()});
  stopping_.start(options_.timeout, now);
}

void JobCourse::start_rank(size_t place) {
  expect_rank(place);
  order(StartRank{members_.subject(place), members_.seat(place), members_.joins(place)});
}

void JobCourse::expect_rank(size_t place) {
  const Seat seat = members_.seat(place);
  ends_[place] = {};
  ends_[place].rank = seat.rank;
  if (options_.several_hosts) ends_[place].host = members_.host_name(seat.host);
  ++running_;
}

// -- after another coordinator --------------------------------------------------------------------

void JobCourse::resume(const JobRecord& record, Time now) {
  begun_ = true;
  members_.resume(record, now);
  for (size_t place = ends_.size(); place < members_.places(); ++place) {
    ends_.emplace_back().rank = static_cast<int>(place);
    ends_.back().ended = true;
  }
  for (const size_t place : members_.ranks()) expect_rank(place);
  for (size_t host = 0; host < record.hosts.size(); ++host)
    if (!record.hosts[host].gone) awaited_hosts_.insert(host);
  stopping_.start(options_.timeout, now);
}

/// All has been said.
void JobCourse::go_on(Time now) {
  // The record of a job that begins is written before its ranks are started.
  const bool is_new = members_.epoch() == 0 && later_.empty() && !forgotten_;
  if (is_new) {
    for (const size_t place : members_.ranks())
      order(StartRank{members_.subject(place), members_.seat(place)});
  } else {
    order(Announce{{.kind = EventKind::kLead,
                    .epoch = members_.epoch(),
                    .cause = "another coordinator goes on with the job"}});
  }
  order(TellAll{members_.announce()});
  carry_out(members_.go_on(prepared_, now), now);
  retold_ = true;
  for (const auto& what : std::exchange(later_, {})) what(now);
  retold_ = false;
  if (is_new) return;
  for (const size_t place : std::vector(members_.ranks())) {
    // Another one may have been started in the place of a member that is known to have ended.
    const bool is_there = ends_[place].pid != 0 || members_.joins(place);
    if (is_there || !runs(static_cast<int>(place))) continue;
    note(fmt::format("the process of rank {} is not there any more", place));
    lose_rank(place, now);
  }
}

void JobCourse::hear_host(size_t host, const agent::Message& message, Time now) {
  if (const auto* hello = std::get_if<agent::Hello>(&message.body)) {
    prepared_ = std::max(prepared_, hello->prepared);
    forgotten_ = forgotten_ || hello->term == 0;
  }
  if (std::holds_alternative<agent::Record>(message.body)) {
    if (!resuming()) return order(TellAll{message, host});
    later_.emplace_back([=, this](Time then) { hear_host(host, message, then); });
  }
  if (std::holds_alternative<agent::Leaving>(message.body)) leave_host(host, now);
  const bool all_said = std::holds_alternative<agent::Alive>(message.body);
  if (all_said && awaited_hosts_.erase(host) > 0 && !resuming()) go_on(now);
}

// -- what happens ---------------------------------------------------------------------------------

std::optional<size_t> JobCourse::place_of(size_t host, const agent::Subject& about) const {
  const auto place = members_.place_of(about);
  return place && host_of(*place) == host ? place : std::nullopt;
}

void JobCourse::hear(size_t host, const agent::Message& message, Time now) {
  if (const auto server = server_of(host, message.about))
    return hear_server(host, *server, message, now);
  const auto place = place_of(host, message.about);
  if (!place) {
    if (std::holds_alternative<agent::Started>(message.body))
      order(TellHost{host, {message.about, agent::Signal{.number = SIGKILL}}});
    return;
  }
  if (resuming()) {
    later_.emplace_back([=, this](Time then) { hear(host, aged(message, then - now), then); });
    return;
  }
  if (std::holds_alternative<agent::Left>(message.body)) order(TellAll{message, host});
  std::visit([&](const auto& body) { on(*place, body, now); }, message.body);
}

void JobCourse::on(size_t place, const agent::Started& started, Time /*now*/) {
  ends_[place].pid = started.pid;
  if (retold_) return;
  emit(EventKind::kStarted, place);
  if (options_.verbose)
    order(Note{
        fmt::format("corro: rank {} has pid {}\n", members_.subject(place).rank, started.pid)});
}

/// A process was not started. The job does not need one that joins.
void JobCourse::on(size_t place, const agent::Refused& refused, Time now) {
  const std::string why =
      options_.several_hosts
          ? fmt::format("host {}: {}", members_.host_name(host_of(place)), refused.why)
          : refused.why;
  if (!members_.joins(place)) return refuse(why);
  RankEnd& end = ends_[place];
  if (std::exchange(end.ended, true)) return;
  --running_;
  note(fmt::format("rank {} does not start: {}", place, why));
  if (evolves()) carry_out(members_.end(place, /*well=*/false, why, false, now), now);
}

void JobCourse::on(size_t place, const agent::Joined& /*joined*/, Time now) {
  if (retold_) return;
  emit(EventKind::kJoined, place);
  const double after = std::chrono::duration<double>(now - started_).count();
  if (options_.verbose)
    order(Note{
        fmt::format("corro: rank {} joins after {:.2f} s\n", members_.subject(place).rank, after)});
}

/// Takes what an agent says of a rank, whose operations have the times of the agent's clock.
void JobCourse::learn(size_t place, const RankEnd& said, Duration clock, Time now) {
  RankEnd& known = ends_[place];
  const Time when = known.ended ? known.when : now;
  const std::string host = std::move(known.host);
  known = said;
  known.rank = static_cast<int>(place);
  known.when = when;
  known.host = host;
  if (!known.flight) return;
  for (obs::OpSnapshot& op : known.flight->recent) translate(op, clock, now);
  for (obs::LinkTraffic& link : known.flight->links) link.peer = members_.place_of_rank(link.peer);
}

void JobCourse::translate(obs::OpSnapshot& op, Duration clock, Time now) const {
  const auto ahead = (now.since_start - clock).count();
  op.waiting_for = members_.place_of_rank(op.waiting_for);
  for (uint64_t* stamp : {&op.queued_ns, &op.started_ns, &op.done_ns})
    if (*stamp != 0) *stamp += static_cast<uint64_t>(ahead);
}

void JobCourse::on(size_t place, const agent::Ended& ended, Time now) {
  const bool first = !ends_[place].ended;
  learn(place, ended.end, ended.clock, now);
  if (!first) return;
  --running_;
  emit(EventKind::kEnded, place, diagnosis::describe_status(ends_[place]));
  saw(place, now);
  on_rank_end(ends_[place], now);
  dismiss_those_that_leave();
}

void JobCourse::on(size_t place, const agent::Seen& seen, Time now) {
  if (ends_[place].ended) return;
  const uint64_t before = ends_[place].flight ? ends_[place].flight->step : 0;
  learn(place, seen.end, seen.clock, now);
  if (ends_[place].flight && ends_[place].flight->step > before) emit(EventKind::kStep, place);
  if (evolves()) carry_out(members_.see(place, seen.end.paused, now), now);
  saw(place, now);
}

/// The rank has said what it does, or has ended: after all have, nothing more is waited for.
void JobCourse::saw(size_t place, Time now) {
  seen_.insert(place);
  const auto is_known = [this](const RankEnd& one) {
    return one.ended || seen_.contains(static_cast<size_t>(one.rank));
  };
  if (stopping_.looking() && std::ranges::all_of(ends_, is_known)) stopping_.all_seen(now);
}

void JobCourse::on(size_t place, const agent::ReadyForEpoch& ready, Time now) {
  const bool unasked = ready.epoch == members_.epoch();
  const int lost = unasked ? members_.place_of_rank(ready.lost) : -1;
  if (runs(lost)) order(SuspectHost{host_of(static_cast<size_t>(lost))});
  carry_out(members_.ready(place, ready.epoch, ready.steps, lost, now), now);
}

void JobCourse::on(size_t place, const agent::Leaving& /*leaving*/, Time now) {
  const bool is_all = stopping_.asked().has_value();
  if (evolves()) carry_out(members_.leave(place, is_all, now), now);
}

void JobCourse::on(size_t place, const agent::Notice& notice, Time now) {
  if (notice.said.kind == wire::NoticeKind::kDecisions) return keep_plan(notice, now);
  Event event = event_of(kind_of(notice.said.kind), place, notice.said.text);
  if (event.kind != EventKind::kPlan) event.step = notice.said.step;
  event.age = std::clamp(notice.age, Duration::zero(), kOldest);
  order(Announce{std::move(event)});
}

/// The newest: a coordinator that takes over hears of all that were told, in any order.
void JobCourse::keep_plan(const agent::Notice& notice, Time now) {
  const Time told = now - std::clamp(notice.age, Duration::zero(), kOldest);
  if (notice.said.text.empty() || (!plan_.empty() && told < plan_told_)) return;
  plan_ = notice.said.text;
  plan_told_ = told;
}

/// A host's agent says nothing more: it was killed, or the connection or the host is gone. Its
/// ranks are over, and so is a job that needs them.
void JobCourse::lose_host(size_t host, const std::string& why, Time now) {
  if (!begun_) return refuse(fmt::format("host {}: {}", members_.host_name(host), why), host);
  if (resuming()) {
    later_.emplace_back([=, this](Time then) { lose_host(host, why, then); });
    if (awaited_hosts_.erase(host) > 0 && !resuming()) go_on(now);
    return;
  }
  const std::vector<size_t> servers = servers_.lose_host(host);
  const std::string text = fmt::format("host {} was lost: {}", members_.host_name(host), why);
  if (running_ == 0) return order(Note{fmt::format("corro: {}\n", text)});
  order(Announce{{.kind = EventKind::kLost,
                  .epoch = members_.epoch(),
                  .host = members_.host_name(host),
                  .cause = text}});
  if (evolves()) carry_out(members_.lose_host(host, now), now);
  for (size_t place = 0; place < ends_.size(); ++place) {
    if (ends_[place].ended || host_of(place) != host) continue;
    ends_[place].lost = text;
    lose_rank(place, now);
  }
  for (const size_t server : servers)
    if (goes_on()) lose_server(server, text, now);
}

/// Its agent was asked to end. The ranks leave at the end of their step, and the agent then.
void JobCourse::leave_host(size_t host, Time now) {
  if (resuming()) {
    later_.emplace_back([=, this](Time then) { leave_host(host, then); });
    return;
  }
  if (stopping_.stopping()) return;  // All are about to end.
  leaving_hosts_.try_emplace(host, false);
  evolves() ? carry_out(members_.leave_host(host, now), now)
            : lose_host(host, "its agent was asked to end", now);
  dismiss_those_that_leave();
}

/// Once nothing runs there.
void JobCourse::dismiss_those_that_leave() {
  for (auto& [host, dismissed] : leaving_hosts_) {
    bool is_used = false;
    for (size_t place = 0; place < ends_.size(); ++place)
      is_used = is_used || (!ends_[place].ended && host_of(place) == host);
    if (is_used || std::exchange(dismissed, true)) continue;
    order(TellHost{host, {{.job = job_, .epoch = members_.epoch()}, agent::Fence{}}});
  }
}

/// Nobody knows how its process has ended.
void JobCourse::lose_rank(size_t place, Time now) {
  RankEnd& end = ends_[place];
  end.ended = true;
  end.status = SIGKILL;
  end.when = now;
  end.stopped = stopping_.stopping();
  --running_;
  on_rank_end(end, now);
}

void JobCourse::offer_host(size_t host, const std::string& name, int slots, Time now) {
  if (!leaving_hosts_.contains(host)) carry_out(members_.offer(host, name, slots, now), now);
}

void JobCourse::on_signal(int signal, Time now) {
  if (!stopping_.on_signal(signal, running_ > 0, now)) return;
  if (stopping_.asked()) members_.close();
  tell_all(agent::Signal{.number = signal});
}

void JobCourse::ask_stacks(Time now) {
  if (stacks_.running()) return;
  stacks_.begin(ends_, now);
  tell_all(agent::Stacks{});
}

void JobCourse::ask_trace(uint32_t steps, Time now) {
  if (trace_.running()) return;
  trace_.begin(ends_, now);
  tell_all(agent::Trace{.steps = steps});
}

void JobCourse::on(size_t place, const agent::Traced& traced, Time now) {
  auto process = traced.process;
  if (process)
    for (obs::TracedOp& one : process->operations) translate(one.op, traced.clock, now);
  trace_.take(place, std::move(process));
}

Time JobCourse::wake() const {
  return std::min(
      {stopping_.wake(), stacks_.due(), trace_.due(), next_epoch_at(), servers_.wake()});
}

void JobCourse::tick(Time now) {
  if (stacks_.due() <= now) order(AnswerStacks{stacks_.finish()});
  if (trace_.due() <= now) order(AnswerTrace{trace_.finish(now)});
  if (next_epoch_at() <= now) carry_out(members_.tick(now), now);
  for (Stopping::Order what = stopping_.take(now); what != Stopping::Order::kNone;
       what = stopping_.take(now))
    carry_out(what);
  replace_servers(now);
  end_servers(now);
}

void JobCourse::carry_out(Stopping::Order what) {
  switch (what) {
    case Stopping::Order::kLook:
      seen_.clear();
      return tell_all(agent::Look{});
    case Stopping::Order::kTimedOut:
      at_timeout_ = ends_;
      return;
    case Stopping::Order::kRemind:
      if (running_ > 0 && !options_.quiet)
        order(Note{"corro: waiting for the ranks to end; Ctrl-C once more stops them\n"});
      return;
    case Stopping::Order::kTerminate:
      return tell_all(agent::Signal{.number = SIGTERM, .ends = true});
    case Stopping::Order::kKill:
      return tell_all(agent::Signal{.number = SIGKILL, .ends = true});
    case Stopping::Order::kNone:
      return;
  }
}

void JobCourse::fence() {
  const bool patient = !stopping_.hard() && refused_.empty();
  tell_all(agent::Fence{.grace = patient ? kOrphanGrace : Duration::zero()});
}

// -- ranks that end -------------------------------------------------------------------------------

void JobCourse::on_rank_end(const RankEnd& end, Time now) {
  if (is_loss(end)) ++lost_;
  if (goes_on_without(end, now)) return;
  if (!diagnosis::ended_well(end) && stopping_.on_failure(is_leaving(end), now)) {
    ask_missing(end);
    order(HoldErrors{});
  } else if (diagnosis::gave_up(end)) {
    // Whom it has waited for in vain was asked to stop, too, and does not.
    stopping_.on_given_up(now);
  }
}

/// Its work is done, or it has left with all others.
bool JobCourse::ends_well(const RankEnd& end) const {
  return diagnosis::ended_well(end) || (members_.last() && diagnosis::has_left(end));
}

/// Of all that were lost before the job was ended, those of earlier epochs, too.
bool JobCourse::lost_host_last() const {
  const RankEnd* last = nullptr;
  for (const RankEnd& end : ends_) {
    if (!end.ended || end.stopped || ends_well(end)) continue;
    if (last == nullptr || last->when <= end.when) last = &end;
  }
  return last == nullptr || !last->lost.empty();
}

/// An elastic job begins a new epoch with the other ranks, unless too few are left, or it is being
/// ended.
bool JobCourse::goes_on_without(const RankEnd& end, Time now) {
  if (!evolves()) return false;
  const auto place = static_cast<size_t>(end.rank);
  const bool well = ends_well(end);
  const std::string how = fmt::format("rank {} {}", end.rank, describe_end(end));
  // Once nobody joins any more it was fenced, and is no loss.
  if (members_.joins(place) && !members_.closing()) note(how + " before it had joined");
  const Epochs::Orders orders =
      members_.end(place, well, end.lost.empty() ? how : end.lost, !end.lost.empty(), now);
  carry_out(orders, now);
  return orders.stop.empty();
}

/// Whether the witness saw a rank leave that has not ended yet.
bool JobCourse::is_leaving(const RankEnd& witness) const {
  return diagnosis::saw_it_leave(witness) && runs(diagnosis::named_by(witness));
}

/// The rank that another one has waited for has until the end of the grace to say where it is.
void JobCourse::ask_missing(const RankEnd& end) {
  const int missing = diagnosis::gave_up(end) ? diagnosis::awaited_by(end) : -1;
  if (runs(missing)) tell(static_cast<size_t>(missing), agent::Ask{});
}

void JobCourse::carry_out(const Epochs::Orders& orders, Time now) {
  for (const agent::Message& message : orders.fenced) {
    if (const auto place = members_.place_of(message.about))
      order(TellHost{host_of(*place), message});
  }
  for (const agent::Message& message : orders.messages) {
    const bool begins = std::holds_alternative<agent::Members>(message.body);
    if (begins && options_.remembers) order(Remember{members_.record()});
    order(TellAll{message});
  }
  for (const size_t place : orders.started) start_rank(place);
  for (const Epochs::News& news : orders.news) tell_people(news);
  if (orders.stop.empty()) return;
  note(orders.stop);
  order(Announce{{.kind = EventKind::kStopped, .epoch = members_.epoch(), .cause = orders.stop}});
  no_way_on_ = orders.stop;
  stopping_.on_no_way_on(now);
}

/// A fence is part of what is said of the epoch that follows: it is in the events alone.
void JobCourse::tell_people(const Epochs::News& news) {
  if (news.place) return emit(kind_of(news.kind), *news.place, news.why);
  const std::string host = news.host ? members_.host_name(*news.host) : "";
  note(host.empty() ? news.why : fmt::format("host {}: {}", host, news.why));
  order(
      Announce{{.kind = kind_of(news.kind), .epoch = news.epoch, .host = host, .cause = news.why}});
}

// -- ranks that wait ------------------------------------------------------------------------------

/// Nobody has to ask about a hang: people are told who waits for whom, as long as it lasts.
void JobCourse::look(Time now) {
  show_wait(goes_on() ? hang_watch_.look(ends_, now) : diagnosis::LongWait{}, now);
  if (evolves() && options_.hang_timeout) end_hang(fatal_watch_.look(ends_, now), now);
}

/// --hang-timeout: an elastic job goes on without a rank for which the others wait so long.
void JobCourse::end_hang(const diagnosis::LongWait& wait, Time now) {
  if (runs(wait.awaited))
    carry_out(members_.hang(static_cast<size_t>(wait.awaited), wait.text, now), now);
}

void JobCourse::show_wait(const diagnosis::LongWait& wait, Time now) {
  if (awaited_ >= 0 && wait.awaited != awaited_) {
    emit(EventKind::kWaiting, static_cast<size_t>(awaited_));
    order(EndStatus{fmt::format("corro: nobody waits for rank {} any more, after {}", awaited_,
                                diagnosis::format_span(now - awaited_since_))});
  }
  if (wait.awaited >= 0 && wait.awaited != awaited_) {
    emit(EventKind::kWaiting, static_cast<size_t>(wait.awaited), wait.text);
    awaited_since_ = now - wait.since;
  }
  awaited_ = wait.awaited;
  long_wait_ = wait.text;
  if (awaited_ >= 0 && !options_.quiet) order(ShowStatus{"corro: " + wait.text});
}

// -- what others are told -------------------------------------------------------------------------

Event JobCourse::event_of(EventKind kind, size_t place, const std::string& cause) const {
  const RankEnd& about = ends_[place];
  const agent::Subject& member = members_.subject(place);
  return {.kind = kind,
          .epoch = members_.joins(place) ? members_.epoch() : member.epoch,
          .host = members_.host_name(host_of(place)),
          .rank = member.rank,
          .place = static_cast<int>(place),
          .step = about.flight ? std::optional(about.flight->step) : std::nullopt,
          .cause = cause};
}

void JobCourse::note(const std::string& line) {
  if (!options_.quiet) order(Note{fmt::format("corro: {}\n", line)});
}

void JobCourse::tell_of_host(const std::string& name, const std::string& text) {
  note(name.empty() ? text : fmt::format("host {} {}", name, text));
  order(
      Announce{{.kind = EventKind::kHost, .epoch = members_.epoch(), .host = name, .cause = text}});
}

JobCourse::Result JobCourse::result(Time now) {
  show_wait({}, now);
  Result result{.ends = at_timeout_.empty() ? ends_ : at_timeout_,
                .timed_out = !at_timeout_.empty(),
                .asked = stopping_.asked(),
                .last = members_.last(),
                .no_way_on = no_way_on_,
                .lost_host_last = lost_host_last(),
                .epoch = members_.epoch()};
  if (!result.timed_out) {
    std::erase_if(result.ends, [this](const RankEnd& end) {
      const bool was_lost = members_.done() && !ends_well(end);
      return was_lost || members_.left(static_cast<size_t>(end.rank));
    });
  }
  return result;
}

}  // namespace corro::launch
