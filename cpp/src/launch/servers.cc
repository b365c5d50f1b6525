#include "launch/servers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "io/random.h"
#include "wire/server_number.h"

namespace corro::launch {
namespace {

/// Between the loss of a server and the start of another one: what ended one at once may go by.
constexpr Duration kPause = std::chrono::seconds(1);

}  // namespace

Servers::Servers(const JobFacts& job, const wire::Digest& digest)
    : job_(digest),
      ranks_serve_(job.ranks_serve),
      begun_with_(static_cast<size_t>(job.servers)),
      most_(static_cast<size_t>(job.most_servers())),
      lost_hosts_(job.hosts.size()) {
  for (const JobHost& host : job.hosts) for_ranks_.push_back(host.slots() > 0);
  for (int index = 0; index < job.servers; ++index) add(job.host_of_server(index), std::nullopt);
}

void Servers::add(size_t host, std::optional<size_t> in_place_of) {
  const auto number = wire::kFirstServer + static_cast<int32_t>(servers_.size());
  Server& server = servers_.emplace_back();
  server.about = {.job = job_, .rank = number, .incarnation = 1};
  io::fill_random(server.about.member);
  server.host = host;
  server.in_place_of = in_place_of;
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

void Servers::see(size_t server, std::vector<obs::TableCounts> tables) {
  if (servers_[server].runs) servers_[server].tables = std::move(tables);
}

bool Servers::stop(Server& server) {
  server.tables.clear();
  return std::exchange(server.runs, false);
}

bool Servers::end(size_t server) { return stop(servers_[server]); }

bool Servers::replace(size_t server, Time now) {
  if (replaced_ == begun_with_ || servers_.size() + due_.size() >= most_) return false;
  ++replaced_;
  due_.push_back({server, now + kPause});
  return true;
}

Status Servers::start_more(size_t count, Time now) {
  if (ranks_serve_)
    return {Code::kFailedPrecondition,
            "the ranks are the job's table servers: corro run --servers 1 starts others"};
  if (begun_with_ == 0)
    return {Code::kFailedPrecondition,
            "the job began without table servers: corro run --servers 1"};
  if (count > most_ - servers_.size() - due_.size())
    return {Code::kFailedPrecondition,
            fmt::format("{} servers were started, and {} are the most in a job", servers_.size(),
                        most_)};
  due_.insert(due_.begin(), count, Due{.lost = std::nullopt, .at = now});
  return {};
}

Status Servers::let_go(size_t server) {
  const auto refuse = [server](std::string_view why) {
    return Status(Code::kFailedPrecondition, fmt::format("server {} {}", server, why));
  };
  if (server >= servers_.size() || !servers_[server].runs) return refuse("does not run");
  if (servers_[server].leaves) return refuse("leaves already");
  const auto stays =
      std::ranges::count_if(servers_, [](const Server& one) { return one.runs && !one.leaves; });
  if (stays == 1) return refuse("is the last one: nobody else can keep its rows");
  servers_[server].leaves = true;
  return {};
}

std::optional<size_t> Servers::start_next(Time now) {
  if (due_.empty() || due_.front().at > now || asked_at_ != Time::never()) return std::nullopt;
  const auto lost = due_.front().lost;
  due_.pop_front();
  add(host_after(servers_[lost.value_or(servers_.size() - 1)].host), lost);
  servers_.back().runs = true;
  return servers_.size() - 1;
}

/// That is there, without places for ranks if there is one; the same one if no other is.
size_t Servers::host_after(size_t host) const {
  for (const bool for_ranks : {false, true}) {
    for (size_t i = 1; i <= lost_hosts_.size(); ++i) {
      const size_t next = (host + i) % lost_hosts_.size();
      if (!lost_hosts_[next] && for_ranks_[next] == for_ranks) return next;
    }
  }
  return host;
}

std::vector<size_t> Servers::lose_host(size_t host) {
  lost_hosts_[host] = true;
  std::vector<size_t> lost;
  for (size_t i = 0; i < servers_.size(); ++i)
    if (servers_[i].host == host && stop(servers_[i])) lost.push_back(i);
  return lost;
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
  if (is_asked) return over() ? Time::never() : asked_at_ + grace_;
  return due_.empty() ? Time::never() : due_.front().at;
}

}  // namespace corro::launch
