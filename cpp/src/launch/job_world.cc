#include "launch/job_world.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>

#include "diagnosis/exit_status.h"
#include "launch/agents.h"
#include "launch/rank_start.h"

namespace corro::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kLook = seconds(1);
constexpr Duration kCutLink = milliseconds(3400);  ///< Until engines take a silent peer for lost.
constexpr Duration kPatience = seconds(600);       ///< Of an agent that nobody leads.
constexpr uint64_t kMostEvents = 1'000'000;

std::string name_of_host(size_t host) { return fmt::format("node{}", host); }

/// Says nothing new when it comes again.
bool may_come_twice(const agent::MessageBody& body) {
  return std::holds_alternative<agent::ReadyForEpoch>(body) ||
         std::holds_alternative<agent::Ended>(body) || std::holds_alternative<agent::Seen>(body) ||
         std::holds_alternative<agent::Leaving>(body) ||
         std::holds_alternative<agent::Prepare>(body) ||
         std::holds_alternative<agent::Members>(body);
}

}  // namespace

JobFacts JobWorld::facts_of(const Options& options) {
  JobFacts job;
  job.job_id = "job";
  job.ranks = options.ranks;
  job.most = options.most;
  int rank = 0;
  for (size_t host = 0; host < options.slots.size(); ++host) {
    const int ranks = std::min(options.slots[host], options.ranks - rank);
    job.hosts.push_back({.name = name_of_host(host),
                         .own = host == 0 && !options.standalone,
                         .first_rank = rank,
                         .ranks = ranks,
                         .spare = options.most > 0 ? options.slots[host] - ranks : 0,
                         .address = ""});
    rank += ranks;
  }
  return job;
}

JobCourse::Options JobWorld::course_options(const Options& options) {
  JobCourse::Options course{.several_hosts = options.slots.size() > 1,
                            .remembers = options.standalone};
  if (options.least)
    course.elastic = coord::Options{.least = *options.least,
                                    .most = options.most,
                                    .patience = seconds(60),
                                    .step = seconds(20)};
  return course;
}

JobWorld::JobWorld(const Options& options, uint32_t seed)
    : options_(options),
      random_(seed),
      delay_us_(static_cast<int>(
          std::chrono::duration_cast<std::chrono::microseconds>(options.delay).count())),
      course_(new_course()) {
  for (size_t host = 0; host < options.slots.size(); ++host) {
    const bool far = host > 0 || options.standalone;
    hosts_.push_back({.agent = agent::AgentCourse(name_of_host(host), far, now_)});
  }
}

std::unique_ptr<JobCourse> JobWorld::new_course() const {
  const JobFacts facts = facts_of(options_);
  return std::make_unique<JobCourse>(facts, new_members(wire::digest_of("job"), facts.places()),
                                     course_options(options_), now_);
}

void JobWorld::at(Time when, std::function<void()> what) {
  due_.push({.when = std::max(when, now_), .order = ++order_, .what = std::move(what)});
}

void JobWorld::begin() {
  for (Host& host : hosts_) EXPECT_TRUE(host.agent.follow(term_, now_));
  have([this](JobCourse& course) { course.begin(now_); });
  after(kLook, [this] { look(); });
}

void JobWorld::run(Time until) {
  while (!due_.empty() && !over() && due_.top().when <= until && !testing::Test::HasFailure()) {
    const Due next = due_.top();
    due_.pop();
    now_ = next.when;
    next.what();
    ASSERT_LT(order_, kMostEvents) << "it turns in circles: " << notes_;
  }
}

bool JobWorld::over() const {
  return fenced_ &&
         std::ranges::all_of(hosts_, [](const Host& host) { return host.gone || host.fenced; });
}

// -- the launcher ---------------------------------------------------------------------------------

void JobWorld::have(const std::function<void(JobCourse&)>& act) {
  if (course_ == nullptr) return;
  act(*course_);
  carry_out_orders();
}

void JobWorld::look() {
  after(kLook, [this] { look(); });
  have([this](JobCourse& course) { course.look(now_); });
  for (size_t host = 0; host < hosts_.size(); ++host) {
    if (course_ != nullptr && is_far(host)) {
      AgentLink link;
      link.heard = hosts_[host].heard;
      link.suspected = hosts_[host].suspected;
      if (now_ >= link.heard + silence_of(link, now_)) lose(host, "nothing was heard of it");
    }
    watch_agent(host);
  }
  if (course_ != nullptr)
    carry_out(TellAll{{{.job = wire::digest_of("job"), .epoch = course_->epoch()}, agent::Look{}}});
}

void JobWorld::tick() {
  tick_at_ = Time::never();
  have([this](JobCourse& course) { course.tick(now_); });
}

void JobWorld::carry_out_orders() {
  const uint64_t term = term_;
  const auto leads = [this, term] { return course_ != nullptr && term_ == term; };
  for (std::vector<JobOrder> orders = course_->take_orders(); !orders.empty();
       orders = course_->take_orders()) {
    for (const JobOrder& order : orders) {
      std::visit([this](const auto& what) { carry_out(what); }, order);
      if (!leads()) return;
    }
  }
  const bool is_over = course_->running() == 0 || !course_->refused().empty();
  if (is_over && !std::exchange(fenced_, true)) {
    course_->fence();
    return carry_out_orders();
  }
  if (course_->wake() >= tick_at_) return;
  tick_at_ = course_->wake();
  at(tick_at_, [this] { tick(); });
}

void JobWorld::carry_out(const TellAll& order) {
  if (const auto* members = std::get_if<agent::Members>(&order.message.body))
    note_map(order.message.about.epoch, *members);
  for (size_t host = 0; host < hosts_.size() && course_ != nullptr; ++host)
    if (order.from != host) send(host, order.message);
}

void JobWorld::carry_out(const Remember& order) {
  if (leaves_launcher()) record_ = order.record;
}

void JobWorld::carry_out(const StartRank& order) {
  agent::Start start;
  if (order.joins) start.environment["CORRO_JOINS"] = "1";
  send(order.seat.host, {order.about, std::move(start)});
}

void JobWorld::lose(size_t host, const std::string& why) {
  if (hosts_[host].fenced || course_ == nullptr || std::exchange(hosts_[host].gone, true)) return;
  have([&](JobCourse& course) { course.lose_host(host, why, now_); });
}

// -- one launcher after another -------------------------------------------------------------------

void JobWorld::crash_launcher(int messages) {
  if (options_.standalone && !fenced_) crash_in_ = messages;
}

bool JobWorld::leaves_launcher() {
  if (!crash_in_ || fenced_) return true;
  if (--*crash_in_ >= 0) return true;
  end_lead();
  return false;
}

/// It is gone, and so are its connections. Another one leads when the lease is over.
void JobWorld::end_lead() {
  crash_in_.reset();
  course_.reset();
  for (size_t host = 0; host < hosts_.size(); ++host) part_with(host);
  after(milliseconds(pick(8000)), [this] { lead(); });
}

void JobWorld::lead() {
  ++term_;
  tick_at_ = Time::never();
  course_ = new_course();
  for (size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].gone = hosts_[host].fenced = false;
    hosts_[host].heard = now_;
  }
  if (record_) {
    record_->hosts.resize(hosts_.size());
    course_->resume(*record_, now_);
  }
  for (size_t host = 0; host < hosts_.size(); ++host) dial(host);
  have([this](JobCourse& course) {
    if (!record_) course.begin(now_);
  });
}

/// The agent has dialled the launcher that leads.
void JobWorld::dial(size_t host) {
  Host& there = hosts_[host];
  const bool is_cut = there.up_way.cut || there.down_way.cut;
  if (!there.up || there.met || is_cut || course_ == nullptr) return;
  there.met = true;
  there.alone = Time::never();
  agent::Hello hello;
  hello.term = there.agent.term();
  hello.prepared = there.agent.prepared();
  say(host, {{.job = wire::digest_of("job")}, hello});
  send_now(host, {{.job = wire::digest_of("job"), .epoch = course_->epoch()}, agent::Lead{term_}});
}

/// What is on its way is lost.
void JobWorld::part_with(size_t host) {
  Host& there = hosts_[host];
  if (!std::exchange(there.met, false)) return;
  there.alone = now_;
  there.up_way.queue.clear();
  there.down_way.queue.clear();
  if (course_ == nullptr) return;
  after(soon(), [this, host, term = term_] {
    if (term == term_) lose(host, "its connection has ended");
  });
}

// -- links ----------------------------------------------------------------------------------------

void JobWorld::send(size_t host, const agent::Message& message) {
  if (hosts_[host].gone || !hosts_[host].met || !leaves_launcher()) return;
  send_now(host, message);
}

void JobWorld::send_now(size_t host, const agent::Message& message) {
  const bool twice = may_come_twice(message.body) && pick(100) < options_.twice;
  for (int i = 0; i < (twice ? 2 : 1); ++i) hosts_[host].down_way.queue.push_back(message);
  pump(host, /*up=*/false);
}

void JobWorld::say(size_t host, const agent::Message& message) {
  if (!hosts_[host].met) return;
  const bool twice = may_come_twice(message.body) && pick(100) < options_.twice;
  for (int i = 0; i < (twice ? 2 : 1); ++i) hosts_[host].up_way.queue.push_back(message);
  pump(host, /*up=*/true);
}

void JobWorld::after_messages(int messages, std::function<void()> what) {
  after_messages_[messages_ + messages] = std::move(what);
}

void JobWorld::count_message() {
  const auto what = after_messages_.extract(messages_++);
  if (what) what.mapped()();
}

/// One message after another.
void JobWorld::pump(size_t host, bool up) {
  Direction& way = up ? hosts_[host].up_way : hosts_[host].down_way;
  if (way.cut || way.queue.empty() || std::exchange(way.pumps, true)) return;
  after(soon(), [this, host, up] {
    count_message();
    Direction& same = up ? hosts_[host].up_way : hosts_[host].down_way;
    same.pumps = false;
    if (same.cut || same.queue.empty()) return;
    const agent::Message message = std::move(same.queue.front());
    same.queue.pop_front();
    up ? hear_agent(host, message) : hear_launcher(host, message);
    pump(host, up);
  });
}

void JobWorld::hear_launcher(size_t host, const agent::Message& message) {
  Host& here = hosts_[host];
  if (!here.up) return;
  here.agent.hear_life(now_);
  if (!here.agent.accepts(message.about)) return;
  if (const auto* lead = std::get_if<agent::Lead>(&message.body)) {
    EXPECT_TRUE(here.agent.follow(lead->term, now_));
    return carry_out_agent(host);
  }
  if (std::holds_alternative<agent::Start>(message.body)) start(host, message);
  here.agent.hear(message, now_);
  carry_out_agent(host);
}

void JobWorld::hear_agent(size_t host, const agent::Message& message) {
  Host& there = hosts_[host];
  if (there.gone && options_.standalone) return kill_stranger(host, message);
  if (there.gone) return;
  there.heard = now_;
  if (std::holds_alternative<agent::Fenced>(message.body)) there.fenced = true;
  have([&](JobCourse& course) {
    message.about.rank < 0 ? course.hear_host(host, message, now_)
                           : course.hear(host, message, now_);
  });
}

/// A host that was lost, and dials, is another one: none of its processes takes part.
void JobWorld::kill_stranger(size_t host, const agent::Message& message) {
  if (!std::holds_alternative<agent::Started>(message.body)) return;
  send_now(host, {message.about, agent::Signal{.number = SIGKILL}});
}

// -- agents ---------------------------------------------------------------------------------------

void JobWorld::start(size_t host, const agent::Message& message) {
  Host& here = hosts_[host];
  if (here.agent.state() != agent::AgentCourse::State::kWatching) return;
  const Status admitted = here.agent.admit(message.about);
  const bool joins = std::get<agent::Start>(message.body).environment.contains("CORRO_JOINS");
  constexpr int kFails = 30;
  if (!admitted.ok() || (joins && pick(kFails) == 0))
    return say(host, {message.about, agent::Refused{.why = "it does not start"}});
  if (joins) check_place(message.about);
  const size_t process = processes_.size();
  processes_.push_back({.about = message.about,
                        .host = host,
                        .rank = here.processes.size(),
                        .term = term_,
                        .joins = joins,
                        .number = message.about.rank});
  here.processes.push_back(process);
  here.agent.on_start(message.about, static_cast<int32_t>(process) + 1);
  after(milliseconds(50 + pick(500)), [this, process] { begin_work(process); });
}

void JobWorld::carry_out_agent(size_t host) {
  for (auto orders = hosts_[host].agent.take_orders(); !orders.empty();
       orders = hosts_[host].agent.take_orders()) {
    for (const agent::AgentOrder& order : orders)
      std::visit([this, host](const auto& what) { carry_out(host, what); }, order);
  }
  const auto state = hosts_[host].agent.state();
  if (state != agent::AgentCourse::State::kFencing && state != agent::AgentCourse::State::kDraining)
    return;
  after(milliseconds(5), [this, host] {
    Host& here = hosts_[host];
    if (!here.up || here.agent.state() == agent::AgentCourse::State::kFenced) return;
    std::vector<pid_t> rest;
    for (const size_t process : here.processes)
      if (runs(process)) rest.push_back(static_cast<pid_t>(process));
    here.agent.see_rest(rest, now_);
    here.agent.drain(/*open=*/false, /*held=*/false, now_);
    carry_out_agent(host);
    if (here.agent.state() == agent::AgentCourse::State::kFenced) here.up = !here.agent.leaves();
  });
}

/// One that hears nothing of the launcher ends all it has, or dials it anew.
void JobWorld::watch_agent(size_t host) {
  const Host& here = hosts_[host];
  if (!here.up) return;
  const bool is_silent = here.met && now_ >= here.agent.silent_at();
  if (!options_.standalone) return is_silent ? crash(host) : void();
  if (is_silent) part_with(host);
  if (here.alone != Time::never() && now_ >= here.alone + kPatience) return crash(host);
  dial(host);
}

void JobWorld::carry_out(size_t host, const agent::Report& order) {
  const Process& process = processes_[hosts_[host].processes[order.rank]];
  const agent::Subject about = hosts_[host].agent.about(order.rank);
  diagnosis::RankEnd end;
  end.rank = about.rank;
  end.pid = static_cast<pid_t>(order.rank) + 1;
  end.paused = process.stopped;
  if (!order.ended) return say(host, {about, agent::Seen{.end = end, .clock = now_.since_start}});
  end.ended = true;
  end.status = process.status;
  end.stopped = hosts_[host].agent.ending() || hosts_[host].agent.is_fenced(order.rank);
  say(host, {about, agent::Ended{.end = end, .clock = now_.since_start}});
}

void JobWorld::carry_out(size_t host, const agent::SendSignal& order) {
  for (size_t rank = 0; rank < hosts_[host].processes.size(); ++rank)
    if (order.rank.value_or(rank) == rank) signal_rank(hosts_[host].processes[rank], order.number);
}

void JobWorld::carry_out(size_t host, const agent::KillRank& order) {
  kill(hosts_[host].processes[order.rank]);
}

void JobWorld::carry_out(size_t /*host*/, const agent::KillRest& order) {
  for (const pid_t process : order.processes) kill(static_cast<size_t>(process));
}

void JobWorld::carry_out(size_t host, const agent::PrepareWorker& order) {
  const size_t process = hosts_[host].processes[order.rank];
  tell(process, [=, this] { prepare(process, order.epoch, order.how.at_once); });
}

void JobWorld::carry_out(size_t host, const agent::CommitWorker& order) {
  const size_t process = hosts_[host].processes[order.rank];
  tell(process, [=, this] { commit(process, order.epoch, order.number, order.last); });
}

// -- ranks ----------------------------------------------------------------------------------------

/// In order, and not before it goes on.
void JobWorld::tell(size_t process, std::function<void()> what) {
  Process& to = processes_[process];
  to.hears_at = std::max(to.hears_at, now_ + soon());
  at(to.hears_at, [this, process, what = std::move(what)] {
    count_message();
    Process& one = processes_[process];
    if (!runs(process)) return;
    one.stopped ? one.unheard.push_back(what) : what();
  });
}

void JobWorld::begin_work(size_t process) {
  Process& one = processes_[process];
  if (!runs(process)) return;
  if (one.stopped) {
    one.unheard.emplace_back([=, this] { begin_work(process); });
    return;
  }
  hosts_[one.host].agent.on_join(one.rank);
  carry_out_agent(one.host);
  if (one.joins || one.broken_off > one.epoch) return leave(process, one.comes.value_or(0));
  meet(process);
}

void JobWorld::prepare(size_t process, uint32_t epoch, bool at_once) {
  Process& one = processes_[process];
  if (at_once) one.broken_off = epoch;
  one.comes = epoch;
  if (one.state == State::kStarting) return;
  const bool enters = one.begun && one.begun->epoch >= one.broken_off;
  if (one.state == State::kWaiting && enters) return;
  if (one.state == State::kWaiting || at_once) return leave(process, epoch);
  try_step(one.epoch);
}

void JobWorld::commit(size_t process, uint32_t epoch, int32_t number, bool last) {
  Process& one = processes_[process];
  EXPECT_TRUE(one.joins || epoch > one.epoch) << "epochs never go back";
  one.begun = {.epoch = epoch, .number = number, .last = last};
  if (one.comes && *one.comes <= epoch) one.comes.reset();
  after(milliseconds(pick(20)), [=, this] { tell(process, [=, this] { enter(process); }); });
}

/// As runtime::EpochLink does, when it looks.
void JobWorld::enter(size_t process) {
  Process& one = processes_[process];
  const auto begun = std::exchange(one.begun, std::nullopt);
  if (!begun || one.state != State::kWaiting || begun->epoch < one.broken_off) return;
  one.joins = false;
  one.epoch = begun->epoch;
  one.number = begun->number;
  one.last = begun->last;
  meet(process);
}

/// It has left its engine.
void JobWorld::leave(size_t process, uint32_t for_epoch, int32_t lost) {
  Process& one = processes_[process];
  one.state = State::kWaiting;
  hosts_[one.host].agent.on_ready(one.rank,
                                  {.epoch = for_epoch, .steps = one.applied.size(), .lost = lost});
  carry_out_agent(one.host);
  if (!one.joins) try_step(one.epoch);  // Others wait in vain.
}

/// Its engine has lost a peer.
void JobWorld::lose_peer(size_t process, uint32_t epoch, int32_t number) {
  Process& one = processes_[process];
  const bool in_engine = one.state == State::kMeeting || one.state == State::kComputing ||
                         one.state == State::kReducing;
  if (!in_engine || one.epoch != epoch) return;
  constexpr int kRaised = 1;
  if (!options_.least) return end(process, W_EXITCODE(kRaised, 0));
  one.comes.value_or(0) > epoch ? leave(process, *one.comes) : leave(process, epoch, number);
}

void JobWorld::meet(size_t process) {
  Process& one = processes_[process];
  one.state = State::kMeeting;
  for (const size_t peer : peers_of(one.epoch)) {
    const bool is_cut = is_parted(one.host, processes_[peer].host);
    if (runs(peer) && !is_cut) continue;
    const auto notice = [=, this, epoch = one.epoch, other = processes_[peer].host] {
      const bool is_lost = !runs(peer) || is_parted(processes_[process].host, other);
      const auto found =
          std::ranges::find(maps_[epoch], processes_[peer].about.member, &agent::Member::uuid);
      if (is_lost && found != maps_[epoch].end()) lose_peer(process, epoch, found->rank);
    };
    after(is_cut ? kCutLink : soon(), [=, this] { tell(process, notice); });
  }
  try_step(one.epoch);
}

void JobWorld::compute(size_t process) {
  Process& one = processes_[process];
  one.state = State::kComputing;
  const auto span = options_.step / 2 + options_.step * pick(100) / 100;
  after(span, [=, this, epoch = one.epoch, step = one.applied.size()] {
    tell(process, [=, this] {
      const Process& same = processes_[process];
      const bool goes_on = same.state == State::kComputing && same.epoch == epoch;
      if (goes_on && same.applied.size() == step) reduce(process);
    });
  });
}

void JobWorld::reduce(size_t process) {
  processes_[process].state = State::kReducing;
  try_step(processes_[process].epoch);
}

/// Whether all members of an epoch have met, or come to the same step: then each hears of it, late.
/// Where one has left it, who waits there, and was told to leave, does.
void JobWorld::try_step(uint32_t epoch) {
  const std::vector<size_t> members = peers_of(epoch);
  if (members.size() < maps_[epoch].size()) return;  // Some were not started yet.
  const auto is_in = [&](size_t peer, State state) {
    const Process& one = processes_[peer];
    return one.state == state && one.epoch == epoch && !one.stopped &&
           std::ranges::none_of(
               members, [&](size_t other) { return is_parted(one.host, processes_[other].host); });
  };
  const Process& first = processes_[members[0]];
  const auto reduces = [&](size_t peer) {
    return is_in(peer, State::kReducing) && processes_[peer].applied.size() == first.applied.size();
  };
  if (std::ranges::all_of(members, [&](size_t peer) { return is_in(peer, State::kMeeting); }))
    return begin_epoch(epoch, members);
  if (std::ranges::all_of(members, reduces)) return apply(epoch, members);
  const auto has_left = [&](size_t peer) {
    return !runs(peer) || processes_[peer].epoch > epoch ||
           processes_[peer].state == State::kWaiting;
  };
  if (std::ranges::none_of(members, has_left)) return;
  for (const size_t peer : members) {
    const Process& one = processes_[peer];
    if (one.epoch != epoch || one.state != State::kReducing || !leaves(one)) continue;
    tell(peer, [=, this] {
      const Process& same = processes_[peer];
      if (same.epoch == epoch && same.state == State::kReducing && leaves(same))
        leave(peer, *same.comes);
    });
  }
}

/// All get the state of whoever has applied most.
void JobWorld::begin_epoch(uint32_t epoch, const std::vector<size_t>& members) {
  if (!begun_.insert(epoch).second) return;
  size_t lead = members[0];
  for (const size_t peer : members)
    if (processes_[peer].applied.size() > processes_[lead].applied.size()) lead = peer;
  const std::vector<Step> state = processes_[lead].applied;
  EXPECT_GE(state.size(), committed_) << "a step that all had applied is lost: " << notes_;
  for (const size_t peer : members) {
    tell(peer, [=, this] {
      Process& one = processes_[peer];
      if (one.state != State::kMeeting || one.epoch != epoch) return;
      EXPECT_LE(one.applied.size(), state.size());
      one.applied = state;
      if (one.last) return end(peer, W_EXITCODE(diagnosis::kLeftExit, 0));
      compute(peer);
    });
  }
}

void JobWorld::apply(uint32_t epoch, const std::vector<size_t>& members) {
  const size_t step = processes_[members[0]].applied.size();
  if (!reduced_.insert({epoch, step}).second) return;
  const Step done = take_samples(epoch, members);
  for (const size_t peer : members) {
    tell(peer, [=, this] {
      Process& one = processes_[peer];
      if (one.state != State::kReducing || one.epoch != epoch || one.applied.size() != step) return;
      one.applied.push_back(done);
      if (++appliers_[{epoch, step}] == maps_[epoch].size())
        committed_ = std::max(committed_, step + 1);
      if (std::cmp_equal(one.applied.size(), options_.steps)) return end(peer, 0);
      leaves(one) ? leave(peer, *one.comes) : compute(peer);
    });
  }
}

/// Each member has taken one.
JobWorld::Step JobWorld::take_samples(uint32_t epoch, const std::vector<size_t>& members) const {
  const auto cursor_of = [this](size_t process) {
    const std::vector<Step>& applied = processes_[process].applied;
    return applied.empty() ? 0 : applied.back().cursor;
  };
  const uint64_t cursor = cursor_of(members[0]);
  std::set<uint64_t> taken;
  for (const size_t process : members) {
    const Process& one = processes_[process];
    EXPECT_TRUE(taken.insert(cursor_of(process) + static_cast<uint64_t>(one.number)).second)
        << "a sample is taken twice: " << notes_;
  }
  EXPECT_TRUE(*taken.begin() == cursor && *taken.rbegin() + 1 - cursor == taken.size())
      << "a sample is left out: " << notes_;
  return {.epoch = epoch, .cursor = cursor + taken.size()};
}

void JobWorld::end(size_t process, int status) {
  Process& one = processes_[process];
  if (!runs(process)) return;
  one.state = State::kOver;
  one.status = status;
  const bool well = status == 0;
  if (hosts_[one.host].up) {
    hosts_[one.host].agent.on_end(one.rank, well);
    hosts_[one.host].agent.tell_departures([](int32_t) { return true; }, [] { return false; });
    carry_out_agent(one.host);
  }
  if (well || one.joins) return;
  const Duration noticed = hosts_[one.host].up ? Duration::zero() : kCutLink;
  for (const size_t peer : peers_of(one.epoch)) {
    const auto notice = [=, this, epoch = one.epoch, number = one.number] {
      lose_peer(peer, epoch, number);
    };
    if (peer != process) after(noticed, [=, this] { tell(peer, notice); });
  }
}

void JobWorld::signal_rank(size_t process, int number) {
  if (number == SIGTERM && options_.least) return ask_to_end(process);
  if (number == SIGTERM || number == SIGINT || number == SIGKILL) end(process, number);
}

// -- faults ---------------------------------------------------------------------------------------

void JobWorld::stop(size_t process) { processes_[process].stopped = runs(process); }

void JobWorld::go_on(size_t process) {
  Process& one = processes_[process];
  if (!std::exchange(one.stopped, false) || !runs(process)) return;
  for (auto& what : std::exchange(one.unheard, {})) tell(process, std::move(what));
  try_step(one.epoch);
}

void JobWorld::ask_to_end(size_t process) {
  Process& one = processes_[process];
  if (!runs(process) || one.stopped || std::exchange(one.asked, true)) return;
  hosts_[one.host].agent.on_leave(one.rank);
  carry_out_agent(one.host);
}

void JobWorld::ask_host_to_end(size_t host) {
  if (!options_.standalone || !hosts_[host].up) return;
  hosts_[host].agent.on_leave();
  carry_out_agent(host);
}

void JobWorld::crash(size_t host) {
  Host& here = hosts_[host];
  if (!std::exchange(here.up, false)) return;
  for (const size_t process : here.processes) kill(process);
  here.up_way.queue.clear();
  if (here.up_way.cut) return;  // Nobody hears of it.
  after(soon(), [this, host] { lose(host, "its agent was killed"); });
}

void JobWorld::cut(size_t host, bool up, bool down) {
  hosts_[host].up_way.cut = hosts_[host].up_way.cut || up;
  hosts_[host].down_way.cut = hosts_[host].down_way.cut || down;
}

void JobWorld::part(size_t one, size_t other) {
  if (one == other || !parted_.insert(std::minmax(one, other)).second) return;
  for (size_t process = 0; process < processes_.size(); ++process) {
    const Process& accuser = processes_[process];
    if (!runs(process) || accuser.joins) continue;
    for (const size_t peer : peers_of(accuser.epoch)) {
      if (!is_parted(accuser.host, processes_[peer].host)) continue;
      after(kCutLink, [=, this, epoch = accuser.epoch, number = processes_[peer].number] {
        if (is_parted(processes_[process].host, processes_[peer].host))
          tell(process, [=, this] { lose_peer(process, epoch, number); });
      });
    }
  }
}

void JobWorld::mend() {
  parted_.clear();
  for (size_t host = 0; host < hosts_.size(); ++host) {
    hosts_[host].up_way.cut = hosts_[host].down_way.cut = false;
    pump(host, true);
    pump(host, false);
  }
  for (size_t process = 0; process < processes_.size(); ++process) go_on(process);
  for (size_t process = 0; process < processes_.size(); ++process)
    if (runs(process)) try_step(processes_[process].epoch);
}

void JobWorld::offer(size_t host, int slots) {
  if (hosts_[host].gone || course_ == nullptr || !course_->evolves()) return;
  have([&](JobCourse& course) { course.offer_host(host, name_of_host(host), slots, now_); });
}

void JobWorld::signal(int number) {
  have([&](JobCourse& course) { course.on_signal(number, now_); });
}

// -- what holds -----------------------------------------------------------------------------------

std::vector<size_t> JobWorld::peers_of(uint32_t epoch) const {
  std::vector<size_t> members;
  const auto map = maps_.find(epoch);
  if (map == maps_.end()) return members;
  for (const agent::Member& member : map->second) {
    const auto found = std::ranges::find_if(
        processes_, [&](const Process& one) { return one.about.member == member.uuid; });
    if (found != processes_.end())
      members.push_back(static_cast<size_t>(found - processes_.begin()));
  }
  return members;
}

bool JobWorld::is_parted(size_t one, size_t other) const {
  return parted_.contains(std::minmax(one, other));
}

/// Nobody starts a joiner where another one is. A coordinator that leads anew does not know those of
/// the one before.
void JobWorld::check_place(const agent::Subject& joiner) const {
  EXPECT_TRUE(std::ranges::none_of(processes_,
                                   [&](const Process& one) {
                                     return one.state != State::kOver && one.joins &&
                                            one.term == term_ && one.about.rank == joiner.rank;
                                   }))
      << "two processes in place " << joiner.rank << ": " << notes_;
}

void JobWorld::note_map(uint32_t epoch, const agent::Members& members) {
  if (const auto known = maps_.find(epoch); known != maps_.end()) {
    EXPECT_TRUE(options_.standalone && known->second == members.members)
        << "two maps of epoch " << epoch;
    return;
  }
  EXPECT_TRUE(maps_.empty() || epoch > maps_.rbegin()->first) << "epochs never go back";
  EXPECT_FALSE(members.members.empty());
  std::set<std::array<std::byte, 16>> uuids;
  for (const agent::Member& member : members.members) uuids.insert(member.uuid);
  EXPECT_EQ(uuids.size(), members.members.size()) << "each member once";
  // Who was there keeps the order of its rank, and comes before who is new.
  if (!maps_.empty()) {
    const std::vector<agent::Member>& before = maps_.rbegin()->second;
    ptrdiff_t last = -1;
    for (const agent::Member& member : members.members) {
      const auto found = std::ranges::find(before, member.uuid, &agent::Member::uuid);
      EXPECT_GT(found - before.begin(), found == before.end() ? last - 1 : last)
          << "ranks keep their order";
      last = found - before.begin();
    }
  }
  maps_[epoch] = members.members;
}

void JobWorld::check_end() {
  ASSERT_TRUE(over()) << "it does not end at " << now_.since_start / seconds(1) << " s: " << notes_;
  for (size_t process = 0; process < processes_.size(); ++process)
    EXPECT_TRUE(!runs(process) || hosts_[processes_[process].host].gone) << "a process is left";
  check_histories();
  const JobCourse::Result result = course_->result(now_);
  const auto is_well = [&](const diagnosis::RankEnd& end) {
    return diagnosis::ended_well(end) || (result.last && diagnosis::has_left(end));
  };
  EXPECT_FALSE(result.ends.empty()) << "somebody's end is the job's: " << notes_;
  const bool all_well = std::ranges::all_of(result.ends, is_well);
  const bool has_reason = !result.no_way_on.empty() || !options_.least || result.asked;
  EXPECT_TRUE(all_well || has_reason) << "nobody says why it has ended: " << notes_;
}

/// Who has ended well has done all steps, and the same as the others. Each was begun in the epoch in
/// which its members were one world, and took the samples behind those of the one before.
void JobWorld::check_histories() const {
  const Process* first = nullptr;
  for (const Process& one : processes_) {
    EXPECT_TRUE(std::ranges::is_sorted(one.applied, {}, &Step::epoch));
    if (one.status != 0) continue;
    EXPECT_TRUE(std::cmp_equal(one.applied.size(), options_.steps));
    if (first == nullptr) first = &one;
    EXPECT_EQ(one.applied, first->applied) << "two histories: " << notes_;
  }
  uint64_t cursor = 0;
  for (const Step& step : first == nullptr ? std::vector<Step>{} : first->applied) {
    cursor += maps_.at(step.epoch).size();
    EXPECT_EQ(step.cursor, cursor) << "samples are lost: " << notes_;
  }
}

}  // namespace corro::launch
