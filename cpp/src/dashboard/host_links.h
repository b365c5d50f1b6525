// HostLinks: what went from host to host, of all processes that there were, and how fast that is.
//
//   links.show(picture.links, wall_now());
//   for (const HostLink& link : links.busiest(10)) ...
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/unix_time.h"
#include "dashboard/picture.h"
#include "dashboard/rates.h"

namespace corro::dashboard {

struct HostLink {
  std::string from = {};
  std::string to = {};  ///< The same: between ranks of one host. "": to several.
  uint64_t bytes = 0;
  double bytes_per_second = 0;
};

/// Pure: time is injected. Externally synchronized.
class HostLinks {
 public:
  /// What all processes have counted by now.
  void show(const std::vector<LinkOfMember>& links, UnixTime now);
  /// By their hosts' names.
  [[nodiscard]] std::vector<HostLink> all() const;
  /// At most so many, those over which most goes; by their hosts' names.
  [[nodiscard]] std::vector<HostLink> busiest(size_t most) const;

 private:
  using Hosts = std::pair<std::string, std::string>;
  /// By member and host. A process has an engine after the other, each of which counts from 0.
  std::map<std::pair<std::string, std::string>, uint64_t> last_;
  std::map<Hosts, uint64_t> bytes_;
  Rates rates_;
};

}  // namespace corro::dashboard
