#include "launch/agents.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/processes.h"
#include "agent/silence.h"
#include "diagnosis/flight_text.h"

namespace corro::launch {
namespace {

constexpr Duration kKillPatience = std::chrono::seconds(2);
constexpr size_t kStartingAtATime = 32;  ///< Remote shells of the launcher.
/// For agents to dial: those of a coordinator that has died notice it after up to 10 s, and try
/// some addresses in vain.
constexpr Duration kDialPatience = std::chrono::seconds(20);

/// In the place of a remote shell: $0 is the host's name, $1 the command line.
std::vector<std::string> own_shell() { return {"/bin/sh", "-c", R"(eval "$1")"}; }

}  // namespace

std::vector<std::optional<size_t>> plan_tree(const std::vector<JobHost>& hosts, size_t fan_out) {
  std::vector<size_t> remote;
  for (size_t host = 0; host < hosts.size(); ++host)
    if (!hosts[host].own) remote.push_back(host);
  std::vector<std::optional<size_t>> parents(hosts.size());
  for (size_t r = fan_out; r < remote.size(); ++r) parents[remote[r]] = remote[r / fan_out - 1];
  return parents;
}

Result<Agents> Agents::create(const std::vector<JobHost>& hosts, Options options) {
  std::vector<AgentLink> links;
  std::vector<Place> places(hosts.size());
  const auto parents = plan_tree(hosts, options.fan_out);
  agent::adopt_orphans();
  for (size_t host = 0; host < hosts.size(); ++host) {
    links.push_back(
        {.host = host, .name = hosts[host].name, .own = hosts[host].own, .heard = monotonic_now()});
    if (!options.dialled) places[host].parent = parents[host];
    if (!hosts[host].own) continue;
    CORRO_ASSIGN(auto process, agent::AgentProcess::start_here(options.mask, options.version));
    places[host].process = std::make_unique<agent::AgentProcess>(std::move(process));
  }
  return Agents(std::move(links), std::move(places), std::move(options));
}

Status Agents::listen(io::Loop& loop, Listener listener) {
  loop_ = &loop;
  listener_ = std::move(listener);
  for (const AgentLink& link : links_) {
    if (link.own) CORRO_TRY(watch(link.host));
    const bool starts = !link.own && !places_[link.host].parent && !options_.dialled;
    if (starts) waiting_.push_back(link.host);
  }
  start_waiting();
  return {};
}

void Agents::add(const JobHost& host, bool here) {
  const size_t number = links_.size();
  links_.push_back({.host = number, .name = host.name, .heard = monotonic_now()});
  places_.push_back({.here = here});
  if (options_.dialled) return;
  waiting_.push_back(number);
  start_waiting();
}

Status Agents::attach(size_t host, agent::MessagePipe pipe) {
  auto& dialled = places_[host].dialled;
  dialled = std::make_unique<agent::MessagePipe>(std::move(pipe));
  links_[host].heard = monotonic_now();
  return dialled->watch(*loop_, [this, host] { read(host); });
}

void Agents::dismiss(size_t host, const std::string& why) {
  auto& dialled = places_[host].dialled;
  if (dialled) {
    tell(host, agent::Refused{.code = Code::kFailedPrecondition, .why = why});
    unwatch(host);
    dialled->close();
  } else {
    tell(host, agent::Fence{});
  }
  links_[host].gone = true;
}

/// Goes on with the queue, as far as there is room.
void Agents::start_waiting() {
  const auto starts = [this](const AgentLink& link) {
    return !link.own && !link.greeted && !link.gone && places_[link.host].process != nullptr;
  };
  while (!waiting_.empty() &&
         static_cast<size_t>(std::ranges::count_if(links_, starts)) < kStartingAtATime) {
    const size_t host = waiting_.front();
    waiting_.pop_front();
    auto process =
        agent::AgentProcess::start_there(places_[host].here ? own_shell() : options_.shell,
                                         links_[host].name, options_.corro, options_.mask);
    Status status = process.status();
    if (status.ok()) {
      places_[host].process = std::make_unique<agent::AgentProcess>(std::move(*process));
      status = watch(host);
    }
    if (!status.ok()) lose(host, status.message());
  }
}

// -- what agents say ------------------------------------------------------------------------------

Status Agents::watch(size_t host) {
  return places_[host].process->watch(*loop_, [this, host] { read(host); });
}

void Agents::read(size_t host) {
  agent::MessagePipe& pipe = *pipe_of(host);
  pipe.flush();
  const Status status = pipe.read();
  while (const auto message = pipe.take()) hear(host, *message);
  if (!pipe.ended()) return;
  if (links_[host].gone) return unwatch(host);
  const auto& process = places_[host].process;
  const std::string ended = process ? process->why() : "its connection has ended";
  lose(host, status.ok() ? ended : status.message());
}

/// Null: there is no connection to it.
agent::MessagePipe* Agents::pipe_of(size_t host) const {
  const Place& place = places_[host];
  return place.process ? &place.process->pipe() : place.dialled.get();
}

void Agents::unwatch(size_t host) {
  if (auto& process = places_[host].process) process->unwatch(*loop_);
  if (auto& dialled = places_[host].dialled) dialled->unwatch(*loop_);
}

void Agents::hear(size_t host, const agent::Message& message) {
  AgentLink& link = links_[host];
  link.heard = monotonic_now();
  if (const auto* forward = std::get_if<agent::Forward>(&message.body)) {
    if (!is_branch(host, forward->host) || forward->message.size() < sizeof(uint32_t)) return;
    const auto inner = agent::decode_message(BytesView(forward->message).subspan(sizeof(uint32_t)));
    if (inner.ok()) hear(static_cast<size_t>(forward->host), *inner);
    return;
  }
  if (const auto* cut = std::get_if<agent::Cut>(&message.body)) return hear_branch_end(host, *cut);
  if (link.gone) return;
  const bool greets = !link.greeted && std::holds_alternative<agent::Hello>(message.body);
  link.greeted = link.greeted || greets;
  if (auto& process = places_[host].process; greets && process) process->forget_greetings();
  listener_.hear(link, message);
  if (!greets) return;
  grow(host);
  start_waiting();
}

/// One that never was there is started from here: the agent may have no access to that host.
void Agents::hear_branch_end(size_t host, const agent::Cut& cut) {
  if (!is_branch(host, cut.host)) return;
  AgentLink& link = links_[static_cast<size_t>(cut.host)];
  if (link.gone) return;
  if (link.greeted) return lose(link.host, cut.why);
  places_[link.host].parent.reset();
  listener_.take_over(link, links_[host], cut.why);
  waiting_.push_back(link.host);
  start_waiting();
}

/// Has the agent start those that are its branches.
void Agents::grow(size_t host) {
  for (const AgentLink& link : links_) {
    if (places_[link.host].parent != host) continue;
    send(host, {all(), agent::Grow{.host = static_cast<int32_t>(link.host),
                                   .name = link.name,
                                   .shell = options_.shell,
                                   .corro = options_.corro}});
  }
}

bool Agents::is_branch(size_t parent, int32_t host) const {
  return host >= 0 && static_cast<size_t>(host) < places_.size() &&
         places_[static_cast<size_t>(host)].parent == parent;
}

/// With it goes what is reached through it.
void Agents::lose(size_t host, const std::string& why) {
  AgentLink& link = links_[host];
  link.gone = true;
  unwatch(host);
  if (!link.fenced) listener_.lose(link, why);
  for (const AgentLink& other : links_) {
    if (places_[other.host].parent == host && !other.gone)
      lose(other.host, fmt::format("it was reached through {}, which is lost", link.name));
  }
  start_waiting();
}

Duration silence_of(const AgentLink& link, Time now) {
  constexpr Duration kOfSuspected = std::chrono::seconds(3);
  const bool suspected = link.suspected != Time{} && now < link.suspected + agent::kSilence;
  return suspected ? kOfSuspected : agent::kSilence;
}

void Agents::look_for_silence(Time now) {
  for (const AgentLink& link : links_) {
    const bool is_known = link.greeted || options_.dialled;
    const bool speaks = !link.own && is_known && !link.gone && !link.fenced;
    const Duration silence = link.greeted ? silence_of(link, now) : kDialPatience;
    if (!speaks || now < link.heard + silence) continue;
    lose(link.host, fmt::format("nothing was heard of it for {}", diagnosis::format_span(silence)));
  }
}

void Agents::excuse_silence(Duration stopped, Time now) {
  for (AgentLink& link : links_) link.heard = std::min(link.heard + stopped, now);
}

void Agents::give_up_silent() {
  waiting_.clear();
  for (AgentLink& link : links_) link.gone = link.gone || !link.greeted;
}

// -- what they are told ---------------------------------------------------------------------------

void Agents::send(size_t host, const agent::Message& message) {
  const std::optional<size_t> parent = places_[host].parent;
  if (links_[host].gone) return;
  if (parent) {
    const agent::Subject about{.job = message.about.job, .epoch = message.about.epoch};
    return send(*parent, {about, agent::Forward{.host = static_cast<int32_t>(host),
                                                .message = encode_message(message)}});
  }
  if (agent::MessagePipe* pipe = pipe_of(host)) pipe->send(message);
}

void Agents::send_all(const agent::MessageBody& body) { send_all({all(), body}); }

void Agents::send_all(const agent::Message& message) {
  for (const AgentLink& link : links_) send(link.host, message);
}

void Agents::pass_on(size_t from, const agent::Message& message) {
  for (const AgentLink& link : links_)
    if (link.host != from) send(link.host, message);
}

void Agents::give_credit() {
  for (AgentLink& link : links_) {
    if (link.uncredited == 0) continue;
    send(link.host, {all(), agent::Credit{.bytes = std::exchange(link.uncredited, 0)}});
  }
}

bool Agents::flush() {
  bool all = true;
  for (const AgentLink& link : links_) {
    agent::MessagePipe* pipe = pipe_of(link.host);
    if (pipe == nullptr || link.gone) continue;
    pipe->flush_on(*loop_);
    all = all && !pipe->unsent();
  }
  return all;
}

// -- their state ----------------------------------------------------------------------------------

bool Agents::any_remote() const { return !std::ranges::all_of(links_, &AgentLink::own); }

bool Agents::over() const {
  return std::ranges::all_of(links_,
                             [](const AgentLink& link) { return link.fenced || link.gone; });
}

std::optional<int> Agents::end() {
  std::optional<int> killed;
  for (const AgentLink& link : links_) {
    auto& process = places_[link.host].process;
    if (!process) continue;
    const int status = process->end(link.fenced || link.own ? kKillPatience : Duration::zero());
    if (links_.size() == 1 && link.own && link.gone && !link.fenced) killed = status;
  }
  (void)agent::kill_descendants(kKillPatience);
  return killed;
}

}  // namespace corro::launch
