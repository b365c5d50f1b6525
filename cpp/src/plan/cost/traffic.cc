#include "plan/cost/traffic.h"

#include <algorithm>
#include <limits>

namespace corro::plan {

GroupSpan span_of(uint32_t ranks, uint32_t stride, uint32_t host_devices) {
  GroupSpan span{.ranks = ranks};
  span.per_host = stride >= host_devices ? 1 : std::clamp(host_devices / stride, 1U, ranks);
  span.sharers = std::min(stride, host_devices);
  return span;
}

Traffic::Traffic(const HostGroup& hosts, Link between_hosts, const Calibration& calibration)
    : link_(hosts.link.bandwidth * calibration.link_efficiency),
      network_(between_hosts.bandwidth * calibration.network_efficiency),
      efficiency_(calibration.network_efficiency),
      seconds_(calibration.collective_seconds) {}

double Traffic::rate(const GroupSpan& span) const {
  if (span.inside_host()) return link_;
  const double each = network(span.network) / span.sharers;
  return span.per_host > 1 ? std::min(each, link_) : each;
}

double Traffic::allgather(double bytes, const GroupSpan& span) const {
  if (span.ranks <= 1 || bytes <= 0) return 0;
  const double part = (span.ranks - 1.0) / span.ranks;
  return part * bytes / rate(span) + seconds_ / 2;
}

double Traffic::allreduce(double bytes, const GroupSpan& span) const {
  return 2 * allgather(bytes, span);
}

double Traffic::alltoall(double bytes, const GroupSpan& span) const {
  if (span.ranks <= 1 || bytes <= 0) return 0;
  if (span.inside_host()) return (span.ranks - 1.0) / span.ranks * bytes / link_ + seconds_ / 2;
  // What leaves the host shares its network with what the group's other members there send.
  const double outside = (span.ranks - static_cast<double>(span.per_host)) / span.ranks;
  return outside * bytes * span.per_host * span.sharers / network(span.network) + seconds_ / 2;
}

double Traffic::send(double bytes, bool across, uint32_t senders, double placed) const {
  if (bytes <= 0) return 0;
  return across ? bytes * senders / network(placed) : bytes / link_;
}

}  // namespace corro::plan
