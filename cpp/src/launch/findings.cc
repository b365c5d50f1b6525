#include "launch/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

namespace corro::launch {
namespace {

using std::chrono::duration;
using std::chrono::seconds;

constexpr Duration kClockTolerance = seconds(1);
constexpr uint64_t kLeastMemory = uint64_t{1} << 30U;

/// What to do about a host without an agent, by what the remote shell has said.
std::string advise_on_silence(const std::string& failure) {
  const auto says = [&](const char* words) { return failure.find(words) != std::string::npos; };
  if (says("resolve") || says("not known"))
    return "is the name spelt right? ssh has to know it, from the DNS, /etc/hosts or ~/.ssh/config";
  if (says("Permission denied"))
    return "ssh may ask no password: give the host your key with ssh-copy-id, or load it with "
           "ssh-add";
  if (says("Host key verification"))
    return "log in once by hand with ssh, and compare the host's key";
  if (says("no corro at") || says("has corro"))
    return "install the same version of corro there, at the same place";
  if (says("timed out") || says("refused") || says("No route") || says("no answer"))
    return "is the host up, does sshd run there, and does a firewall let port 22 through?";
  return "try by hand: ssh HOST true";
}

class FaultFinder {
 public:
  explicit FaultFinder(const Health& health) : health_(health) {}

  std::vector<Finding> find() {
    find_silent();
    find_unreachable();
    find_unmeasured();
    find_slow_ones();
    find_clocks();
    find_missing();
    find_memory();
    find_differences();
    return std::move(findings_);
  }

 private:
  void add(FindingKind kind, std::vector<size_t> hosts, std::string what, std::string advice) {
    findings_.push_back({kind, std::move(hosts), std::move(what), std::move(advice)});
  }
  [[nodiscard]] const std::string& name(size_t host) const { return health_.hosts[host].name; }
  [[nodiscard]] std::string names(const std::vector<size_t>& hosts) const {
    std::string text;
    for (const size_t host : hosts) text += (text.empty() ? "" : ", ") + name(host);
    return text;
  }
  [[nodiscard]] const LinkHealth* find_link(const Link& link) const {
    const auto found = std::ranges::find(health_.links, link, &LinkHealth::link);
    return found == health_.links.end() ? nullptr : &*found;
  }
  /// Does this for each host that answers.
  void for_each(const std::function<void(size_t, const HostHealth&)>& look) const {
    for (size_t host = 0; host < health_.hosts.size(); ++host)
      if (health_.hosts[host].answers()) look(host, health_.hosts[host]);
  }

  void find_silent();
  void find_unreachable();
  [[nodiscard]] bool find_deaf_or_mute(size_t host);
  void find_unmeasured();
  void find_slow_ones();
  void add_slow_host(size_t host, const UsualLink& usual);
  void find_clocks();
  void find_missing();
  void find_memory();
  void find_differences();
  void find_difference(const char* what, const std::function<std::string(const HostHealth&)>& of);

  const Health& health_;
  std::vector<Finding> findings_;
};

void FaultFinder::find_silent() {
  for (size_t host = 0; host < health_.hosts.size(); ++host) {
    const HostHealth& one = health_.hosts[host];
    if (!one.answers())
      add(FindingKind::kNoAnswer, {host}, fmt::format("{}: {}", one.name, one.failure),
          advise_on_silence(one.failure));
  }
}

constexpr const char* kFirewall =
    "let TCP through between the hosts, on all ports from 1024: the kernel chooses which";

/// A host that no other one reaches, or that reaches no other one, is one finding.
bool FaultFinder::find_deaf_or_mute(size_t host) {
  size_t others = 0;
  size_t reached_by = 0;
  size_t reaches = 0;
  for (const LinkHealth& one : health_.links) {
    if (one.link.to == host) ++others, reached_by += one.reached() ? 1 : 0;
    if (one.link.from == host) reaches += one.reached() ? 1 : 0;
  }
  if (others == 0 || (reached_by > 0 && reaches > 0)) return false;
  const std::vector<std::string>& own = health_.hosts[host].addresses;
  const std::string at =
      own.empty() ? "it has no address" : fmt::format("{}", fmt::join(own, ", "));
  const std::string whom = others == 1 ? "the other host" : "any other host";
  if (own.empty()) {
    add(FindingKind::kUnreachable, {host}, fmt::format("{} has no address for others", name(host)),
        "give it one, or leave --network out");
  } else if (reached_by == 0 && reaches == 0) {
    add(FindingKind::kUnreachable, {host},
        fmt::format("{} neither reaches {} nor is it reached, at {}", name(host), whom, at),
        fmt::format("are they in one network? {}; --network says which", kFirewall));
  } else if (reached_by == 0) {
    add(FindingKind::kUnreachable, {host},
        fmt::format("{} is not reached from {}, at {}, but reaches others: one way only",
                    name(host), whom, at),
        fmt::format("a firewall there drops what comes in: {}", kFirewall));
  } else {
    add(FindingKind::kUnreachable, {host},
        fmt::format("{} does not reach {}, but is reached: one way only", name(host), whom),
        fmt::format("a firewall there drops what goes out, or it has no route: {}", kFirewall));
  }
  return true;
}

void FaultFinder::find_unreachable() {
  // With two hosts, who is not reached is who does not reach the other: one finding is enough.
  std::vector<size_t> named;
  for_each([&](size_t host, const HostHealth& /*one*/) {
    const bool said = health_.hosts.size() == 2 && !named.empty();
    if (!said && find_deaf_or_mute(host)) named.push_back(host);
  });
  for (const LinkHealth& one : health_.links) {
    const auto [from, to] = one.link;
    const bool known = std::ranges::count(named, from) + std::ranges::count(named, to) > 0;
    const LinkHealth* back = find_link({to, from});
    const bool one_way = back != nullptr && back->reached();
    if (one.reached() || known || (!one_way && to < from)) continue;
    add(FindingKind::kUnreachable, {from, to},
        one_way ? fmt::format("{} does not reach {}, the other way is open", name(from), name(to))
                : fmt::format("{} and {} do not reach each other", name(from), name(to)),
        fmt::format("a firewall or a route between them: {}", kFirewall));
  }
}

void FaultFinder::find_unmeasured() {
  for (const LinkHealth& one : health_.links) {
    if (one.failure.empty()) continue;
    add(FindingKind::kUnreachable, {one.link.from, one.link.to},
        fmt::format("{} reaches {}, but nothing goes through: {}", name(one.link.from),
                    name(one.link.to), one.failure),
        "look for a firewall that breaks connections, and for an MTU that differs");
  }
}

/// The middle of what a host's links in one direction have; 0 if none was measured.
double usual_rate(const std::vector<LinkHealth>& links, size_t host, bool sends) {
  std::vector<double> rates;
  for (const LinkHealth& one : links)
    if (one.measured() && (sends ? one.link.from : one.link.to) == host)
      rates.push_back(one.bytes_per_second);
  std::ranges::sort(rates);
  return rates.empty() ? 0 : rates[(rates.size() - 1) / 2];
}

void FaultFinder::add_slow_host(size_t host, const UsualLink& usual) {
  std::vector<std::string> words;
  Duration trip{};
  bool low = false;
  for (const LinkHealth& one : health_.links) {
    if (one.link.from != host && one.link.to != host) continue;
    low = low || has_low_bandwidth(one, usual);
    if (has_long_trip(one, usual)) trip = std::max(trip, one.round_trip);
  }
  if (low) {
    words.push_back(fmt::format("it sends {} and receives {}, others {}",
                                format_rate(usual_rate(health_.links, host, true)),
                                format_rate(usual_rate(health_.links, host, false)),
                                format_rate(usual.bytes_per_second)));
  }
  if (trip > Duration::zero())
    words.push_back(fmt::format("a round trip takes up to {}, others {}", format_time(trip),
                                format_time(usual.round_trip)));
  add(FindingKind::kSlow, {host}, fmt::format("{} is slow: {}", name(host), fmt::join(words, "; ")),
      "ethtool says the speed of its interface; look at its cable, the switch's port, other "
      "traffic");
}

void FaultFinder::find_slow_ones() {
  const UsualLink usual = usual_link(health_.links);
  const Slow slow = find_slow(health_.links);
  for (const size_t host : slow.hosts) add_slow_host(host, usual);
  for (const Link& link : slow.links) {
    const LinkHealth& one = *find_link(link);
    const bool low = has_low_bandwidth(one, usual);
    add(FindingKind::kSlow, {link.from, link.to},
        fmt::format("{} to {} is slow: {}, others {}", name(link.from), name(link.to),
                    low ? format_rate(one.bytes_per_second) : format_time(one.round_trip),
                    low ? format_rate(usual.bytes_per_second) : format_time(usual.round_trip)),
        "look at what only these two share: a cable, a switch, a route");
  }
}

void FaultFinder::find_clocks() {
  std::vector<Duration> clocks;
  for_each([&](size_t, const HostHealth& one) { clocks.push_back(one.clock); });
  if (clocks.size() == 1) clocks.push_back(Duration::zero());  // Beside the doctor's own.
  std::ranges::sort(clocks);
  const Duration usual = clocks.empty() ? Duration::zero() : clocks[(clocks.size() - 1) / 2];
  for_each([&](size_t host, const HostHealth& one) {
    const Duration off = one.clock - usual;
    if (std::chrono::abs(off) - one.clock_error <= kClockTolerance) return;
    add(FindingKind::kClock, {host},
        fmt::format("the clock of {} is {} {} the others (± {})", one.name,
                    format_time(std::chrono::abs(off)),
                    off > Duration::zero() ? "ahead of" : "behind", format_time(one.clock_error)),
        "let chrony or systemd-timesyncd set it: times in logs and certificates are wrong");
  });
}

void FaultFinder::find_missing() {
  std::map<std::string, std::vector<size_t>> without;
  for_each([&](size_t host, const HostHealth& one) {
    if (!one.missing.empty()) without[one.missing].push_back(host);
  });
  for (const auto& [what, hosts] : without)
    add(FindingKind::kMissing, hosts, fmt::format("{}: {}", names(hosts), what),
        "it has to be at the same place as here: a shared file system, or a copy");
}

void FaultFinder::find_memory() {
  std::vector<size_t> little;
  std::vector<size_t> small;
  std::vector<size_t> full;
  uint64_t least = UINT64_MAX;
  uint64_t least_shared = UINT64_MAX;
  for_each([&](size_t host, const HostHealth& one) {
    const uint64_t memory = one.machine.facts.memory_bytes;
    if (memory > 0 && memory < kLeastMemory) {
      little.push_back(host);
      least = std::min(least, memory);
    }
    if (one.facts.shared_free >= kLeastMemory) return;
    (one.facts.shared_bytes < kLeastMemory ? small : full).push_back(host);
    least_shared = std::min(least_shared, one.facts.shared_free);
  });
  if (!little.empty())
    add(FindingKind::kMemory, little,
        fmt::format("{}: only {} of memory free", names(little), format_memory(least)),
        "see with top or ps who has it: processes of an earlier job?");
  if (!small.empty())
    add(FindingKind::kMemory, small,
        fmt::format("{}: /dev/shm is small, {} free", names(small), format_memory(least_shared)),
        "torch's data loaders need it: docker run --shm-size=8g, or remount it larger");
  if (!full.empty())
    add(FindingKind::kMemory, full,
        fmt::format("{}: /dev/shm is full, {} free", names(full), format_memory(least_shared)),
        "remove what earlier jobs have left in it");
}

void FaultFinder::find_differences() {
  find_difference("machine", [](const HostHealth& one) { return one.architecture; });
  find_difference("Python", [](const HostHealth& one) { return one.facts.python; });
  find_difference("torch", [](const HostHealth& one) { return one.facts.torch; });
}

/// Hosts that have something else than most.
void FaultFinder::find_difference(const char* what,
                                  const std::function<std::string(const HostHealth&)>& of) {
  std::map<std::string, std::vector<size_t>> by_value;
  std::string most;
  for_each([&](size_t host, const HostHealth& one) {
    std::vector<size_t>& same = by_value[of(one)];
    same.push_back(host);
    if (same.size() > by_value[most].size() || most.empty()) most = of(one);
  });
  std::erase_if(by_value, [](const auto& entry) { return entry.second.empty(); });
  for (const auto& [value, hosts] : by_value) {
    if (value == most) continue;
    add(FindingKind::kDifferent, hosts,
        fmt::format("{}: {} {}, elsewhere {}", names(hosts), what,
                    value.empty() ? "is not there" : value, most.empty() ? "none" : most),
        "install the same environment on all hosts");
  }
}

}  // namespace

const char* name_of(FindingKind kind) {
  switch (kind) {
    case FindingKind::kNoAnswer:
      return "no answer";
    case FindingKind::kUnreachable:
      return "unreachable";
    case FindingKind::kSlow:
      return "slow";
    case FindingKind::kClock:
      return "clock";
    case FindingKind::kMissing:
      return "missing";
    case FindingKind::kMemory:
      return "memory";
    case FindingKind::kDifferent:
      return "different";
  }
  return "";
}

std::vector<Finding> find_faults(const Health& health) { return FaultFinder(health).find(); }

std::string format_rate(double bytes_per_second) {
  const double megabits = bytes_per_second * 8 / 1e6;
  if (megabits >= 1e4) return fmt::format("{:.1f} Gbit/s", megabits / 1e3);
  if (megabits >= 1e3) return fmt::format("{:.2f} Gbit/s", megabits / 1e3);
  return fmt::format("{:.{}f} Mbit/s", megabits, megabits < 10 ? 2 : 0);
}

std::string format_time(Duration time) {
  const double us = duration<double, std::micro>(time).count();
  if (std::abs(us) < 100) return fmt::format("{:.0f} us", us);
  if (std::abs(us) < 1e4) return fmt::format("{:.2f} ms", us / 1e3);
  if (std::abs(us) < 1e6) return fmt::format("{:.0f} ms", us / 1e3);
  return fmt::format("{:.1f} s", us / 1e6);
}

std::string format_memory(uint64_t bytes) {
  constexpr double kMiB = 1 << 20;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.0f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

}  // namespace corro::launch
