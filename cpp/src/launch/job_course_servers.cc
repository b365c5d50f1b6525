// The table servers of a job beside its ranks: what is told of them, and when another one is started.
#include <fmt/format.h>

#include <chrono>
#include <csignal>

#include "launch/job_course.h"

namespace corro::launch {
namespace {

// From SIGTERM to KILL: after a job that has ended in order, and after another.
constexpr Duration kServerGrace = std::chrono::seconds(5);
constexpr Duration kShortServerGrace = std::chrono::milliseconds(500);
}  // namespace

void JobCourse::hear_server(size_t host, size_t server, const agent::Message& message, Time now) {
  if (const auto* refused = std::get_if<agent::Refused>(&message.body))
    return refuse_server(server, refused->why, now);
  if (const auto* started = std::get_if<agent::Started>(&message.body); started && options_.verbose)
    order(Note{fmt::format("corro: server {} has pid {}\n", server, started->pid)});
  if (const auto* seen = std::get_if<agent::Seen>(&message.body))
    servers_.see(server, seen->end.tables);
  // It has not said where it listens: nobody is to wait for that.
  if (std::holds_alternative<agent::Left>(message.body)) order(TellAll{message, host});
  const auto* ended = std::get_if<agent::Ended>(&message.body);
  if (ended == nullptr || !servers_.end(server) || !goes_on()) return;
  const std::string status = diagnosis::describe_status(ended->end);
  const std::string& memory = ended->end.out_of_memory;
  if (status.empty() && memory.empty())
    return tell_of_server(EventKind::kServerLeft, server,
                          fmt::format("server {} has left", server));
  lose_server(server, !memory.empty() ? memory : status, now);
}

std::string JobCourse::change_servers(const ServerChange& change, Time now) {
  if (!begun_ || !goes_on()) return "no: no rank runs";
  const Status status =
      change.leaves ? servers_.let_go(change.number) : servers_.start_more(change.number, now);
  if (!status.ok()) return "no: " + status.message();
  if (!change.leaves)
    return fmt::format("{} {} started: ranks copy rows to {}", change.number,
                       change.number == 1 ? "server is" : "servers are",
                       change.number == 1 ? "it" : "them");
  order(TellHost{servers_.host_of(change.number),
                 {servers_.subject(change.number), agent::Signal{.number = SIGTERM}}});
  return fmt::format("server {} leaves once its rows are copied to others", change.number);
}

/// A job begins with all of its servers, and goes on with fewer.
void JobCourse::refuse_server(size_t server, const std::string& why, Time now) {
  servers_.end(server);
  if (servers_.came_later(server)) return goes_on() ? lose_server(server, why, now) : void();
  const std::string text = fmt::format("server {}: {}", server, why);
  refuse(options_.several_hosts
             ? fmt::format("host {}: {}", members_.host_name(servers_.host_of(server)), text)
             : text);
}

/// The ranks find out when they need it, and know whether they can go on.
void JobCourse::lose_server(size_t server, const std::string& how, Time now) {
  tell_of_server(EventKind::kServerLost, server,
                 fmt::format("server {} was lost: {}", server, how));
  if (!servers_.replace(server, now))
    order(
        Note{fmt::format("corro: server {} is not replaced: that was tried as often as the job "
                         "has servers\n",
                         server)});
}

/// Their ranks find them, and copy to them what they are to have.
void JobCourse::replace_servers(Time now) {
  if (!goes_on()) return;
  for (auto next = servers_.start_next(now); next; next = servers_.start_next(now)) {
    order(StartServer{servers_.subject(*next), servers_.host_of(*next), *next});
    const auto lost = servers_.replaced_by(*next);
    tell_of_server(EventKind::kServerStarted, *next,
                   lost
                       ? fmt::format("server {} is started in the place of server {}", *next, *lost)
                       : fmt::format("server {} is started", *next));
  }
}

void JobCourse::tell_of_server(EventKind kind, size_t server, const std::string& text) {
  order(Note{fmt::format("corro: {}\n", text)});
  order(Announce{{.kind = kind,
                  .epoch = members_.epoch(),
                  .host = members_.host_name(servers_.host_of(server)),
                  .cause = text}});
}

/// Once no rank runs any more.
void JobCourse::end_servers(Time now) {
  if (!begun_ || running_ > 0) return;
  const Duration grace = stopping_.impatient() ? Duration::zero()
                         : stopping_.hard()    ? kShortServerGrace
                                               : kServerGrace;
  const auto signal = servers_.end_all(grace, now);
  for (size_t server = 0; signal && server < servers_.size(); ++server) {
    if (!servers_.runs(server)) continue;
    order(TellHost{servers_.host_of(server),
                   {servers_.subject(server), agent::Signal{.number = *signal, .ends = true}}});
  }
}

}  // namespace corro::launch
