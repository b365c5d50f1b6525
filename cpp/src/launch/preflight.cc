#include "launch/preflight.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>
#include <set>

#include "agent/agent_process.h"
#include "agent/messages.h"
#include "io/loop.h"
#include "io/random.h"
#include "launch/agents.h"
#include "launch/hosts.h"

namespace corro::launch {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kMostPaired = 16;  ///< Hosts of which all pairs are measured.
constexpr int kClockReadings = 8;
constexpr Duration kMeetPatience = seconds(5);
constexpr Duration kProbePatience = seconds(4);  ///< The agents' own is 3 s.
constexpr Duration kTestPatience = seconds(1);
constexpr Duration kMeasureBudget = milliseconds(3500);  ///< No round starts after it.
constexpr Duration kCheckBudget = milliseconds(1500);
constexpr Duration kEndPatience = seconds(1);

Duration wall_clock() { return std::chrono::system_clock::now().time_since_epoch(); }

/// The doctor's side of one host.
struct Visit {
  std::optional<agent::Surveyed> survey;
  bool examined = false;
  Duration asked{};  ///< When the clock was asked for last.
  int readings = 0;
  std::optional<std::vector<agent::Route>> routes;
  [[nodiscard]] bool met() const { return survey && examined && readings == kClockReadings; }
};

/// Loop-confined.
class Preflight {
 public:
  Preflight(const PreflightPlan& plan, const wire::Digest& job, Agents agents, io::Loop loop,
            const std::function<void(const std::string&)>& progress)
      : plan_(plan),
        agents_(std::move(agents)),
        loop_(std::move(loop)),
        progress_(progress),
        visits_(plan.hosts.size()),
        job_(job) {
    io::fill_random(key_);
    for (const JobHost& host : plan_.hosts) health_.hosts.push_back({.name = host.name});
  }

  Result<Health> run();

 private:
  // The course.
  void meet();
  void probe();
  void measure();
  void check();
  [[nodiscard]] std::vector<Link> doubtful_links() const;
  void run_rounds(const std::vector<Round>& rounds, Duration budget, const char* what);
  void run_round(const Round& round, Duration span);
  void end();

  // The loop.
  void step(Time until);
  void on(size_t host, const agent::Hello& hello);
  void on(size_t host, const agent::Surveyed& survey);
  void on(size_t host, const agent::Examined& examined) {
    health_.hosts[host].facts = examined.facts;
    visits_[host].examined = true;
  }
  void on(size_t host, const agent::Clock& clock);
  void on(size_t host, const agent::Reached& reached) { visits_[host].routes = reached.routes; }
  void on(size_t host, const agent::Measured& measured);
  void on(size_t host, const agent::Refused& refused) { fail(host, refused.why); }
  void on(size_t host, const agent::Fenced& /*fenced*/) { agents_[host].fenced = true; }
  void on(size_t /*host*/, const auto& /*other*/) {}

  void ask_clock(size_t host);
  void fail(size_t host, const std::string& why);
  void send(size_t host, agent::MessageBody body) {
    agents_.send(host, {{.job = job_}, std::move(body)});
  }
  [[nodiscard]] bool answers(size_t host) const { return health_.hosts[host].answers(); }
  /// Waits until this is true for each host that has not failed, or time is over.
  void wait_for(const std::function<bool(const Visit&)>& is_done, Duration patience);
  [[nodiscard]] LinkHealth& health_of(const Link& link) {
    return *std::ranges::lower_bound(health_.links, link, {}, &LinkHealth::link);
  }
  [[nodiscard]] std::vector<size_t> answering() const;

  const PreflightPlan& plan_;
  Agents agents_;
  io::Loop loop_;
  const std::function<void(const std::string&)>& progress_;
  std::vector<Visit> visits_;  ///< By host.
  const wire::Digest job_;
  agent::SpeedKey key_{};
  std::set<Link> testing_;  ///< Links of this round that are not decided.
  Health health_;
};

Result<Health> Preflight::run() {
  const Time begin = monotonic_now();
  CORRO_TRY(agents_.listen(
      loop_,
      {.hear =
           [this](const AgentLink& link, const agent::Message& message) {
             std::visit([&](const auto& body) { on(link.host, body); }, message.body);
           },
       .lose = [this](const AgentLink& link, const std::string& why) { fail(link.host, why); },
       .take_over = {}}));
  meet();
  probe();
  measure();
  check();
  end();
  health_.took = monotonic_now() - begin;
  return std::move(health_);
}

// -- the course -----------------------------------------------------------------------------------

void Preflight::wait_for(const std::function<bool(const Visit&)>& is_done, Duration patience) {
  const Time until = monotonic_now() + patience;
  const auto silent = [&] {
    std::vector<size_t> hosts = answering();
    std::erase_if(hosts, [&](size_t host) { return is_done(visits_[host]); });
    return hosts;
  };
  while (!silent().empty() && monotonic_now() < until) step(until);
  for (const size_t host : silent())
    fail(host, fmt::format("no answer for {} s", duration<double>(patience).count()));
}

void Preflight::meet() {
  progress_(fmt::format("asking {} hosts", agents_.size()));
  wait_for(&Visit::met, kMeetPatience);
}

void Preflight::probe() {
  const std::vector<size_t> hosts = answering();
  if (hosts.size() > 1) progress_("finding the ways between hosts");
  for (const size_t from : hosts) {
    agent::Probe probe;
    for (const size_t to : hosts) {
      if (to == from) continue;
      probe.targets.push_back(visits_[to].survey->here);
      probe.targets.back().host = static_cast<int32_t>(to);
    }
    send(from, std::move(probe));
  }
  wait_for([](const Visit& visit) { return visit.routes.has_value(); }, kProbePatience);
  std::vector<std::vector<agent::Route>> reached;
  for (Visit& visit : visits_)
    reached.push_back(std::move(visit.routes).value_or(std::vector<agent::Route>()));
  health_.links = find_ways(reached, health_.hosts);
}

void Preflight::measure() {
  const std::vector<size_t> hosts = answering();
  std::vector<Round> rounds;
  const bool all = hosts.size() <= kMostPaired;
  for (Round& round : all ? pair_all(hosts.size()) : pair_by_distances(hosts.size())) {
    for (Link& link : round) link = {hosts[link.from], hosts[link.to]};
    rounds.push_back(round);
    if (!all) continue;
    for (Link& link : round) std::swap(link.from, link.to);
    rounds.push_back(std::move(round));
  }
  run_rounds(rounds, kMeasureBudget, "measuring links");
}

/// Other work may have disturbed a link that was slow: it is measured again, at last with nothing
/// else going on. And where not all pairs were measured, more of them tell which end is slow.
void Preflight::check() {
  constexpr int kTimes = 3;
  const Time until = monotonic_now() + kCheckBudget;
  for (int i = 0; i < kTimes && monotonic_now() < until; ++i) {
    const std::vector<Link> doubtful = doubtful_links();
    std::vector<Round> rounds = rounds_of(doubtful);
    if (i == kTimes - 1) {
      rounds.clear();
      for (const Link& link : doubtful) rounds.push_back({link});
    }
    run_rounds(rounds, until - monotonic_now(), "checking what is slow");
  }
}

std::vector<Link> Preflight::doubtful_links() const {
  const UsualLink usual = usual_link(health_.links);
  std::set<Link> measured;
  std::vector<Link> slow;
  std::vector<size_t> sound = answering();
  for (const LinkHealth& one : health_.links) {
    if (one.measured()) measured.insert(one.link);
    if (!is_slow(one, usual)) continue;
    slow.push_back(one.link);
    std::erase_if(sound, [&](size_t host) { return host == one.link.from || host == one.link.to; });
  }
  std::vector<Link> links = slow;
  for (const Link& one : slow)
    for (const Link& link : links_around(one, sound, measured))
      if (measured.insert(link).second) links.push_back(link);
  return links;
}

void Preflight::run_rounds(const std::vector<Round>& rounds, Duration budget, const char* what) {
  constexpr Duration kShortest = milliseconds(20);
  constexpr Duration kLongest = milliseconds(200);
  if (rounds.empty()) return;
  // Half of the time is for connecting and for round trips.
  const Duration share = budget / (2 * static_cast<int64_t>(rounds.size()));
  const Duration span = std::clamp(share, kShortest, kLongest);
  const Time until = monotonic_now() + budget;
  for (size_t i = 0; i < rounds.size() && monotonic_now() < until; ++i) {
    progress_(fmt::format("{}, round {} of {}", what, i + 1, rounds.size()));
    run_round(rounds[i], span);
  }
}

void Preflight::run_round(const Round& round, Duration span) {
  testing_.clear();
  for (const Link& link : round) {
    const LinkHealth& health = health_of(link);
    if (!health.reached() || !answers(link.from) || !answers(link.to)) continue;
    agent::RouteTarget target = visits_[link.to].survey->here;
    target.host = static_cast<int32_t>(link.to);
    target.addresses = {health.address};
    testing_.insert(link);
    send(link.from,
         agent::Measure{
             .target = std::move(target), .key = key_, .span = span, .patience = kTestPatience});
  }
  const Time until = monotonic_now() + 2 * kTestPatience;
  while (!testing_.empty() && monotonic_now() < until) step(until);
  for (const Link& link : std::set(testing_)) fail(link.from, "its agent says nothing more");
}

void Preflight::end() {
  agents_.give_up_silent();
  agents_.send_all(agent::Fence{});
  const Time until = monotonic_now() + kEndPatience;
  while (!agents_.over() && monotonic_now() < until) step(until);
  (void)agents_.end();
}

std::vector<size_t> Preflight::answering() const {
  std::vector<size_t> hosts;
  for (size_t host = 0; host < health_.hosts.size(); ++host)
    if (answers(host)) hosts.push_back(host);
  return hosts;
}

// -- the loop -------------------------------------------------------------------------------------

void Preflight::step(Time until) {
  loop_.turn(until);
  agents_.flush();
}

void Preflight::on(size_t host, const agent::Hello& hello) {
  health_.hosts[host].corro = hello.corro;
  if (hello.version != agent::kMessagesVersion || hello.corro != plan_.version)
    return fail(host, fmt::format("has corro {}, this one {}", hello.corro, plan_.version));
  send(host, agent::Survey{.program = plan_.python, .directory = plan_.directory, .script = ""});
  send(host, agent::Examine{.python = plan_.python, .key = key_});
  ask_clock(host);
}

void Preflight::on(size_t host, const agent::Surveyed& survey) {
  Visit& visit = visits_[host];
  visit.survey = survey;
  std::vector<std::string>& addresses = visit.survey->here.addresses;
  if (plan_.network)
    std::erase_if(addresses, [&](const std::string& one) { return !plan_.network->has(one); });
  HostHealth& health = health_.hosts[host];
  health.machine = survey.machine;
  health.architecture = survey.architecture;
  health.missing = survey.missing;
  health.addresses = addresses;
}

void Preflight::ask_clock(size_t host) {
  visits_[host].asked = wall_clock();
  send(host, agent::ReadClock{});
}

/// The fastest round trip says most.
void Preflight::on(size_t host, const agent::Clock& clock) {
  Visit& visit = visits_[host];
  HostHealth& health = health_.hosts[host];
  const ClockReading reading = read_clock(visit.asked, clock.since_1970, wall_clock());
  if (visit.readings == 0 || reading.error < health.clock_error) {
    health.clock = reading.ahead;
    health.clock_error = reading.error;
  }
  if (++visit.readings < kClockReadings) ask_clock(host);
}

void Preflight::on(size_t host, const agent::Measured& measured) {
  const Link link{host, static_cast<size_t>(measured.host)};
  if (testing_.erase(link) == 0) return;
  LinkHealth& health = health_of(link);
  const agent::Speed& speed = measured.speed;
  if (!speed.failure.empty() || speed.span <= Duration::zero()) {
    if (!health.measured()) health.failure = speed.failure;
    return;
  }
  health.failure.clear();
  const double rate = static_cast<double>(speed.bytes) / duration<double>(speed.span).count();
  const bool first = !health.measured();
  health.round_trip = first ? speed.round_trip : std::min(health.round_trip, speed.round_trip);
  health.bytes_per_second = std::max(health.bytes_per_second, rate);
}

void Preflight::fail(size_t host, const std::string& why) {
  if (answers(host)) health_.hosts[host].failure = why;
  std::erase_if(testing_, [&](const Link& link) { return link.from == host; });
}

}  // namespace

ClockReading read_clock(Duration asked, Duration there, Duration heard) {
  const Duration half = std::max(heard - asked, Duration::zero()) / 2;
  return {.ahead = there - (asked + half), .error = half};
}

std::vector<LinkHealth> find_ways(const std::vector<std::vector<agent::Route>>& reached,
                                  const std::vector<HostHealth>& hosts) {
  std::vector<LinkHealth> ways;
  for (size_t to = 0; to < hosts.size(); ++to) {
    std::map<std::string, int> times;
    for (const auto& routes : reached)
      for (const agent::Route& route : routes)
        if (static_cast<size_t>(route.host) == to) ++times[route.address];
    const auto leads_from = [&](size_t from) {
      std::vector<std::string> addresses;
      for (const agent::Route& route : reached[from])
        if (static_cast<size_t>(route.host) == to) addresses.push_back(route.address);
      const auto best = std::ranges::max_element(
          addresses, {}, [&](const std::string& address) { return times[address]; });
      return best == addresses.end() ? std::string() : *best;
    };
    for (size_t from = 0; from < hosts.size(); ++from) {
      if (from == to || !hosts[from].answers() || !hosts[to].answers()) continue;
      ways.push_back({.link = {from, to}, .address = leads_from(from)});
    }
  }
  std::ranges::sort(ways, {}, &LinkHealth::link);
  return ways;
}

Result<PreflightPlan> plan_preflight(const PreflightOptions& options, const PlanInputs& inputs,
                                     const std::string& version) {
  PreflightPlan plan;
  CORRO_ASSIGN(const auto named, read_hosts(options.hosts, options.hostfile, inputs.read_hostfile));
  for (const HostSlots& host : named)
    plan.hosts.push_back(
        {.name = host.name, .own = is_own_host(host.name, inputs.machine.host), .address = ""});
  plan.rsh = options.rsh;
  if (!options.network.empty()) {
    CORRO_ASSIGN(plan.network, Network::parse(options.network));
  }
  plan.corro = inputs.own_directory + "/corro";
  plan.version = version;
  plan.directory = inputs.files.directory;
  const auto python = find_python(inputs.environment, inputs.own_directory, inputs.files);
  if (python.ok()) plan.python = *python;
  return plan;
}

Result<Health> check_hosts(const PreflightPlan& plan,
                           const std::function<void(const std::string&)>& progress) {
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGCHLD);
  sigprocmask(SIG_BLOCK, &blocked, &before);
  signal(SIGPIPE, SIG_IGN);
  wire::Digest job{};
  io::fill_random(job);
  // No tree: each host is tried from here, so that one without an agent hides no other.
  CORRO_ASSIGN(auto agents, Agents::create(plan.hosts, {.job = job,
                                                        .shell = agent::remote_shell(plan.rsh),
                                                        .corro = plan.corro,
                                                        .version = plan.version,
                                                        .fan_out = plan.hosts.size(),
                                                        .mask = before}));
  CORRO_ASSIGN(auto loop, io::Loop::create());
  return Preflight(plan, job, std::move(agents), std::move(loop), progress).run();
}

}  // namespace corro::launch
