#include "pod/switchboard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "pod/settings.h"

namespace corro::pod {
namespace {

/// Older records are forgotten: their ranks have met long since.
constexpr size_t kMostRecordBytes = size_t{64} << 20U;

size_t bytes_of(const agent::Record& record) { return record.key.size() + record.value.size(); }

bool is_worker(const std::string& member) { return member.starts_with("worker-"); }

/// Names need not be secret: who dials for a session has proved that it is the host's agent.
agent::SessionId name_session(uint64_t number) {
  agent::SessionId session{};
  std::memcpy(session.data(), &number, sizeof(number));
  return session;
}

}  // namespace

void Switchboard::refuse(ConnectionId to, Code code, std::string why) {
  orders_.push_back({.kind = Order::Kind::kSayAndEnd,
                     .to = to,
                     .with = 0,
                     .body = agent::Refused{.code = code, .why = std::move(why)}});
}

/// Whether a newer generation of it was seen; else it is the newest.
bool Switchboard::is_old(const secure::PodIdentity& who) {
  uint32_t& newest = newest_[who.member];
  newest = std::max(newest, who.generation);
  return who.generation < newest;
}

ConnectionId Switchboard::agent_of(const std::string& member) const {
  const auto found = by_member_.find(member);
  const bool is_there = found != by_member_.end() && !agents_.at(found->second).leaving;
  return is_there ? found->second : 0;
}

const agent::Enlist* Switchboard::enlisted() const {
  const ConnectionId first = agent_of("worker-0");
  return first == 0 ? nullptr : &agents_.at(first).enlist;
}

std::vector<std::string> Switchboard::missing() const {
  std::vector<std::string> names;
  const auto wait_for = [&](const std::string& member) {
    if (agent_of(member) == 0 && std::ranges::find(names, member) == names.end())
      names.push_back(member);
  };
  if (is_over_) return names;
  if (options_.runs_ranks) {
    for (const std::string& worker : worker_names(options_.workers)) wait_for(worker);
  } else {
    for (const Shell& shell : shells_) wait_for(shell.member);
  }
  return names;
}

// -- agents ---------------------------------------------------------------------------------------

void Switchboard::enlist(ConnectionId from, const secure::PodIdentity& who,
                         const agent::Enlist& enlist, Time now) {
  now_ = now;
  if (is_old(who)) {
    return refuse(from, Code::kFailedPrecondition,
                  fmt::format("{} was replaced: its generation {} is there, this one is {}",
                              who.member, newest_[who.member], who.generation));
  }
  if (enlist.version != agent::kMessagesVersion) {
    return refuse(from, Code::kFailedPrecondition,
                  fmt::format("the head of this job is of another corro than {}", enlist.corro));
  }
  if (const auto before = by_member_.find(who.member); before != by_member_.end()) {
    const ConnectionId old = before->second;
    const Agent& agent = agents_.at(old);
    // Its end was not heard, and yet there is another: it has vanished.
    if (agent.generation < who.generation && !agent.leaving) tell_launcher(who.member);
    refuse(old, Code::kFailedPrecondition, fmt::format("{} has dialled again", who.member));
    end(old);
  }
  agents_[from] = {
      .member = who.member, .generation = who.generation, .enlist = enlist, .heard = now};
  by_member_[who.member] = from;
  is_over_ = false;
  if (!options_.runs_ranks) tell_of_meeting(from);
  serve_waiting();
  go_on();
  start_ranks_if_all_there();
}

void Switchboard::tell_of_meeting(ConnectionId to) {
  say(to, agent::Meeting{.secret = options_.secret});
  for (const agent::Record& record : records_) say(to, record);
}

void Switchboard::record(ConnectionId from, const agent::Record& record) {
  if (options_.runs_ranks || !agents_.contains(from)) return;
  for (const auto& [connection, agent] : agents_)
    if (connection != from) say(connection, record);
  records_.push_back(record);
  record_bytes_ += bytes_of(record);
  while (record_bytes_ > kMostRecordBytes) {
    record_bytes_ -= bytes_of(records_.front());
    records_.pop_front();
  }
}

void Switchboard::look(ConnectionId to, Agent& agent) {
  ++agent.looks;
  say(to, agent::Look{});
}

void Switchboard::hear_alive(ConnectionId from, Time now) {
  now_ = now;
  const auto found = agents_.find(from);
  if (found == agents_.end()) return;
  ++found->second.answers;
  found->second.heard = now;
  go_on();
}

void Switchboard::hear_leave(ConnectionId from) {
  const auto found = agents_.find(from);
  if (found == agents_.end() || found->second.leaving) return;
  found->second.leaving = true;
  lose(found->second.member);
}

void Switchboard::hear_trouble(ConnectionId from, const std::string& text) {
  const auto found = agents_.find(from);
  if (found != agents_.end()) found->second.trouble = text;
}

void Switchboard::lose(const std::string& member) {
  if (is_worker(member)) lost_[member] = now_;
}

void Switchboard::end(ConnectionId connection) {
  std::erase_if(shells_, [&](const Shell& shell) { return shell.connection == connection; });
  std::erase_if(failures_, [&](const Failure& failure) {
    return failure.launcher != 0 && failure.launcher == connection;
  });
  const auto found = agents_.find(connection);
  if (found == agents_.end()) return;
  const std::string member = found->second.member;
  agents_.erase(found);
  by_member_.erase(member);
  lose(member);
  for (Shell& shell : shells_) {
    if (shell.attendant == connection) shell.attendant = 0, shell.session.reset();
  }
  go_on();
}

/// One that has vanished sends no end of its connections: mpirun may wait for it for ever.
void Switchboard::tell_launcher(const std::string& lost) {
  const ConnectionId launcher = agent_of("launcher");
  if (launcher != 0 && is_worker(lost))
    say(launcher, agent::HostLost{.host = host_of_member(options_.job, lost)});
}

void Switchboard::tick(Time now) {
  now_ = now;
  std::vector<ConnectionId> silent;
  for (auto& [connection, agent] : agents_) {
    if (agent.heard + options_.silence <= now) {
      silent.push_back(connection);
    } else {
      look(connection, agent);
    }
  }
  for (const ConnectionId connection : silent) {
    tell_launcher(agents_.at(connection).member);
    refuse(connection, Code::kUnavailable, "nothing was heard of it");
    end(connection);
  }
  for (Shell& shell : shells_) {
    if (!shell.session || now < shell.asked + options_.silence) continue;
    refuse(
        shell.connection, Code::kUnavailable,
        fmt::format("the agent of {} does not answer", host_of_member(options_.job, shell.member)));
    shell.connection = 0;
  }
  std::erase_if(shells_, [](const Shell& shell) { return shell.connection == 0; });
  go_on();
}

// -- remote shells --------------------------------------------------------------------------------

void Switchboard::reach(ConnectionId from, const secure::PodIdentity& who, const std::string& host,
                        Time now) {
  now_ = now;
  if (is_old(who)) {
    return refuse(
        from, Code::kFailedPrecondition,
        fmt::format("this pod, generation {} of {}, was replaced", who.generation, who.member));
  }
  const auto member = member_of_host(options_.job, host);
  if (!member)
    return refuse(from, Code::kNotFound,
                  fmt::format("{} is no host of job {}", host, options_.job));
  shells_.push_back({.connection = from, .member = *member});
  serve_waiting();
}

void Switchboard::serve_waiting() {
  for (Shell& shell : shells_) {
    const ConnectionId agent = agent_of(shell.member);
    if (shell.session || agent == 0) continue;
    shell.session = name_session(++sessions_);
    shell.attendant = agent;
    shell.asked = now_;
    say(agent, agent::Attend{.session = *shell.session});
  }
}

void Switchboard::meet(ConnectionId from, const secure::PodIdentity& who,
                       const agent::SessionId& session) {
  const auto found = std::ranges::find_if(shells_, [&](const Shell& shell) {
    return shell.session == session && shell.member == who.member;
  });
  if (found == shells_.end())
    return refuse(from, Code::kNotFound, "nobody waits for this session any more");
  orders_.push_back({.kind = Order::Kind::kJoin, .to = found->connection, .with = from});
  shells_.erase(found);
}

void Switchboard::hear_host_lost(ConnectionId from, const std::string& host) {
  const auto launcher = agents_.find(from);
  const auto member = member_of_host(options_.job, host);
  if (launcher == agents_.end() || launcher->second.member != "launcher" || !member) return;
  if (agent_of(*member) != 0) return;
  std::erase_if(shells_, [&](const Shell& shell) {
    if (shell.member != *member || shell.session) return false;
    refuse(shell.connection, Code::kNotFound,
           "it is no host of the job any more: the launcher's hostfile does not name it");
    return true;
  });
}

// -- failures -------------------------------------------------------------------------------------

void Switchboard::propose(ConnectionId from, const agent::Propose& proposal, Time now) {
  now_ = now;
  if (!agents_.contains(from)) return;
  std::erase_if(lost_, [now](const auto& entry) { return now >= entry.second + kLossCounts; });
  call_roll(
      {.launcher = from, .status = proposal.status, .saw_loss = proposal.saw_loss, .since = now});
}

void Switchboard::end_ranks(int status, Time now) {
  now_ = now;
  if (status != 0) return call_roll({.status = status, .since = now});
  ranks_run_ = false;
  dismiss_all(0, "");
}

void Switchboard::call_roll(Failure failure) {
  for (auto& [connection, agent] : agents_) {
    if (!is_worker(agent.member) || agent.leaving) continue;
    look(connection, agent);
    failure.awaited[connection] = agent.looks;
  }
  failures_.push_back(std::move(failure));
  go_on();
}

bool Switchboard::is_called(const Failure& failure) const {
  return std::ranges::all_of(failure.awaited, [&](const auto& entry) {
    const auto found = agents_.find(entry.first);
    return found == agents_.end() || found->second.answers >= entry.second;
  });
}

bool Switchboard::all_back() const {
  return std::ranges::all_of(lost_,
                             [this](const auto& entry) { return agent_of(entry.first) != 0; });
}

void Switchboard::go_on() {
  std::vector<Failure> failures = std::exchange(failures_, {});
  for (Failure& failure : failures)
    if (!settle(failure)) failures_.push_back(std::move(failure));
}

/// Whether it is known what follows; it was ordered then.
bool Switchboard::settle(const Failure& failure) {
  if (!is_called(failure)) return false;
  const bool is_loss = failure.saw_loss || !lost_.empty();
  if (failure.launcher == 0) {
    ranks_run_ = false;
    if (is_loss) {
      start_ranks_if_all_there();
    } else {
      dismiss_all(failure.status, why_ranks_failed());
    }
    return true;
  }
  if (!is_loss) {
    say(failure.launcher, agent::Dismiss{.status = failure.status, .why = ""});
    return true;
  }
  if (!all_back() && now_ < failure.since + options_.silence) return false;
  for (const auto& [connection, agent] : agents_)
    if (is_worker(agent.member)) say(connection, agent::Reset{});
  say(failure.launcher, agent::Proceed{});
  lost_.clear();
  return true;
}

// -- the ranks of a CorroJob ----------------------------------------------------------------------

bool Switchboard::all_there() const {
  for (const std::string& worker : worker_names(options_.workers))
    if (agent_of(worker) == 0) return false;
  return options_.workers > 0;
}

void Switchboard::start_ranks_if_all_there() {
  if (!options_.runs_ranks || ranks_run_ || !all_there()) return;
  constexpr int kNoCommand = 2;
  if (enlisted()->command.empty()) {
    return dismiss_all(kNoCommand,
                       "the container has no command, and the image's own cannot be known: set "
                       "spec.worker.template.spec.containers[0].command");
  }
  ranks_run_ = true;
  for (auto& [connection, agent] : agents_) agent.trouble.clear();
  lost_.clear();
  orders_.push_back({.kind = Order::Kind::kStartRanks});
}

std::string Switchboard::why_ranks_failed() const {
  for (const auto& [connection, agent] : agents_) {
    if (!agent.trouble.empty())
      return fmt::format("{}, on {}", agent.trouble, host_of_member(options_.job, agent.member));
  }
  return "the ranks have failed; the head's log says why";
}

void Switchboard::dismiss_all(int status, const std::string& why) {
  for (const auto& [connection, agent] : agents_)
    say(connection, agent::Dismiss{.status = status, .why = why});
  agents_.clear();
  by_member_.clear();
  lost_.clear();
  is_over_ = true;
}

}  // namespace corro::pod
