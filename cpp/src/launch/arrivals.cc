#include "launch/arrivals.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace corro::launch {
namespace {

constexpr Duration kPatience = std::chrono::seconds(30);  ///< For each stage.
constexpr Duration kBackOff = std::chrono::seconds(5);    ///< After a failure; doubled.
constexpr Duration kMostBackOff = std::chrono::minutes(5);

}  // namespace

size_t Arrivals::invite(const HostSlots& host, Time now) {
  JobFacts& job = plan_.job;
  const JobHost& last = job.hosts.back();
  const size_t number = job.hosts.size();
  job.hosts.push_back({.name = host.name,
                       .own = false,
                       .first_rank = last.first_rank + last.slots(),
                       .ranks = 0,
                       .spare = host.slots,
                       .address = ""});
  plan_.bindings.emplace_back();
  coming_[number] = {.until = now + kPatience};
  agents_.add(job.hosts.back(), is_own_host(host.name, plan_.machine.host));
  return number;
}

bool Arrivals::may_invite(const std::string& name, Time now) const {
  const auto failed = failed_.find(name);
  return failed == failed_.end() || now >= failed->second.free_at;
}

void Arrivals::greet(const AgentLink& link) {
  if (expects(link.host)) meeting_.welcome(link);
}

void Arrivals::put_off(const std::string& name, Time now) {
  constexpr int kMostDoublings = 16;
  Failed& failed = failed_[name];
  const auto pause = kBackOff * (int64_t{1} << std::min(failed.often++, kMostDoublings));
  failed.free_at = now + std::min<Duration>(pause, kMostBackOff);
}

void Arrivals::refuse(size_t host, const std::string& why, Time now) {
  if (coming_.erase(host) == 0) return;
  put_off(plan_.job.hosts[host].name, now);
  outcomes_.push_back({.host = host, .status = {Code::kUnavailable, why}});
  agents_.dismiss(host, why);
}

std::vector<Arrivals::Outcome> Arrivals::take(Time now) {
  std::vector<size_t> hosts;
  for (const auto& [host, coming] : coming_) hosts.push_back(host);
  for (const size_t host : hosts) {
    Coming& coming = coming_.at(host);
    const Status status = advance(host, coming, now);
    if (!status.ok()) {
      refuse(host, status.message(), now);
    } else if (!plan_.job.hosts[host].address.empty()) {
      coming_.erase(host);
      failed_.erase(plan_.job.hosts[host].name);
      outcomes_.push_back({.host = host, .status = {}});
    } else if (now >= coming.until) {
      refuse(host, "no answer for 30 s", now);
    }
  }
  return std::exchange(outcomes_, {});
}

Time Arrivals::due() const {
  if (!outcomes_.empty()) return Time{};
  Time due = Time::never();
  for (const auto& [host, coming] : coming_) due = std::min(due, coming.until);
  return due;
}

/// The other hosts of the job that can be asked.
std::vector<AgentLink*> Arrivals::others(size_t host) const {
  std::vector<AgentLink*> links;
  for (AgentLink& link : agents_.links()) {
    if (link.host != host && !expects(link.host) && !link.gone && link.survey)
      links.push_back(&link);
  }
  return links;
}

Status Arrivals::advance(size_t host, Coming& coming, Time now) {
  AgentLink& link = agents_[host];
  if (!link.survey) return {};
  if (!coming.probed) {
    const auto probes = [](const auto& one) { return one.second.probed; };
    if (std::ranges::any_of(coming_, probes)) return {};  // One after another.
    CORRO_TRY(meeting_.take_survey(link));
    coming = {.until = now + kPatience, .probed = true};
    probe(link);
  }
  const auto asked = others(host);
  if (!std::ranges::all_of(asked, [](AgentLink* one) { return one->routes.has_value(); }))
    return {};
  CORRO_ASSIGN(plan_.job.hosts[host].address, choose_address(link, {asked.begin(), asked.end()}));
  return {};
}

void Arrivals::probe(const AgentLink& link) {
  agent::RouteTarget target = link.survey->here;
  target.host = static_cast<int32_t>(link.host);
  for (AgentLink* from : others(link.host)) {
    from->routes.reset();
    agents_.tell(from->host, agent::Probe{.targets = {target}});
  }
}

Result<std::string> choose_address(const AgentLink& link,
                                   const std::vector<const AgentLink*>& others) {
  std::string address = common_address(link, others);
  if (!address.empty()) return address;
  return Status(
      Code::kUnavailable,
      "the job's other hosts do not reach it by one address: is a firewall between them?");
}

}  // namespace corro::launch
