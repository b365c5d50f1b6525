#include "launch/servers.h"

#include <algorithm>
#include <utility>

#include "io/random.h"
#include "wire/server_number.h"

namespace corro::launch {

Servers::Servers(const JobFacts& job, const wire::Digest& digest) {
  for (int index = 0; index < job.servers; ++index) {
    Server& server = servers_.emplace_back();
    server.about = {.job = digest, .rank = wire::kFirstServer + index, .incarnation = 1};
    io::fill_random(server.about.member);
    server.host = job.host_of_server(index);
  }
}

std::optional<size_t> Servers::find(size_t host, const agent::Subject& about) const {
  const auto found = std::ranges::find(servers_, about, &Server::about);
  if (found == servers_.end() || found->host != host) return std::nullopt;
  return static_cast<size_t>(found - servers_.begin());
}

bool Servers::any_runs() const { return std::ranges::any_of(servers_, &Server::runs); }

void Servers::begin() {
  for (Server& server : servers_) server.runs = true;
}

bool Servers::end(size_t server) { return std::exchange(servers_[server].runs, false); }

void Servers::lose_host(size_t host) {
  for (Server& server : servers_)
    if (server.host == host) server.runs = false;
}

std::optional<int> Servers::end_all(Duration grace, Time now) {
  if (over()) return std::nullopt;
  const bool is_first = asked_at_ == Time::never();
  grace_ = is_first ? grace : std::min(grace_, grace);
  if (is_first) asked_at_ = now;
  if (asked_at_ + grace_ <= now) {
    killed_ = true;
    return SIGKILL;
  }
  return is_first ? std::optional(SIGTERM) : std::nullopt;
}

Time Servers::wake() const {
  const bool is_asked = asked_at_ != Time::never();
  return is_asked && !over() ? asked_at_ + grace_ : Time::never();
}

}  // namespace corro::launch
