#include "wire/server_bootstrap.h"

#include <fmt/format.h>

#include <chrono>
#include <span>

#include "wire/server_number.h"

namespace corro::wire {
namespace {

/// In a job of several hosts `corro run` says by which address this one is reached.
Result<io::SocketAddress> listen_address(const Environment& environment) {
  if (environment.listen.empty()) return io::SocketAddress::parse_host("127.0.0.1", 0);
  return io::SocketAddress::parse_listen(environment.listen);
}

/// Where a rank writes that it uses no table any more.
std::string unused_key(std::string_view job, int32_t rank) {
  return fmt::format("{}/tables-unused/{}", job, rank);
}

std::string text_of(const Bytes& value) {
  return {reinterpret_cast<const char*>(value.data()), value.size()};
}

Result<std::unique_ptr<AgentBootstrap>> connect(const AgentBootstrap::Options& options,
                                                const std::function<bool()>& interrupted) {
  CORRO_ASSIGN(auto agent, AgentBootstrap::connect(options));
  agent->set_interrupted(interrupted);
  return agent;
}

}  // namespace

std::string server_key(std::string_view job, int32_t index) {
  return fmt::format("{}/server/{}", job, index);
}

Result<ServerBootstrap> ServerBootstrap::join(const Environment& environment, Time deadline,
                                              std::span<const int> descriptors,
                                              const std::function<bool()>& interrupted) {
  const auto index = environment.ranks_serve ? environment.rank : environment.server;
  if (!index || environment.agent.empty())
    return Status(Code::kFailedPrecondition, "started by corro run --servers, and by nobody else");
  ServerPlace place{
      .index = *index, .servers = environment.servers, .ranks = environment.size.value_or(1)};
  CORRO_ASSIGN(place.listen, listen_address(environment));
  CORRO_ASSIGN(auto agent, connect({.name = environment.agent,
                                    .rank = kFirstServer + place.index,
                                    .descriptors = descriptors,
                                    .deadline = deadline},
                                   interrupted));
  place.job = agent->job();
  place.digest = digest_of(place.job);
  const auto secret = agent->secret();
  if (!secret) return Status(Code::kInternal, "the agent has no secret for this job");
  place.secret = *secret;
  return ServerBootstrap(std::move(agent), std::move(place));
}

Status ServerBootstrap::publish(const io::SocketAddress& address) {
  const std::string text = address.to_string();
  return agent_->put(server_key(place_.job, place_.index), std::as_bytes(std::span(text)));
}

Result<io::SocketAddress> ServerBootstrap::find(int32_t server) {
  constexpr Duration kPatience = std::chrono::seconds(30);
  CORRO_ASSIGN(const Bytes value,
               agent_->get(server_key(place_.job, server), monotonic_now() + kPatience));
  return io::SocketAddress::parse(text_of(value));
}

Status ServerBootstrap::say_unused() {
  return agent_->put(unused_key(place_.job, place_.index), {});
}

Status ServerBootstrap::wait_unused(int32_t rank, Time deadline) {
  return agent_->get(unused_key(place_.job, rank), deadline).status();
}

Result<JobServers> find_servers(const Environment& environment, Duration patience,
                                const std::function<bool()>& interrupted) {
  if (environment.servers == 0 || environment.agent.empty()) {
    return Status(Code::kNotFound,
                  "this job has no table servers: start it with corro run --servers N");
  }
  const Time deadline = monotonic_now() + patience;
  CORRO_ASSIGN(
      const auto agent,
      connect({.name = environment.agent, .rank = kReader, .deadline = deadline}, interrupted));
  JobServers servers{
      .job = digest_of(agent->job()), .secret = agent->secret().value(), .addresses = {}};
  for (int32_t index = 0; index < environment.servers; ++index) {
    const auto found = agent->get(server_key(agent->job(), index), deadline);
    if (found.status().code() == Code::kDeadlineExceeded) {
      return Status(
          Code::kDeadlineExceeded,
          environment.ranks_serve
              ? fmt::format("rank {} has made no table: with --servers ranks every rank keeps rows",
                            index)
              : fmt::format("table server {} has not said where it listens", index));
    }
    CORRO_ASSIGN(const Bytes value, found);
    servers.addresses.push_back(text_of(value));
  }
  return servers;
}

}  // namespace corro::wire
