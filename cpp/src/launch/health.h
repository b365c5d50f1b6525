// What `corro doctor -H` has measured of hosts and of the links between them, and which of them are
// slow. Pure.
#pragma once

#include <string>
#include <vector>

#include "agent/host_facts.h"
#include "agent/machine.h"
#include "base/clock.h"
#include "launch/pairings.h"

namespace corro::launch {

struct HostHealth {
  std::string name;          ///< As the user named it.
  std::string failure = {};  ///< Why nothing else is known; "": it has answered.
  std::string corro = {};    ///< Version.
  std::string architecture = {};
  std::string missing = {};  ///< What ranks need and is not there; "": nothing.
  agent::Machine machine = {};
  agent::HostFacts facts = {};
  std::vector<std::string> addresses = {};
  Duration clock{};        ///< Ahead of the doctor's own one ...
  Duration clock_error{};  ///< ... give or take this: half of the fastest round trip.
  [[nodiscard]] bool answers() const { return failure.empty(); }
};

struct LinkHealth {
  Link link;
  std::string address = {};  ///< By which `from` reaches `to`; "": by none.
  std::string failure = {};  ///< Why it was not measured although it was tried.
  Duration round_trip{};
  double bytes_per_second = 0;  ///< 0: not measured.
  [[nodiscard]] bool reached() const { return !address.empty(); }
  [[nodiscard]] bool measured() const { return bytes_per_second > 0; }
};

struct Health {
  std::vector<HostHealth> hosts;
  std::vector<LinkHealth> links;  ///< Every direction between hosts that answer.
  Duration took{};
};

/// What a sound link has: each host's best link, and of those the median.
struct UsualLink {
  Duration round_trip{};
  double bytes_per_second = 0;
};
[[nodiscard]] UsualLink usual_link(const std::vector<LinkHealth>& links);

/// Less than half of the usual bandwidth and than 16 Gbit/s, or more than three usual round trips
/// and 0.2 ms.
[[nodiscard]] bool has_low_bandwidth(const LinkHealth& link, const UsualLink& usual);
[[nodiscard]] bool has_long_trip(const LinkHealth& link, const UsualLink& usual);
[[nodiscard]] inline bool is_slow(const LinkHealth& link, const UsualLink& usual) {
  return has_low_bandwidth(link, usual) || has_long_trip(link, usual);
}

/// Whom slow links accuse.
struct Slow {
  std::vector<size_t> hosts;  ///< Slow with two others or more, and with most: the worst first.
  std::vector<Link> links;    ///< Slow, but of no such host: the slowest first.
};
[[nodiscard]] Slow find_slow(const std::vector<LinkHealth>& links);

}  // namespace corro::launch
