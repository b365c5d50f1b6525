#include "dashboard/host_links.h"

#include <algorithm>

namespace corro::dashboard {
namespace {

/// No name of a host has a 0.
std::string key_of(const std::string& from, const std::string& to) {
  std::string key = from;
  key += '\0';
  return key += to;
}

}  // namespace

void HostLinks::show(const std::vector<LinkOfMember>& links, UnixTime now) {
  for (const LinkOfMember& one : links) {
    uint64_t& last = last_[{one.member, one.to}];
    bytes_[{one.from, one.to}] += one.bytes < last ? one.bytes : one.bytes - last;
    last = one.bytes;
  }
  Rates::Counters counters;
  for (const auto& [hosts, bytes] : bytes_) counters[key_of(hosts.first, hosts.second)] = bytes;
  rates_.sample(std::move(counters), now);
}

std::vector<HostLink> HostLinks::all() const {
  std::vector<HostLink> links;
  links.reserve(bytes_.size());
  for (const auto& [hosts, bytes] : bytes_) {
    const auto& [from, to] = hosts;
    links.push_back({from, to, bytes, rates_.of(key_of(from, to))});
  }
  return links;
}

std::vector<HostLink> HostLinks::busiest(size_t most) const {
  std::vector<HostLink> links = all();
  if (links.size() <= most) return links;
  const auto is_busier = [](const HostLink& one, const HostLink& other) {
    return std::pair(one.bytes_per_second, one.bytes) >
           std::pair(other.bytes_per_second, other.bytes);
  };
  std::ranges::stable_sort(links, is_busier);
  links.resize(most);
  std::ranges::sort(links, {}, [](const HostLink& one) { return std::pair(one.from, one.to); });
  return links;
}

}  // namespace corro::dashboard
