#include "launch/rank_start.h"

#include <unistd.h>

#include "io/random.h"

namespace corro::launch {
namespace {

/// Whether the rank's output goes to the screen as it is: then it may have a terminal.
bool has_screen(const LaunchPlan& plan, int rank) {
  const screen::Show& show = plan.options.show;
  const bool one = show.mode == screen::ShowMode::kRanks && show.ranks.size() == 1;
  return rank == (one ? show.ranks[0] : 0) &&
         (plan.job.ranks == 1 || show.mode != screen::ShowMode::kAll);
}

}  // namespace

std::optional<winsize> terminal_size(int fd) {
  winsize size{};
  if (isatty(fd) == 0 || ioctl(fd, TIOCGWINSZ, &size) != 0) return std::nullopt;
  return size;
}

agent::Start start_of(const LaunchPlan& plan, const Seat& seat, const wire::Secret& secret) {
  agent::Start start{.job = plan.job.job_id,
                     .agent = plan.job.agent_on(seat.host),
                     .secret = secret,
                     .size = plan.job.ranks,
                     .servers = plan.job.most_servers(),
                     .program = plan.command.program,
                     .arguments = plan.command.arguments,
                     .environment = environment_of(plan, seat)};
  // Of a job whose rank has started this one.
  for (const char* name : {"CORRO_MEMBER_UUID", "CORRO_ELASTIC", "CORRO_JOINS"})
    start.environment.erase(name);
  const JobHost& host = plan.job.hosts[seat.host];
  if (!host.own) {
    start.directory = plan.directory;
    start.adds_environment = true;
  }
  const Binding& binding = plan.bindings[seat.host];
  if (const auto slot = static_cast<size_t>(seat.local_rank); slot < binding.ranks.size()) {
    const std::vector<int>& processors = binding.ranks[slot];
    start.processors.assign(processors.begin(), processors.end());
  }
  // Ranks are in the background, where a terminal cannot be read: the launcher reads it for them.
  const bool inherits = host.own && isatty(STDIN_FILENO) == 0;
  if (seat.rank == 0)
    start.input = inherits ? agent::StandardInput::kInherited : agent::StandardInput::kSent;
  if (has_screen(plan, seat.rank)) {
    start.out_terminal = terminal_size(STDOUT_FILENO);
    start.err_terminal = terminal_size(STDERR_FILENO);
  }
  return start;
}

agent::Start joiner_start_of(const LaunchPlan& plan, const Seat& seat, const wire::Secret& secret) {
  LaunchPlan full = plan;
  full.job = plan.job.full();
  agent::Start start = start_of(full, seat, secret);
  start.environment["CORRO_JOINS"] = "1";
  // torch's store is not there any more: who asks for it is told at once, and does not wait for it.
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) start.environment.erase(name);
  start.input = agent::StandardInput::kNone;
  return start;
}

agent::Start server_start_of(const LaunchPlan& plan, int server, size_t host,
                             const wire::Secret& secret) {
  agent::Start start{.job = plan.job.job_id,
                     .agent = plan.job.agent_on(host),
                     .secret = secret,
                     .size = plan.job.ranks,
                     .servers = plan.job.most_servers(),
                     .program = plan.server,
                     .arguments = {plan.server, "server"},
                     .environment = environment_of_server(plan, server, host)};
  if (plan.job.hosts[host].own) return start;
  start.directory = plan.directory;
  start.adds_environment = true;
  return start;
}

std::vector<agent::Subject> new_members(const wire::Digest& job, int places) {
  std::vector<agent::Subject> members;
  for (int rank = 0; rank < places; ++rank) {
    agent::Subject& member = members.emplace_back(
        agent::Subject{.job = job, .epoch = 0, .rank = rank, .incarnation = 1});
    io::fill_random(member.member);
  }
  return members;
}

agent::Message announce_members(const JobFacts& job, std::span<const agent::Subject> members,
                                std::span<const size_t> hosts, bool last) {
  agent::Members list{.hosts = {}, .members = {}, .last = last};
  for (const JobHost& host : job.hosts) list.hosts.push_back(host.name);
  for (size_t i = 0; i < members.size(); ++i) {
    const agent::Subject& member = members[i];
    list.members.push_back({.rank = member.rank,
                            .uuid = member.member,
                            .incarnation = member.incarnation,
                            .host = static_cast<int32_t>(hosts[i])});
  }
  return {{.job = members[0].job, .epoch = members[0].epoch}, std::move(list)};
}

}  // namespace corro::launch
